"""What may happen to a small cluster, one turn at a time: what there is, and what changes.

Each turn is one that a state would get wrong if it did not know whom a change concerns.
"""

import json
from typing import Any, Final, NamedTuple

from tests.support.changes import Change, gone
from tests.support.clusters import JOBSET, group, jobset_pod, made, node, pod, queue

__all__ = ["TURNS", "Turn"]


class Turn(NamedTuple):
    """Something that happens."""

    name: str
    before: list[Change]
    changes: list[Change]
    seconds: int = 0  # that pass meanwhile


_SUBS = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 2}]
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
_HELD = {"l-replica-0": {"nodes": {"b": 1}, "cause": "anticipated"}}


def _said(later: Any = (), after: Any = (), held: Any = None) -> dict[str, Any]:
    said = {"trainer-kai.dev/anticipated": json.dumps({"later": later, "after": after})}
    return {**said, **({"trainer-kai.dev/reserved": json.dumps(held)} if held else {})}


def _jobset(uid: str = "u", *, suspend: bool = False) -> dict[str, Any]:
    return made("JobSet", "j", {"uid": uid}, spec={"suspend": suspend, "replicatedJobs": []})


def _claim(mode: str, volume: str = "") -> dict[str, Any]:
    return made("PersistentVolumeClaim", "c", spec={"accessModes": [mode], "volumeName": volume})


def _sharing(name: str, fraction: str) -> dict[str, Any]:
    notes = {"gpu-fraction": fraction}
    device = {"runai-gpu-group": "x"}
    return pod(name, node="a", asks={"cpu": "1"}, annotations=notes, labels=device)


_KEEPS = pod(
    "keeps",
    node="a",
    asks={},
    labels={"app": "kai-resource-reservation", "runai-gpu-group": "x"},
    meta={"namespace": "kai-resource-reservation"},
    schedulerName="x",
)


def _near(**selector: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, **selector}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_G = group("g", subGroups=_SUBS, meta={**_OWNED, "annotations": _said([_LATER])})
_HOLDER = group("g", subGroups=_SUBS, meta={"annotations": _said([_LATER], held=_HELD)})
_N = jobset_pod("n", "g", node="a")
_STAGES = [
    group("first", subGroups=_SUBS[:1]),
    jobset_pod("before", "first", node="a"),
    group("g", subGroups=_SUBS, meta={"annotations": _said(after=[_AFTER])}),
    jobset_pod("n", "g"),
]
_GOING = {"deletionTimestamp": "2026-01-05T07:59:00Z"}
_USING = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
_INDEX = "batch.kubernetes.io/job-completion-index"
_TEAM = {"namespaceSelector": {"matchLabels": {"team": "t"}}}
_BUILD = made("PriorityClass", "build", value=100)

