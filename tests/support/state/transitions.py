"""Transitions of a small cluster: the objects before, and the changes.

Each turn is one that a state would get wrong if it did not know which objects a change concerns.
"""

import json
from typing import Any, Final, NamedTuple

from tests.support.state.objects import JOBSET, group, jobset_pod, make_object, node, pod, queue
from tests.support.state.random_changes import ObjectChange, deleted


class Transition(NamedTuple):
    """Something that happens."""

    name: str
    before: list[ObjectChange]
    changes: list[ObjectChange]
    seconds: int = 0  # that pass meanwhile


_SUBGROUPS = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 2}]
_OWNED = {"ownerReferences": [JOBSET]}
_AFTER = {
    "replicatedJob": "n",
    "status": "Complete",
    "group": "first",
    "subGroupPrefix": "n-replica-",
    "replicas": 1,
    "count": 1,
}
_LATER = {
    "subGroupPrefix": "l-replica-",
    "replicas": 1,
    "count": 2,
    "requests": {"nvidia.com/gpu": "1"},
}
_RESERVED = {"l-replica-0": {"nodes": {"b": 1}, "cause": "anticipated"}}


def _anticipated(later: Any = (), after: Any = (), held: Any = None) -> dict[str, Any]:
    output = {"trainer-kai.dev/anticipated": json.dumps({"later": later, "after": after})}
    return {**output, **({"trainer-kai.dev/reserved": json.dumps(held)} if held else {})}


def _jobset(uid: str = "u", *, suspend: bool = False) -> dict[str, Any]:
    return make_object("JobSet", "j", {"uid": uid}, spec={"suspend": suspend, "replicatedJobs": []})


def _claim(mode: str, volume: str = "") -> dict[str, Any]:
    return make_object(
        "PersistentVolumeClaim", "c", spec={"accessModes": [mode], "volumeName": volume}
    )


def _sharing(name: str, fraction: str, device: str = "x", node: str = "a") -> dict[str, Any]:
    notes, labels = {"gpu-fraction": fraction}, {"runai-gpu-group": device}
    return pod(name, node=node, asks={"cpu": "1"}, annotations=notes, labels=labels)


def _with_memory(name: str, mib: str, node: str = "a", **more: Any) -> dict[str, Any]:
    asks = {"cpu": "1"}
    return pod(name, node=node, asks=asks, annotations={"gpu-memory": mib}, **more)


def _with_memory_label(name: str, mib: str) -> dict[str, Any]:
    return node(name, labels={"nvidia.com/gpu.memory": mib})


_RESERVATION_POD = pod(
    "keeps",
    node="a",
    asks={},
    labels={"app": "kai-resource-reservation", "runai-gpu-group": "x"},
    meta={"namespace": "kai-resource-reservation"},
    schedulerName="x",
    serviceAccountName="kai-resource-reservation",
)


def _affinity(**selector: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, **selector}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_PODGROUP = group("g", subGroups=_SUBGROUPS, meta={**_OWNED, "annotations": _anticipated([_LATER])})
_PODGROUP_WITH_RESERVATION = group(
    "g", subGroups=_SUBGROUPS, meta={"annotations": _anticipated([_LATER], held=_RESERVED)}
)
_RUNNING_POD = jobset_pod("n", "g", node="a")


def _places_with(**sharing: str) -> dict[str, Any]:
    """Return a PodGroup with two reserved places with shares of GPUs, on "b"."""
    later = {
        **_LATER,
        "requests": {"cpu": "1"},
        "sharing": {f"gpu-{name}": value for name, value in sharing.items()},
    }
    held = {"l-replica-0": {"nodes": {"b": 2}, "cause": "anticipated"}}
    return group("g", subGroups=_SUBGROUPS, meta={"annotations": _anticipated([later], held=held)})


