"""What must hold of any cluster: nothing raises, and the order of objects does not matter."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.snapshot.cluster_state import encode
from scheduler.state.snapshot.encoded_snapshot import difference
from tests.support.size import examples
from tests.support.state.objects import (
    JOBSET,
    NOW,
    cluster_cache,
    encode_objects,
    group,
    jobset_pod,
    make_object,
    node,
    pod,
    queue,
)

_ANTICIPATED = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1, "requests": {"cpu": "1"}}
_RESERVED = {"l-replica-0": {"nodes": {"a": 1}, "cause": "anticipated"}}
_ANNOTATIONS = {
    "trainer-kai.dev/anticipated": json.dumps({"later": [_ANTICIPATED]}),
    "trainer-kai.dev/reserved": json.dumps(_RESERVED),
}
_SUBS = [{"name": "n-replica-0", "minMember": 2}, {"name": "l-replica-0", "minMember": 1}]
_ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}
_OBJECTS = [
    queue(),
    queue("r", parentQueue="top"),
    queue("top"),
    queue("lost", parentQueue="x"),
    node("a", labels={"zone": "x"}, spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    node("b", labels={"zone": "y"}),
    node("wrong", has={"cpu": "many"}),
    make_object("PriorityClass", "build", value=100),
    group("g", meta={"annotations": _ANNOTATIONS, "ownerReferences": [JOBSET]}, subGroups=_SUBS),
    group("h", queue="r", priorityClassName="build"),
    jobset_pod("n0", "g", node="a"),
    jobset_pod("n1", "g"),
    pod("h0", "h", nodeSelector={"zone": "y"}, labels={"app": "a"}),
    pod("h1", "h", "x"),
    pod("alone", affinity=_ANTI_AFFINITY, tolerations=[{"operator": "Exists"}]),
    pod("none", "missing"),
    pod("shares", node="a", annotations={"gpu-fraction": "0.5"}),
    pod("foreign", node="b", schedulerName="x", affinity=_ANTI_AFFINITY),
]
_AFFINITY = encode(cluster_cache(*_OBJECTS), StateOptions(now=NOW))


@settings(max_examples=examples(10))
@given(st.permutations(_OBJECTS))
def test_the_order_of_objects_does_not_matter(objects: list[dict[str, Any]]) -> None:
    """Rows and encoding may differ; the dump is the same."""
    assert difference(encode(cluster_cache(*objects), StateOptions(now=NOW)), _AFFINITY) is None


def test_uids_may_be_missing() -> None:
    """Then names decide the order."""
    pods = [pod(name, meta={"uid": ""}) for name in "cab"]

    one, other = (
        encode(cluster_cache(*some), StateOptions(now=NOW)) for some in (pods, pods[::-1])
    )

    assert difference(one, other) is None
    assert [key.name for key in one.podgroup_keys] == ["pg-a-", "pg-b-", "pg-c-"]


def test_an_empty_cluster() -> None:
    """It has a snapshot as well."""
    snapshot = encode(Cluster(), StateOptions(now=NOW)).snapshot

    assert (snapshot.podgroups, snapshot.total, snapshot.now) == ((), (0, 0, 0), NOW)


_TEXT = st.sampled_from(
    [
        "",
        "x",
        "0",
        "-1",
        "1",
        "1e9",
        "99999999999999999999",
        "NaN",
        "{}",
        "[]",
        '{"later":[{}]}',
        "\u0661",
    ]
) | st.text(max_size=8)
_READ = [
    "pod-group-name",
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
    "trainer-kai.dev/anticipated",
    "trainer-kai.dev/reserved",
    "kai.scheduler/subgroup-name",
    "kai.scheduler/task-priority",
    "kai.scheduler/queue",
    "kai.scheduler/preemptibility",
    "priorityClassName",
    "jobset.sigs.k8s.io/restart-attempt",
    "jobset.sigs.k8s.io/job-index",
    "runai-gpu-group",
    "nvidia.com/gpu.memory",
    "zone",
    "app",
]
_TEXTS = st.dictionaries(st.sampled_from(_READ), _TEXT, max_size=4)
_AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "x"]),
    _TEXT | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    max_size=3,
)
_PLACES = st.sampled_from(["", "a", "b", "gone"])
_TIMES = st.sampled_from(["", "x", "2026-01-05T07:00:00Z", "9999-12-31T23:59:59-23:59"])
_NUMBERS = st.none() | st.integers(-3, 10**12)


@st.composite
def _pods(draw: st.DrawFn, name: str) -> dict[str, Any]:
    meta = {
        "annotations": draw(_TEXTS),
        "labels": draw(_TEXTS),
        "creationTimestamp": draw(_TIMES),
        "deletionTimestamp": draw(_TIMES),
    }
    expression = {"key": "zone", "operator": draw(_TEXT), "values": [draw(_TEXT)]}
    required = {
        "nodeSelectorTerms": [{"matchExpressions": [expression], "matchFields": [expression]}]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    made_pod = pod(
        name,
        node=draw(_PLACES),
        meta=meta,
        asks=draw(_AMOUNTS),
        phase=draw(_TEXT),
        affinity=affinity,
    )
    made_pod["spec"]["overhead"] = draw(_AMOUNTS)
    made_pod["status"]["nominatedNodeName"] = draw(_PLACES)
    return made_pod


@st.composite
def _groups(draw: st.DrawFn, name: str) -> dict[str, Any]:
    subs = [
        {"name": draw(_TEXT), "parent": draw(_TEXT), "minMember": draw(_NUMBERS)}
        for _ in range(draw(st.integers(0, 3)))
    ]
    spec = {"queue": draw(_TEXT), "minMember": draw(_NUMBERS), "minSubGroup": draw(_NUMBERS)}
    owners = draw(st.sampled_from([[], [JOBSET]]))
    meta = {"annotations": draw(_TEXTS), "ownerReferences": owners}
    return group(name, meta=meta, subGroups=subs, **spec)


@st.composite
def _clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    share = {"quota": draw(st.sampled_from([-1, 0, 1e300, -5, 0.1])), "limit": 10**40}
    bounds = {"gpu": share, "cpu": share, "memory": share}
    parents = _TEXT.filter(lambda name: name != "q")  # a child would make "q" an inner queue
    return [
        draw(_groups("x")),
        draw(_groups("1")),
        *(draw(_pods(name)) for name in "pqr"),
        node("a", has=draw(_AMOUNTS), labels=draw(_TEXTS)),
        node("b"),
        queue("x", resources=bounds, parentQueue=draw(parents)),
        queue("1", parentQueue=draw(parents)),
    ]


@settings(max_examples=examples(30))
@given(_clusters())
def test_garbage_does_not_change_other_podgroups(objects: list[dict[str, Any]]) -> None:
    """Whatever readable objects contain, the PodGroup beside them is as it was."""
    sound = [queue(), group("sound"), pod("s", "sound", node="b"), pod("t", "sound")]

    found = encode(cluster_cache(*sound, *objects), StateOptions(now=NOW, default_queue="x"))

    podgroup = next(
        podgroup for podgroup in found.snapshot.podgroups if podgroup.name == "ns/sound"
    )
    assert (podgroup.prefilter_failure, found.snapshot.queues.names[podgroup.queue]) == (None, "q")
    row = found.snapshot.queues.names.index("q")
    allocated, requested = found.snapshot.queues.allocated, found.snapshot.queues.requested
    assert (allocated[row, 2], requested[row, 2]) == (1000, 2000)


def test_podgroups_are_named_after_their_owners() -> None:
    """In messages a TrainJob and a standalone pod have no uid; other PodGroups keep their names."""
    uid = "6f1a4c7e-0000-4000-8000-000000000001"
    names = [f"pg-job-{uid}", f"pg-stages-{uid}-launcher", "pg-by-hand"]
    standalone = pod("alone", meta={"uid": uid})
    found = encode_objects(
        *map(group, names), *(pod(f"p-{name}", name) for name in names), standalone
    )
    called = {it.name for it in found.snapshot.podgroups}
    assert called == {"ns/job", "ns/stages", "ns/pg-by-hand", "ns/alone"}