_GANGS: Final = [
    Turn("a pod is bound", [group("g"), pod("p", "g")], [pod("p", "g", node="a")]),
    Turn("a pod has gone", [group("g"), pod("p", "g", node="a")], [gone(pod("p"))]),
    Turn("a pod is another", [pod("p")], [pod("p", meta={"uid": "z"})]),
    Turn("a pod changes its group", [group("g"), pod("p")], [pod("p", "g")]),
    Turn(
        "who is alone changes its queue",
        [pod("p")],
        [pod("p", labels={"kai.scheduler/queue": "r"})],
    ),
    Turn(
        "who was the first goes",
        [group("g"), *(pod(n, "g", asks={"cpu": "-1"}) for n in "xy")],
        [gone(pod("x"))],
    ),
    Turn(
        "who goes makes room for another",
        [pod("x", node="a")],
        [gone(pod("x")), pod("y", schedulerName="z")],
    ),
    Turn("a group comes after its pods", [pod("p", "g", node="a"), pod("q", "g")], [group("g")]),
    Turn("a group goes", [group("g"), pod("p", "g")], [gone(group("g"))]),
    Turn(
        "a group changes its queue",
        [group("g"), queue("r"), pod("p", "g", node="a")],
        [group("g", queue="r")],
    ),
    Turn(
        "a group changes its tree",
        [group("g"), pod("p", "g", "x")],
        [group("g", subGroups=[{"name": "x", "minMember": 2}])],
    ),
    Turn("the stage before is over", _STAGES, [jobset_pod("before", "first", phase="Succeeded")]),
    Turn("the stage before is gone", _STAGES, [gone(pod("before"))]),
    Turn("a JobSet is suspended", [_G, _N, _jobset()], [_jobset(suspend=True)]),
    Turn("a JobSet is made again", [_G, _N, _jobset("v", suspend=True)], [_jobset(suspend=True)]),
    Turn("a newer attempt", [_G, _N], [jobset_pod("m", "g", attempt=1)]),
    Turn(
        "a newer attempt in another group",
        [_G, _N, group("h", subGroups=_SUBS, meta=_OWNED)],
        [jobset_pod("m", "h", attempt=1)],
    ),
    Turn("the newest attempt goes", [_G, _N, jobset_pod("m", "g", attempt=1)], [gone(pod("m"))]),
    Turn("a pod that was awaited comes", [_HOLDER, _N], [pod("l", "g", "l-replica-0", node="b")]),
    Turn("who holds slots has nothing any more", [_HOLDER, _N], [gone(pod("n"))]),
]