_STAGES = [
    group("first", subGroups=_SUBGROUPS[:1]),
    jobset_pod("before", "first", node="a"),
    group("g", subGroups=_SUBGROUPS, meta={"annotations": _anticipated(after=[_AFTER])}),
    jobset_pod("n", "g"),
]
_TERMINATING = {"deletionTimestamp": "2026-01-05T07:59:00Z"}
_GOES = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
_USING = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
_INDEX = "batch.kubernetes.io/job-completion-index"
_TEAM = {"namespaceSelector": {"matchLabels": {"team": "t"}}}
_BUILD = make_object("PriorityClass", "build", value=100)

_POD_TRANSITIONS: Final = [
    Transition("a pod is bound", [group("g"), pod("p", "g")], [pod("p", "g", node="a")]),
    Transition("a pod has gone", [group("g"), pod("p", "g", node="a")], [deleted(pod("p"))]),
    Transition("a pod is another", [pod("p")], [pod("p", meta={"uid": "z"})]),
    Transition("a pod changes its group", [group("g"), pod("p")], [pod("p", "g")]),
    Transition(
        "a pod without a PodGroup changes its queue",
        [pod("p")],
        [pod("p", labels={"kai.scheduler/queue": "r"})],
    ),
    Transition(
        "the first pod is deleted",
        [group("g"), *(pod(n, "g", asks={"cpu": "-1"}) for n in "xy")],
        [deleted(pod("x"))],
    ),
    Transition(
        "a deleted pod makes room for another",
        [pod("x", node="a")],
        [deleted(pod("x")), pod("y", schedulerName="z")],
    ),
    Transition(
        "a group comes after its pods", [pod("p", "g", node="a"), pod("q", "g")], [group("g")]
    ),
    Transition("a group goes", [group("g"), pod("p", "g")], [deleted(group("g"))]),
    Transition(
        "a group changes its queue",
        [group("g"), queue("r"), pod("p", "g", node="a")],
        [group("g", queue="r")],
    ),
    Transition(
        "a group changes its tree",
        [group("g"), pod("p", "g", "x")],
        [group("g", subGroups=[{"name": "x", "minMember": 2}])],
    ),
    Transition(
        "the stage before is over", _STAGES, [jobset_pod("before", "first", phase="Succeeded")]
    ),
    Transition("the stage before is gone", _STAGES, [deleted(pod("before"))]),
    Transition(
        "a JobSet is suspended", [_PODGROUP, _RUNNING_POD, _jobset()], [_jobset(suspend=True)]
    ),
    Transition(
        "a JobSet is made again",
        [_PODGROUP, _RUNNING_POD, _jobset("v", suspend=True)],
        [_jobset(suspend=True)],
    ),
    Transition("a newer attempt", [_PODGROUP, _RUNNING_POD], [jobset_pod("m", "g", attempt=1)]),
    Transition(
        "a newer attempt in another group",
        [_PODGROUP, _RUNNING_POD, group("h", subGroups=_SUBGROUPS, meta=_OWNED)],
        [jobset_pod("m", "h", attempt=1)],
    ),
    Transition(
        "the newest attempt goes",
        [_PODGROUP, _RUNNING_POD, jobset_pod("m", "g", attempt=1)],
        [deleted(pod("m"))],
    ),
    Transition(
        "a pod that was awaited comes",
        [_PODGROUP_WITH_RESERVATION, _RUNNING_POD],
        [pod("l", "g", "l-replica-0", node="b")],
    ),
    Transition(
        "a PodGroup with reserved places has no pods any more",
        [_PODGROUP_WITH_RESERVATION, _RUNNING_POD],
        [deleted(pod("n"))],
    ),
]

