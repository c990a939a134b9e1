"""Random changes of a small cluster: objects come, change and go, and time passes.

The names are few, so that the same ones come again as other objects.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.state.objects import NOW, decode_object, group, make_object, node, pod, queue
from trainer_kai.api.bounds import MOST_TOLERATIONS

Fields: TypeAlias = dict[str, Any]
ObjectChange: TypeAlias = Fields  # an object as it is from now on, or which is gone


def deleted(fields: Fields) -> ObjectChange:
    """Return that there is no such object any more."""
    return {**fields, "isGone": True}


def apply_change(state: ClusterState, change: ObjectChange) -> None:
    """Let a state know of a change."""
    resource, key, one = decode_object(change)
    state.put(resource, key, None if "isGone" in change else one)


def changes() -> st.SearchStrategy[list[ObjectChange]]:
    """Return what may happen between two snapshots."""
    is_gone = st.sampled_from([False, False, False, True])
    change = st.tuples(_objects(), is_gone).map(lambda it: deleted(it[0]) if it[1] else it[0])
    return st.lists(change, min_size=1, max_size=6)


def _objects() -> st.SearchStrategy[Fields]:
    pods = st.one_of(_pods(), _pods(), _pods(), _reservation_pods())
    return st.one_of(pods, pods, pods, _podgroups_and_jobsets(), _nodes(), _other_objects())


_SUBGROUPS: Final = [
    {"name": "n-replica-0", "minMember": 2},
    {"name": "l-replica-0", "minMember": 1},
]
_IN_RACK: Final = {"topology": "t", "requiredTopologyLevel": "rack"}
_NEAR_ZONE: Final = {"topology": "u", "preferredTopologyLevel": "zone"}
_LATER: Final = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 2}
_AFTER: Final = {
    "replicatedJob": "n",
    "group": "h",
    "subGroupPrefix": "n-replica-",
    "replicas": 1,
    "count": 1,
}
_AVOIDED: Final = json.dumps(
    {"a": {"until": "2026-01-05T08:00:30Z"}, "b": {"uid": "", "until": "2026-01-05T08:10:00Z"}}
)
_CLAIMED: Final = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
_ANTICIPATED: Final = [
    {},
    {"later": [{**_LATER, "requests": {"nvidia.com/gpu": "1"}}]},
    {"later": [{**_LATER, "requests": {"cpu": "1"}, "labels": {"app": "a"}}]},
    {"later": [{**_LATER, "requests": {"cpu": "1"}, "priorityClassName": "build"}]},
    {"later": [{**_LATER, "requests": {"new": "1"}, "volumes": _CLAIMED}]},
    {"later": [{**_LATER, "requests": {"cpu": "1"}, "sharing": {"gpu-fraction": "0.4"}}]},
    {"later": [{**_LATER, "requests": {"cpu": "1"}, "sharing": {"gpu-memory": "300"}}]},
    {"after": [{**_AFTER, "status": "Ready"}]},
    {"after": [{**_AFTER, "status": "Complete", "before": ["l-replica-"]}]},
    {"later": "wrong"},
]
_MOVED: Final = {
    "nodes": {"b": 2},
    "cause": "move",
    "like": {**_LATER, "requests": {"nvidia.com/gpu": "1"}, "volumes": _CLAIMED},
}
_RESERVED: Final = [
    "",
    json.dumps({"l-replica-0": {"nodes": {"a": 1, "b": 1}, "cause": "anticipated"}}),
    json.dumps({"n-replica-0": {"nodes": {"a": 1}}, "l-replica-0": {"nodes": {"gone": 1}}}),
    json.dumps({"n-replica-0": {**_MOVED, "until": "2026-01-05T08:01:00Z"}}),
    json.dumps({"n-replica-0": {**_MOVED, "until": "soon"}, "l-replica-0": _MOVED}),
    json.dumps(
        {
            "n-replica-0": {**_MOVED, "until": "2026-01-05T08:01:00Z"},
            "l-replica-0": {**_MOVED, "until": "2026-01-05T08:02:00Z"},
        }
    ),
    json.dumps({"default": {"nodes": {"a": 1}, "cause": "move"}}),
    "wrong",
]
_TRAINJOB: Final = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "uid": "t"}
_OWNERS: Final[list[list[Fields]]] = [
    [],
    [{**_TRAINJOB, "name": "j", "controller": True}],
    [{**_TRAINJOB, "name": "k", "controller": True}],
]
_AN_HOUR_AGO: Final = "2026-01-05T07:00:00Z"
_STARTS: Final = ["", "", _AN_HOUR_AGO, "wrong"]
_EVICTED: Final = json.dumps({"trainJob": "t", "podGroup": "x"})
_PLACED: Final = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _AN_HOUR_AGO}


@st.composite
def _podgroups_and_jobsets(draw: st.DrawFn) -> Fields:
    """Draw a group or a JobSet."""
    if draw(st.integers(0, 3)) == 0:
        status = {"name": "n", "ready": 1, "succeeded": draw(st.integers(0, 1))}
        return make_object(
            "JobSet",
            "j",
            {"uid": draw(st.sampled_from("uv")), "ownerReferences": draw(st.sampled_from(_OWNERS))},
            spec={"suspend": draw(st.booleans()), "replicatedJobs": []},
            status={
                "replicatedJobsStatus": draw(st.sampled_from([[], [status]])),
                "terminalState": draw(st.sampled_from(["", "", "", "Completed"])),
            },
        )
    annotations = {
        "trainer-kai.dev/anticipated": json.dumps(draw(st.sampled_from(_ANTICIPATED))),
        "trainer-kai.dev/reserved": draw(st.sampled_from(_RESERVED)),
        "trainer-kai.dev/avoided-nodes": draw(st.sampled_from(["", "", "{", _AVOIDED])),
        "kai.scheduler/last-start-timestamp": draw(st.sampled_from(_STARTS)),
        "kai.scheduler/last-eviction-timestamp": draw(st.sampled_from(["", _AN_HOUR_AGO])),
        "trainer-kai.dev/evicted-by": draw(st.sampled_from(["", "", "{", _EVICTED])),
    }
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": "u"}
    meta = {
        "annotations": {name: text for name, text in annotations.items() if text},
        "ownerReferences": draw(st.sampled_from([[], [], [owner]])),
        "uid": draw(st.sampled_from("xy")),
        "creationTimestamp": draw(_times()),
    }
    return group(
        draw(st.sampled_from("gghi")),
        meta=meta,
        queue=draw(st.sampled_from(["q", "q", "r", "top", "none"])),
        subGroups=draw(
            st.sampled_from([[], _SUBGROUPS, _SUBGROUPS[:1], [{"name": "x", "parent": "x"}]])
        ),
        minMember=draw(st.sampled_from([None, 1, 3])),
        priorityClassName=draw(st.sampled_from(["", "build"])),
        preemptionDelay=draw(st.sampled_from(["", "10m", "wrong"])),
        topologyConstraint=draw(st.sampled_from([None, None, _IN_RACK, _NEAR_ZONE])),
    )


_LEAVES: Final = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


@st.composite
def _nodes(draw: st.DrawFn) -> Fields:
    """Draw a node."""
    taint = {"key": "k", "value": draw(st.sampled_from("xy")), "effect": "NoSchedule"}
    more: list[Fields] = [
        {},
        {"gpu": 2},
        {"has": {"new": "3"}},
        {"has": {"cpu": "many"}},
        {"gpu": 0},
        {"has": {"nvidia.com/mig-1g.5gb": "7"}},
    ]
    memory = {"nvidia.com/gpu.memory": draw(st.sampled_from(["1000", "2000"]))}
    ready = {"type": "Ready", "status": draw(st.sampled_from(["True", "True", "False"]))}
    return node(
        draw(st.sampled_from("aabbc")),
        labels={
            **draw(st.sampled_from([{}, {"zone": "x"}, {"zone": "y"}, memory])),
            **draw(st.sampled_from([{}, {"zone": "z", "rack": "1"}, {"rack": "2"}])),
        },
        spec={
            "taints": draw(st.sampled_from([[], [], [taint], [_LEAVES]])),
            "unschedulable": draw(st.integers(0, 5)) == 0,
        },
        conditions=[ready],
        **draw(st.sampled_from(more)),
    )


@st.composite
def _other_objects(draw: st.DrawFn) -> Fields:
    """Draw anything else."""
    kind = draw(
        st.sampled_from(
            [
                *("Queue", "PriorityClass", "ResourceQuota", "Namespace", "TrainJob"),
                *("PodDisruptionBudget", "claim", "Topology"),
            ]
        )
    )
    if kind == "PodDisruptionBudget":
        selector = draw(st.sampled_from([{}, {"matchLabels": {"app": "a"}}, None]))
        status = {"disruptionsAllowed": draw(st.integers(0, 2))}
        return make_object(
            kind, draw(st.sampled_from("bc")), spec={"selector": selector}, status=status
        )
    if kind == "TrainJob":
        labels = draw(st.sampled_from([{}, {"kueue.x-k8s.io/queue-name": "k"}]))
        notes = draw(st.sampled_from([{}, {"trainer-kai.dev/evicted-by": _EVICTED}]))
        meta = {"labels": labels, "annotations": notes, "uid": draw(st.sampled_from("ttw"))}
        spec = {"suspend": draw(st.booleans())}
        return make_object(kind, draw(st.sampled_from("jk")), meta, spec=spec)
    if kind == "Topology":
        labels = draw(st.sampled_from([["zone", "rack"], ["zone"], ["rack", "rack"]]))
        levels = [{"nodeLabel": it} for it in labels]
        return make_object(kind, draw(st.sampled_from("tu")), spec={"levels": levels})
    if kind == "Queue":
        return draw(_changed_queues())
    if kind in {"PriorityClass", "ResourceQuota"}:
        return draw(_priorities(kind))
    if kind == "Namespace":
        return make_object(kind, draw(st.sampled_from(["ns", "other"])), {"labels": {"team": "t"}})
    return draw(_volumes())


@st.composite
def _changed_queues(draw: st.DrawFn) -> Fields:
    parents = {"q": ["", "", "top"], "r": ["", "top", "r"], "top": ["", "none"]}
    name = draw(st.sampled_from("qr") | st.just("top"))
    few = {"quota": 1, "limit": 4, "overQuotaWeight": 1}
    resources = {"resources": {"gpu": few, "cpu": few, "memory": few}}
    more: Fields = draw(st.sampled_from([{}, resources, {"reclaimMinRuntime": "10m"}]))
    offer = draw(st.sampled_from(["", "", "on", "off", "maybe"]))
    notes = {"trainer-kai.dev/consolidation": offer} if offer else {}
    if draw(st.booleans()):
        notes["kai.scheduler/topology"] = draw(st.sampled_from("tu"))
        notes["kai.scheduler/topology-required-placement"] = "rack"
    meta = {"annotations": notes}
    return queue(name, meta=meta, parentQueue=draw(st.sampled_from(parents[name])), **more)


@st.composite
def _priorities(draw: st.DrawFn, kind: str) -> Fields:
    if kind == "ResourceQuota":
        scopes = draw(st.sampled_from([[], ["PriorityClass"], ["BestEffort"]]))
        return make_object(kind, draw(st.sampled_from("bc")), spec={"scopes": scopes})
    value, is_default = draw(st.sampled_from([10, 100, 10**9])), draw(st.booleans())
    return make_object(kind, "build", value=value, globalDefault=is_default)


@st.composite
def _volumes(draw: st.DrawFn) -> Fields:
    kind = draw(st.sampled_from(["StorageClass", "PersistentVolume", "PersistentVolumeClaim"]))
    if kind == "StorageClass":
        mode = draw(st.sampled_from(["WaitForFirstConsumer", "Immediate"]))
        provisioner = draw(st.sampled_from(["kubernetes.io/no-provisioner", "x"]))
        return make_object(kind, "s", volumeBindingMode=mode, provisioner=provisioner)
    if kind == "PersistentVolume":
        wish = {"key": "zone", "operator": "In", "values": [draw(st.sampled_from("xy"))]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wish]}]}
        spec = {
            "storageClassName": "s",
            "capacity": {"storage": "1"},
            "accessModes": ["ReadWriteOnce"],
        }
        return make_object(kind, "v", spec={**spec, "nodeAffinity": {"required": terms}})
    modes = draw(st.sampled_from([["ReadWriteOnce"], ["ReadWriteOncePod"], ["ReadWriteMany"]]))
    spec = {"storageClassName": "s", "accessModes": modes}
    volume = {"volumeName": draw(st.sampled_from(["", "v"]))}
    return make_object(kind, draw(st.sampled_from("cd")), spec={**spec, **volume})


def _times() -> st.SearchStrategy[str]:
    """Return moments of which some are two minutes ago, or will be."""
    moments = st.sampled_from([-300, -120, -60, 0, 100])
    return moments.map(lambda it: datetime.fromtimestamp(NOW + it, UTC).isoformat())


def _term(**selector: Any) -> list[Fields]:
    return [{"topologyKey": "zone", "labelSelector": selector}]


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_CONSTRAINTS: Final[list[Fields]] = [
    *({}, {}, {}),
    {"affinity": {"podAntiAffinity": {_REQUIRED: _term(matchLabels={"app": "a"})}}},
    {"affinity": {"podAffinity": {_REQUIRED: _term(matchLabels={"app": "b"})}}},
    {"affinity": {"podAntiAffinity": {_REQUIRED: _term(matchLabels={_INDEX: "1"})}}},
    {
        "affinity": {
            "podAntiAffinity": {
                _REQUIRED: [
                    {**_term()[0], "namespaceSelector": {"matchLabels": {"team": "t"}}},
                ]
            }
        }
    },
    {
        "topologySpreadConstraints": [
            {
                **_term(matchExpressions=[{"key": "app", "operator": "Exists"}])[0],
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
            }
        ]
    },
    {"nodeSelector": {"zone": "x"}},
    {"nodeSelector": {"rack": "x"}},
    *({"priorityClassName": "build"}, {"priorityClassName": "build"}),
    {"tolerations": [{"operator": "Exists"}] * (MOST_TOLERATIONS + 1), "hostNetwork": True}
    | {"ports": [{"containerPort": 80}]},
    {"tolerations": [{"operator": "Exists"}]},
    {"hostNetwork": True, "ports": [{"containerPort": 80}]},
    {"ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}]},
    {"volumes": _CLAIMED},
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]},
    {"volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
    {"schedulerName": "other"},
    {"schedulingGates": [{"name": "example"}]},
    {"asks": {"new": "1", "cpu": "2"}},
    {"asks": {"cpu": "wrong"}},
    {"asks": {"cpu": "-1"}},
]
_ANNOTATIONS: Final = [
    *({}, {}, {}, {"gpu-fraction": "0.5"}, {"gpu-memory": "500"}),
    {"gpu-fraction": "0.3", "gpu-fraction-num-devices": "2"},
    *(
        {"gpu-fraction": it, "runai/shared-gpu-configmap": "p-x1y2z3a-shared-gpu"}
        for it in ("0.4", "0.6")
    ),
    {"gpu-memory": "3Gi"},
    {"nvidia.com/mig-1g.5gb": "2"},
]
_REQUESTS: Final = [{"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}, {"cpu": "1"}]


@st.composite
def _pods(draw: st.DrawFn) -> Fields:
    name = draw(st.sampled_from([f"p{n}" for n in range(9)]))
    wish = dict(draw(st.sampled_from(_CONSTRAINTS)))
    phases = ["", "", "", "Running", "Succeeded", "Failed"]
    has_place = draw(st.booleans())
    output = pod(
        name,
        draw(st.sampled_from(["g", "g", "g", "h", "i", "missing", ""])),
        draw(st.sampled_from(["", "n-replica-0", "n-replica-0", "l-replica-0"])),
        node=draw(st.sampled_from(["a", "a", "b", "gone"])) if has_place else "",
        annotations=draw(st.sampled_from(_ANNOTATIONS)),
        labels=_labels(draw),
        asks=wish.pop("asks", draw(st.sampled_from(_REQUESTS))),
        meta=_meta(draw, name),
        phase=draw(st.sampled_from(phases)),
    )
    output["status"]["nominatedNodeName"] = draw(st.sampled_from(["", "", "", "a", "gone"]))
    ready = {"type": "Ready", "status": draw(st.sampled_from(["True", "False"]))}
    output["status"]["conditions"] = draw(st.sampled_from([[], [ready], [_PLACED]]))
    output["spec"]["containers"][0]["ports"] = wish.pop("ports", [])
    output["spec"].update(wish)
    return output


def _reservation_pods() -> st.SearchStrategy[Fields]:
    """Return pods that hold a GPU for others, of which some are forged."""
    held = st.tuples(
        st.sampled_from(["device", "other"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["kai-resource-reservation", "kai-resource-reservation", "default"]),
        st.sampled_from(
            [*(("", "Running"),) * 2, ("2026-01-05T07:59:00Z", "Running"), ("", "Failed")]
        ),
    )
    return held.map(
        lambda it: pod(
            f"holds-{it[0]}",
            node=it[1],
            labels={"app": "kai-resource-reservation", "runai-gpu-group": it[0]},
            meta={"namespace": "kai-resource-reservation", "deletionTimestamp": it[3][0]},
            phase=it[3][1],
            schedulerName="x",
            serviceAccountName=it[2],
        )
    )


def _labels(draw: st.DrawFn) -> Fields:
    labels = {
        "app": draw(st.sampled_from("abc")),
        _INDEX: draw(st.sampled_from(["", "", "0", "1"])),
        "jobset.sigs.k8s.io/restart-attempt": draw(st.sampled_from(["", "", "1"])),
        "kai.scheduler/task-priority": draw(st.sampled_from(["", "", "5"])),
        "jobset.sigs.k8s.io/replicatedjob-name": draw(st.sampled_from(["", "n"])),
        "runai-gpu-group": draw(st.sampled_from(["", "device", "unknown-0"])),
        "runai-gpu-group/other": draw(st.sampled_from(["", "", "other"])),
        "kai.scheduler/queue": draw(st.sampled_from(["", "r"])),
    }
    return {name: value for name, value in labels.items() if value}


def _meta(draw: st.DrawFn, name: str) -> Fields:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "w", "controller": True}
    going = draw(st.one_of(st.just(""), st.just(""), _times(), st.just("never")))
    return {
        "uid": name + draw(st.sampled_from(["", "", "-again"])),
        "creationTimestamp": draw(_times()),
        "ownerReferences": draw(st.sampled_from([[job], [job], []])),
        "namespace": draw(st.sampled_from(["ns", "ns", "ns", "other"])),
        **({"deletionTimestamp": going} if going else {}),
        "deletionGracePeriodSeconds": draw(st.sampled_from([0, 30, 3600, 2**31 - 1, 2**63 - 1])),
    }