_PLACES: Final = [
    Turn("a node comes first", [_HOLDER, _N, pod("p", node="b")], [node("0"), gone(node("a"))]),
    Turn(
        "a node goes, and its pods stay",
        [pod("p", node="b"), pod("q", node="c")],
        [gone(node("b")), node("c")],
    ),
    Turn(
        "a promised node comes",
        [group("g"), pod("p", "g", status={"nominatedNodeName": "c"})],
        [node("c")],
    ),
    Turn(
        "a promised node goes",
        [group("g"), pod("p", "g", status={"nominatedNodeName": "b"})],
        [gone(node("b"))],
    ),
    Turn("a node with slots is cordoned", [_HOLDER, _N], [node("b", spec={"unschedulable": True})]),
    Turn("a node has less", [pod("p", node="a")], [node("a", gpu=2, has={"new": "1"})]),
    Turn("a node cannot be read", [pod("p", node="a")], [node("a", has={"cpu": "x"})]),
    Turn(
        "a node is elsewhere",
        [pod("p", nodeSelector={"zone": "x"})],
        [node("b", labels={"zone": "x"})],
    ),
    Turn(
        "a node is tainted",
        [pod("p")],
        [node("b", spec={"taints": [{"key": "k", "effect": "NoExecute"}]})],
    ),
    Turn("who is going is overdue", [group("g"), pod("p", "g", node="a", meta=_GOING)], [], 90),
    Turn("who is overdue is not, by another clock", [pod("p", node="a", meta=_GOING)], [], -90),
    Turn(
        "somebody speaks of others",
        [pod("p", node="a", labels={"app": "a"})],
        [pod("q", affinity=_near())],
    ),
    Turn(
        "who spoke of others is gone",
        [pod("p", node="a", labels={"app": "a"}), pod("q", affinity=_near())],
        [gone(pod("q"))],
    ),
    Turn(
        "a neighbour moves",
        [pod("p", node="a", labels={"app": "a"}), pod("q", affinity=_near())],
        [pod("p", node="b", labels={"app": "a"})],
    ),
    Turn(
        "a namespace is of a team",
        [pod("p", node="a", labels={"app": "a"}), pod("q", affinity=_near(**_TEAM))],
        [made("Namespace", "ns", {"labels": {"team": "t"}})],
    ),
    Turn(
        "somebody asks for an index",
        [pod(n, labels={_INDEX: n}) for n in "01"],
        [pod("q", affinity=_near(labelSelector={"matchLabels": {_INDEX: "1"}}))],
    ),
    Turn(
        "nobody asks for an index any more",
        [
            *(pod(n, labels={_INDEX: n}) for n in "01"),
            pod("q", affinity=_near(labelSelector={"matchLabels": {_INDEX: "1"}})),
        ],
        [gone(pod("q"))],
    ),
    Turn(
        "a port is taken",
        [pod("p")],
        [pod("q", node="a", hostNetwork=True, containers=[{"ports": [{"containerPort": 80}]}])],
    ),
    Turn("something new is asked for", [pod("p")], [pod("q", asks={"new": "1"})]),
    Turn(
        "a device is shared",
        [_KEEPS, _sharing("p", "0.5")],
        [_sharing("q", "0.3"), gone(pod("p"))],
    ),
    Turn("a device is kept", [_sharing("p", "0.5")], [_KEEPS]),
    Turn("a device is kept no longer", [_KEEPS, _sharing("p", "0.5")], [gone(_KEEPS)]),
    Turn(
        "devices are smaller",
        [pod("p", node="a", annotations={"gpu-memory": "500"})],
        [node("a", labels={"nvidia.com/gpu.memory": "1000"})],
    ),
    Turn(
        "a claim is shared",
        [_claim("ReadWriteOnce"), pod("p", node="a", volumes=_USING)],
        [pod("q", volumes=_USING)],
    ),
    Turn(
        "a shared claim moves",
        [_claim("ReadWriteOnce"), *(pod(n, node="a", volumes=_USING) for n in "pq")],
        [pod("p", volumes=_USING), pod("q", node="b", volumes=_USING)],
    ),
    Turn(
        "a claim comes",
        [group("g"), pod("p", "g", volumes=_USING), pod("q", volumes=_USING)],
        [_claim("ReadWriteMany")],
    ),
    Turn(
        "a claim is bound to what there is not",
        [_claim("ReadWriteOnce"), pod("p", volumes=_USING)],
        [_claim("ReadWriteOnce", "v")],
    ),
    Turn(
        "who was awaited is no longer",
        [
            group(
                "g", subGroups=_SUBS, meta={"annotations": _said([{**_LATER, "volumes": _USING}])}
            ),
            jobset_pod("n", "g", node="a"),
            _claim("ReadWriteOnce"),
        ],
        [group("g", subGroups=_SUBS)],
    ),
    Turn(
        "who comes later is written anew",
        [
            group(
                "g",
                subGroups=_SUBS,
                meta={"annotations": _said([{**_LATER, "requests": {"cpu": "3"}}])},
            ),
            _N,
        ],
        [pod("q", asks={"new": "1"})],
    ),
    Turn(
        "a node has a smaller share", [pod("p", node="a")], [node("a", gpu=2, labels={"zone": "x"})]
    ),
    Turn(
        "another has the number of who went",
        [pod("p"), pod("r", labels={"app": "a"}), pod("q", affinity=_near())],
        [gone(pod("r")), pod("s", labels={"app": "b"}, asks={"cpu": "3"})],
    ),
    Turn(
        "another asks less than who went",
        [pod("p", asks={"cpu": "3"})],
        [gone(pod("p")), pod("q", asks={"cpu": "1"})],
    ),
    Turn(
        "a group is older than was said",
        [group("f"), group("g"), pod("p", "g"), pod("q", "f")],
        [group("g", meta={"creationTimestamp": "2020-01-01T00:00:00Z"})],
    ),
    Turn(
        "a promise is withdrawn",
        [group("g"), pod("p", "g", status={"nominatedNodeName": "b"})],
        [pod("p", "g")],
    ),
    Turn(
        "another waits where somebody was promised a node",
        [pod("p", status={"nominatedNodeName": "b"})],
        [gone(pod("p")), pod("q", asks={"cpu": "3"})],
    ),
    Turn(
        "nobody is left who was promised a node",
        [pod("p", status={"nominatedNodeName": "b"})],
        [gone(pod("p")), gone(node("b"))],
    ),
    Turn(
        "a queue gets a child",
        [group("g"), pod("p", "g", node="a"), pod("q")],
        [queue("r", parentQueue="q")],
    ),
    Turn(
        "a queue moves",
        [queue("top"), group("g"), pod("p", "g", node="a")],
        [queue(parentQueue="top")],
    ),
    Turn("a queue goes", [group("g"), pod("p", "g", node="a"), pod("q")], [gone(queue())]),
    Turn(
        "an older queue comes",
        [group("g"), pod("p", "g", node="a")],
        [queue("0", meta={"uid": "0"})],
    ),
    Turn(
        "a class matters more",
        [_BUILD, group("g", priorityClassName="build"), pod("p", "g", node="a")],
        [made("PriorityClass", "build", value=10)],
    ),
]