_AVOIDED = {"a": {"until": "2026-01-05T08:00:30Z"}, "0": {"until": "2026-01-05T09:00:00Z"}}
_AVOIDING = group(
    "g", meta={"annotations": {"trainer-kai.dev/avoided-nodes": json.dumps(_AVOIDED)}}
)
_NODE_TRANSITIONS: Final = [
    Transition(
        "a node comes first",
        [_PODGROUP_WITH_RESERVATION, _RUNNING_POD, pod("p", node="b")],
        [node("0"), deleted(node("a"))],
    ),
    Transition(
        "a node goes, and its pods stay",
        [pod("p", node="b"), pod("q", node="c")],
        [deleted(node("b")), node("c")],
    ),
    Transition(
        "an avoided node is made anew",
        [_AVOIDING, pod("p", "g"), pod("q")],
        [node("a", meta={"uid": "z"})],
    ),
    Transition("an avoided node goes", [_AVOIDING, pod("p", "g")], [deleted(node("a"))]),
    Transition(
        "a node is avoided", [group("g"), pod("p", "g"), pod("q", "g", node="a")], [_AVOIDING]
    ),
    Transition("a node is avoided no longer", [_AVOIDING, pod("p", "g")], [group("g")]),
    Transition("the time of an avoided node ends", [_AVOIDING, pod("p", "g")], [], seconds=60),
    Transition(
        "a promised node comes",
        [group("g"), pod("p", "g", status={"nominatedNodeName": "c"})],
        [node("c")],
    ),
    Transition(
        "a promised node goes",
        [group("g"), pod("p", "g", status={"nominatedNodeName": "b"})],
        [deleted(node("b"))],
    ),
    Transition(
        "a node with slots is cordoned",
        [_PODGROUP_WITH_RESERVATION, _RUNNING_POD],
        [node("b", spec={"unschedulable": True})],
    ),
    Transition("a node has less", [pod("p", node="a")], [node("a", gpu=2, has={"new": "1"})]),
    Transition("a node cannot be read", [pod("p", node="a")], [node("a", has={"cpu": "x"})]),
    Transition(
        "a node is elsewhere",
        [pod("p", nodeSelector={"zone": "x"})],
        [node("b", labels={"zone": "x"})],
    ),
    Transition(
        "a node is tainted",
        [pod("p")],
        [node("b", spec={"taints": [{"key": "k", "effect": "NoExecute"}]})],
    ),
    Transition(
        "a terminating pod is overdue",
        [group("g"), pod("p", "g", node="a", meta=_TERMINATING)],
        [],
        90,
    ),
    Transition(
        "an overdue pod is not, by another clock", [pod("p", node="a", meta=_TERMINATING)], [], -90
    ),
    Transition(
        "a pod has terms about others",
        [pod("p", node="a", labels={"app": "a"})],
        [pod("q", affinity=_affinity())],
    ),
    Transition(
        "the pod with terms about others is deleted",
        [pod("p", node="a", labels={"app": "a"}), pod("q", affinity=_affinity())],
        [deleted(pod("q"))],
    ),
    Transition(
        "a neighbour moves",
        [pod("p", node="a", labels={"app": "a"}), pod("q", affinity=_affinity())],
        [pod("p", node="b", labels={"app": "a"})],
    ),
    Transition(
        "a namespace is of a team",
        [pod("p", node="a", labels={"app": "a"}), pod("q", affinity=_affinity(**_TEAM))],
        [make_object("Namespace", "ns", {"labels": {"team": "t"}})],
    ),
    Transition(
        "a pod requests an index",
        [pod(n, labels={_INDEX: n}) for n in "01"],
        [pod("q", affinity=_affinity(labelSelector={"matchLabels": {_INDEX: "1"}}))],
    ),
    Transition(
        "no pod requests an index any more",
        [
            *(pod(n, labels={_INDEX: n}) for n in "01"),
            pod("q", affinity=_affinity(labelSelector={"matchLabels": {_INDEX: "1"}})),
        ],
        [deleted(pod("q"))],
    ),
    Transition(
        "a port is taken",
        [pod("p")],
        [pod("q", node="a", hostNetwork=True, containers=[{"ports": [{"containerPort": 80}]}])],
    ),
    Transition("something new is asked for", [pod("p")], [pod("q", asks={"new": "1"})]),
    Transition(
        "a device is shared",
        [_RESERVATION_POD, _sharing("p", "0.5")],
        [_sharing("q", "0.3"), deleted(pod("p"))],
    ),
    Transition("a device is kept", [_sharing("p", "0.5")], [_RESERVATION_POD]),
    Transition("a device is kept for no pod", [], [_RESERVATION_POD, deleted(_RESERVATION_POD)]),
    Transition(
        "a device is kept no longer",
        [_RESERVATION_POD, _sharing("p", "0.5")],
        [_RESERVATION_POD | {"metadata": {**_RESERVATION_POD["metadata"], **_GOES}}],
        seconds=200,
    ),
    Transition(
        "a device is kept no longer",
        [_RESERVATION_POD, _sharing("p", "0.5")],
        [deleted(_RESERVATION_POD)],
    ),
    Transition(
        "devices are smaller",
        [pod("p", node="a", annotations={"gpu-memory": "500"})],
        [node("a", labels={"nvidia.com/gpu.memory": "1000"})],
    ),
    Transition(
        "a claim is shared",
        [_claim("ReadWriteOnce"), pod("p", node="a", volumes=_USING)],
        [pod("q", volumes=_USING)],
    ),
    Transition(
        "a shared claim moves",
        [_claim("ReadWriteOnce"), *(pod(n, node="a", volumes=_USING) for n in "pq")],
        [pod("p", volumes=_USING), pod("q", node="b", volumes=_USING)],
    ),
    Transition(
        "a claim comes",
        [group("g"), pod("p", "g", volumes=_USING), pod("q", volumes=_USING)],
        [_claim("ReadWriteMany")],
    ),
    Transition(
        "a claim is bound to what there is not",
        [_claim("ReadWriteOnce"), pod("p", volumes=_USING)],
        [_claim("ReadWriteOnce", "v")],
    ),
    Transition(
        "an expected pod is expected no longer",
        [
            group(
                "g",
                subGroups=_SUBGROUPS,
                meta={"annotations": _anticipated([{**_LATER, "volumes": _USING}])},
            ),
            jobset_pod("n", "g", node="a"),
            _claim("ReadWriteOnce"),
        ],
        [group("g", subGroups=_SUBGROUPS)],
    ),
    Transition(
        "the expected pods are written anew",
        [
            group(
                "g",
                subGroups=_SUBGROUPS,
                meta={"annotations": _anticipated([{**_LATER, "requests": {"cpu": "3"}}])},
            ),
            _RUNNING_POD,
        ],
        [pod("q", asks={"new": "1"})],
    ),
    Transition(
        "a node has a smaller share", [pod("p", node="a")], [node("a", gpu=2, labels={"zone": "x"})]
    ),
    Transition(
        "another pod has the number of a deleted one",
        [pod("p"), pod("r", labels={"app": "a"}), pod("q", affinity=_affinity())],
        [deleted(pod("r")), pod("s", labels={"app": "b"}, asks={"cpu": "3"})],
    ),
    Transition(
        "another pod requests less than the deleted one",
        [pod("p", asks={"cpu": "3"})],
        [deleted(pod("p")), pod("q", asks={"cpu": "1"})],
    ),
    Transition(
        "a group is older than was said",
        [group("f"), group("g"), pod("p", "g"), pod("q", "f")],
        [group("g", meta={"creationTimestamp": "2020-01-01T00:00:00Z"})],
    ),
    Transition(
        "a promise is withdrawn",
        [group("g"), pod("p", "g", status={"nominatedNodeName": "b"})],
        [pod("p", "g")],
    ),
    Transition(
        "another waits where a pod was nominated",
        [pod("p", status={"nominatedNodeName": "b"})],
        [deleted(pod("p")), pod("q", asks={"cpu": "3"})],
    ),
    Transition(
        "no nominated pod is left",
        [pod("p", status={"nominatedNodeName": "b"})],
        [deleted(pod("p")), deleted(node("b"))],
    ),
    Transition(
        "a queue gets a child",
        [group("g"), pod("p", "g", node="a"), pod("q")],
        [queue("r", parentQueue="q")],
    ),
    Transition(
        "a queue moves",
        [queue("top"), group("g"), pod("p", "g", node="a")],
        [queue(parentQueue="top")],
    ),
    Transition("a queue goes", [group("g"), pod("p", "g", node="a"), pod("q")], [deleted(queue())]),
    Transition(
        "an older queue comes",
        [group("g"), pod("p", "g", node="a")],
        [queue("0", meta={"uid": "0"})],
    ),
    Transition(
        "a class matters more",
        [_BUILD, group("g", priorityClassName="build"), pod("p", "g", node="a")],
        [make_object("PriorityClass", "build", value=10)],
    ),
]

_SHARE_TRANSITIONS: Final = [
    Transition(
        "a pod shares another GPU",
        [_sharing("p", "0.5"), _sharing("q", "0.3")],
        [_sharing("q", "0.3", "y"), _sharing("p", "0.5", "0")],
    ),
    Transition(
        "a pod with shares moves",
        [_sharing("p", "0.5"), _sharing("q", "0.3")],
        [_sharing("p", "0.5", node="b")],
    ),
    Transition(
        "a pod with shares terminates",
        [_sharing("p", "0.5")],
        [{**_sharing("p", "0.5"), "metadata": {**_sharing("p", "0.5")["metadata"], **_GOES}}],
        300,
    ),
    Transition("the only share becomes whole GPUs", [_sharing("p", "0.5")], [pod("p", node="a")]),
    Transition(
        "a term selects by the shared GPU",
        [_sharing("p", "0.5"), _sharing("q", "0.3", "y")],
        [pod("r", affinity=_affinity(labelSelector={"matchLabels": {"runai-gpu-group": "y"}}))],
    ),
    Transition(
        "GPUs with another memory come",
        [_with_memory_label("a", "1000"), _with_memory("p", "500"), _with_memory("q", "500", "")],
        [_with_memory_label("b", "2000"), _with_memory("r", "500", "b")],
    ),
    Transition(
        "the memory of GPUs is known no longer",
        [_with_memory_label("a", "1000"), _with_memory("p", "500"), _with_memory("q", "500", "b")],
        [node("a")],
    ),
    Transition(
        "a pod has a share beside reserved places",
        [_places_with(fraction="0.4"), _RUNNING_POD],
        [_sharing("p", "0.6", "0", node="b"), _sharing("q", "0.3", "z", node="b")],
    ),
    Transition(
        "another PodGroup has places before",
        [_places_with(fraction="0.4"), _RUNNING_POD],
        [
            {
                **_places_with(fraction="0.6"),
                "metadata": {**_places_with(fraction="0.6")["metadata"], "name": "f"},
            },
            jobset_pod("m", "f", node="a"),
        ],
    ),
    Transition(
        "reserved places are on GPUs with another memory",
        [_places_with(memory="300"), _RUNNING_POD],
        [_with_memory_label("b", "1000")],
    ),
    Transition(
        "MIG profiles are requested by annotation",
        [pod("p", node="a")],
        [pod("p", node="a", annotations={"nvidia.com/mig-1g.5gb": "2"})],
    ),
    Transition(
        "the pod with MIG profiles by annotation is deleted",
        [pod("p", node="a", annotations={"nvidia.com/mig-1g.5gb": "2"})],
        [deleted(pod("p"))],
    ),
    Transition(
        "a node offers MIG profiles",
        [node("b", has={"nvidia.com/mig-1g.5gb": "1"})],
        [node("a", labels={"zone": "x"}, has={"nvidia.com/mig-1g.5gb": "7"})],
    ),
]