_AWAY = {
    f"{name}-replica-0": {
        "nodes": {"b": 1},
        "cause": "move",
        "until": f"2026-01-05T08:0{minute}:00Z",
        "like": {**_LATER, "count": 1},
    }
    for name, minute in (("n", 1), ("l", 2))
}
_T = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "name": "j",
    "uid": "t",
    "controller": True,
}
_RECORD = {"trainer-kai.dev/evicted-by": json.dumps({"trainJob": "t", "podGroup": "g"})}
_MOVED = group("g", subGroups=_SUBS, meta={**_OWNED, "annotations": _said(held=_AWAY) | _RECORD})
_OF_MOVED: list[Change] = [
    made("JobSet", "j", {"uid": "u", "ownerReferences": [_T]}, spec={"suspend": True}),
    made("TrainJob", "j", {"uid": "t"}, spec={"suspend": True}),
]

_MOVES: Final = [
    Turn("somebody moves", _OF_MOVED, [_MOVED]),
    Turn("who moves is awaited no longer", [*_OF_MOVED, _MOVED], [pod("p")], 61),
    Turn("nor is the rest of it", [*_OF_MOVED, _MOVED], [pod("p")], 121),
    Turn("who moves is given up", [*_OF_MOVED, _MOVED], [gone(_OF_MOVED[1])]),
    Turn(
        "its user suspends who moves",
        [*_OF_MOVED, _MOVED],
        [group("g", subGroups=_SUBS, meta={**_OWNED, "annotations": _said(held=_AWAY)})],
    ),
]

_TEMPLATE = {"metadata": {"labels": {"trainer-kai.dev/gang": "Main"}}}
_JOBS = [{"name": "n", "template": {"spec": {"template": _TEMPLATE}}}]
_DUE: list[Change] = [
    made(
        "JobSet",
        "j",
        {
            "uid": "u",
            "ownerReferences": [_T],
            "annotations": {"trainer-kai.dev/admitted": "v1"},
        },
        spec={"replicatedJobs": _JOBS},
    ),
    made("TrainJob", "j", {"uid": "t"}, spec={}),
    pod("p", "pg-j-u", node="a", labels={"jobset.sigs.k8s.io/jobset-name": "j"}),
]
_STRAY = [group("g", subGroups=_SUBS), pod("p", "g", "x", node="a")]

_STRAYS: Final = [
    Turn("a group is made again", _DUE, [group("pg-j-u")]),
    Turn("a group is not made again: its JobSet goes", _DUE, [gone(_DUE[0])]),
    Turn("nor if its TrainJob goes", _DUE, [gone(_DUE[1])]),
    Turn("a TrainJob comes whose group is missing", [_DUE[0], _DUE[2]], [_DUE[1]]),
    Turn("a pod that runs names a sub-group that its group does not have", _STRAY[:1], [_STRAY[1]]),
    Turn("its group gets that sub-group", _STRAY, [group("g", subGroups=[{"name": "x"}])]),
    Turn("it names one that is there", _STRAY, [pod("p", "g", "n-replica-0", node="a")]),
    Turn("it goes", _STRAY, [gone(_STRAY[1])]),
    Turn("its group loses it", [group("g"), pod("p", "g", node="a")], [_STRAY[0]]),
]

TURNS: Final = [*_GANGS, *_PLACES, *_MOVES, *_STRAYS]