_ON_MISSING_NODE = {
    f"{name}-replica-0": {
        "nodes": {"b": 1},
        "cause": "move",
        "until": f"2026-01-05T08:0{minute}:00Z",
        "like": {**_LATER, "count": 1},
    }
    for name, minute in (("n", 1), ("l", 2))
}
_TRAINJOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "name": "j",
    "uid": "t",
    "controller": True,
}
_RECORD = {"trainer-kai.dev/evicted-by": json.dumps({"trainJob": "t", "podGroup": "g"})}
_MOVED = group(
    "g",
    subGroups=_SUBGROUPS,
    meta={**_OWNED, "annotations": _anticipated(held=_ON_MISSING_NODE) | _RECORD},
)
_OF_MOVED: list[ObjectChange] = [
    make_object(
        "JobSet", "j", {"uid": "u", "ownerReferences": [_TRAINJOB]}, spec={"suspend": True}
    ),
    make_object("TrainJob", "j", {"uid": "t"}, spec={"suspend": True}),
]

_RELOCATION_TRANSITIONS: Final = [
    Transition("a PodGroup is relocated", _OF_MOVED, [_MOVED]),
    Transition("a relocated PodGroup is awaited no longer", [*_OF_MOVED, _MOVED], [pod("p")], 61),
    Transition("nor is the rest of it", [*_OF_MOVED, _MOVED], [pod("p")], 121),
    Transition("a relocated PodGroup is given up", [*_OF_MOVED, _MOVED], [deleted(_OF_MOVED[1])]),
    Transition(
        "its user suspends a relocated TrainJob",
        [*_OF_MOVED, _MOVED],
        [
            group(
                "g",
                subGroups=_SUBGROUPS,
                meta={**_OWNED, "annotations": _anticipated(held=_ON_MISSING_NODE)},
            )
        ],
    ),
]

_TEMPLATE = {"metadata": {"labels": {"trainer-kai.dev/gang": "Main"}}}
_JOBSET_TRANSITIONS = [{"name": "n", "template": {"spec": {"template": _TEMPLATE}}}]
_OVERDUE: list[ObjectChange] = [
    make_object(
        "JobSet",
        "j",
        {
            "uid": "u",
            "ownerReferences": [_TRAINJOB],
            "annotations": {"trainer-kai.dev/admitted": "v1"},
        },
        spec={"replicatedJobs": _JOBSET_TRANSITIONS},
    ),
    make_object("TrainJob", "j", {"uid": "t"}, spec={}),
    pod("p", "pg-j-u", node="a", labels={"jobset.sigs.k8s.io/jobset-name": "j"}),
]
_MISPLACED = [group("g", subGroups=_SUBGROUPS), pod("p", "g", "x", node="a")]

_MISPLACED_TRANSITIONS: Final = [
    Transition("a group is made again", _OVERDUE, [group("pg-j-u")]),
    Transition("a group is not made again: its JobSet goes", _OVERDUE, [deleted(_OVERDUE[0])]),
    Transition("nor if its TrainJob goes", _OVERDUE, [deleted(_OVERDUE[1])]),
    Transition("a TrainJob without its PodGroup comes", [_OVERDUE[0], _OVERDUE[2]], [_OVERDUE[1]]),
    Transition(
        "a pod that runs names a sub-group that its group does not have",
        _MISPLACED[:1],
        [_MISPLACED[1]],
    ),
    Transition(
        "its group gets that sub-group", _MISPLACED, [group("g", subGroups=[{"name": "x"}])]
    ),
    Transition("it names one that is there", _MISPLACED, [pod("p", "g", "n-replica-0", node="a")]),
    Transition("it goes", _MISPLACED, [deleted(_MISPLACED[1])]),
    Transition("its group loses it", [group("g"), pod("p", "g", node="a")], [_MISPLACED[0]]),
]

TRANSITIONS: Final = [
    *_POD_TRANSITIONS,
    *_NODE_TRANSITIONS,
    *_SHARE_TRANSITIONS,
    *_RELOCATION_TRANSITIONS,
    *_MISPLACED_TRANSITIONS,
]
