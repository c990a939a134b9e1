"""Pods that come later, and the slots that are held for them (rules 6, 7 and 12)."""

import json
from typing import Any

import pytest

from scheduler.core.model import Cause, leaves_of
from scheduler.state.state import State
from scheduler.state.terms import Terms
from tests.support.case import Case, ids
from tests.support.clusters import (
    JOBSET,
    bar_of,
    cluster,
    encoded,
    group,
    jobset_pod,
    leaf_of,
    made,
    node,
    pod,
    shape_of,
    unit_of,
)
from tests.support.work import work
from trainer_kai.api.meta import Key

_SUBS = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 2}]


def _gang(held: Any = None, *, count: int = 2, **later: Any) -> dict[str, Any]:
    one = {
        "subGroupPrefix": "l-replica-",
        "replicas": 1,
        "count": count,
        "requests": {"nvidia.com/gpu": "2"},
    }
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [{**one, **later}]})}
    if held is not None:
        annotations["trainer-kai.dev/reserved"] = (
            held if isinstance(held, str) else json.dumps(held)
        )
    return group(
        "g", meta={"annotations": annotations, "ownerReferences": [JOBSET]}, subGroups=_SUBS
    )


def _held(cause: str = "anticipated", **nodes: int) -> dict[str, Any]:
    return {"l-replica-0": {"nodes": nodes, "cause": cause}}


_THERE = jobset_pod("n", "g", node="a")
_GOING = {"deletionTimestamp": "2026-01-05T07:59:30Z"}

# pods of the later leaf → how many are still to come
LATER = [
    Case("none", [], 2),
    Case("one waits", [{}], 1),
    Case("one is there", [{"node": "a"}], 1),
    Case("one is gated", [{"schedulingGates": [{"name": "x"}]}], 1),
    Case("one succeeded", [{"phase": "Succeeded"}], 1),
    Case("one failed", [{"phase": "Failed"}], 2),
    Case("one is going", [{"node": "a", "meta": {**_GOING}}], 2),
    Case("more than were foretold", [{}, {}, {}], 0),
]


@pytest.mark.parametrize("case", LATER, ids=ids)
def test_later(case: Case[list[dict[str, Any]], int]) -> None:
    """What has pods by now is left out."""
    owner = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "controller": True}]}
    pods = [
        jobset_pod(f"l{i}", "g", "l", **{**said, "meta": {**owner, **said.get("meta", {})}})
        for i, said in enumerate(case.given)
    ]

    found = encoded(node("a"), _gang(), _THERE, *pods)

    leaf = leaf_of(found, "g", "l-replica-0")
    assert leaf.later == case.want
    if leaf.later:
        assert found.snapshot.shapes[leaf.later_shape].counted[2] == 2000
    assert leaf_of(found, "g", "n-replica-0").later == 0


def test_what_comes_later_is_asked_for() -> None:
    """The whole unit is to fit."""
    assert encoded(node("a"), _gang(), _THERE).snapshot.queues.requested[0, 2] == 5000


def test_what_comes_after_gated_pods_is_not_asked_for() -> None:
    """Nothing of the unit waits yet."""
    gated = jobset_pod("n", "g", schedulingGates=[{"name": "x"}])

    assert encoded(node("a"), _gang(), gated).snapshot.queues.requested[0, 2] == 0


def test_a_later_pod_that_shares_a_device_cannot_be_placed_yet() -> None:
    """It is told before the first pods run."""
    gang = _gang(sharing={"gpu-fraction": "0.5"}, requests={"cpu": "1"})
    found = encoded(node("a"), gang, jobset_pod("n", "g"))

    assert (bar_of(found, "g") or ("", ""))[0] == "NoNodeMatches"
    assert "a pod that comes later has the annotation gpu-fraction" in (bar_of(found, "g") or "")[1]


# what is held, pods of the later leaf → nodes of the slots
SLOTS = [
    Case("as it says", (_held(a=1, b=1), []), "ab"),
    Case("in order of the nodes", (_held(b=2), []), "bb"),
    Case("a pod waits for one", (_held(a=1, b=1), [{}]), "ab"),
    Case("a pod is there that took one", (_held(a=1, b=1), [{"node": "a"}]), "b"),
    Case("a pod is elsewhere", (_held(b=2), [{"node": "a"}]), "b"),
    Case("a pod succeeded", (_held(b=2), [{"phase": "Succeeded"}]), "b"),
    Case("the annotation was brought up to date", (_held(b=1), [{"node": "b"}]), "b"),
    Case("all are there", (_held(b=2), [{"node": "a"}, {"node": "b"}]), ""),
    Case("more than can come", (_held(a=3, b=1), []), "aa"),
    Case("a node that is gone", (_held(c=1, b=1), []), "b"),
    Case("less than nothing", (_held(a=-1, b=1), []), "b"),
    Case("a leaf that there is not", ({"x": {"nodes": {"a": 1}}}, []), ""),
    Case("nothing", ({}, []), ""),
]


@pytest.mark.parametrize("case", SLOTS, ids=ids)
def test_slots(case: Case[tuple[Any, list[dict[str, Any]]], str]) -> None:
    """A slot is gone from its node, and its queue has it."""
    held, pods = case.given
    more = [jobset_pod(f"l{i}", "g", "l", **said) for i, said in enumerate(pods)]
    found = encoded(node("a"), node("b"), _gang(held), _THERE, *more).snapshot
    without = encoded(node("a"), node("b"), _gang(), _THERE, *more).snapshot

    leaf = found.units[0].tree.children[1]  # type: ignore[union-attr]
    slots = "".join(found.nodes.names[slot.node] for slot in leaf.slots)  # type: ignore[union-attr]
    assert slots == case.want
    gpu = found.axes.gpus[0]
    less = (without.nodes.idle - found.nodes.idle)[:, gpu].tolist()
    assert less == [2000 * case.want.count(name) for name in "ab"]
    had = found.queues.allocated[0, 2] - without.queues.allocated[0, 2]
    assert had == 2000 * len(case.want)


def test_what_is_held_is_asked_for_once() -> None:
    """A slot, the pod that comes for it, and the one that is still to come."""
    found = encoded(node("a"), _gang(_held(a=1)), _THERE, jobset_pod("l", "g", "l"))
    full = encoded(node("a"), _gang(_held(a=2)), _THERE)

    assert found.snapshot.queues.requested[0, 2] == 1000 + 2000 + 2000
    assert full.snapshot.queues.requested[0, 2] == 1000 + 2 * 2000


def test_slots_of_what_cannot_be_preempted() -> None:
    """They stay as well."""
    fields = _gang(_held(a=1))
    fields["spec"]["preemptibility"] = "non-preemptible"

    assert encoded(node("a"), fields, _THERE).snapshot.queues.fixed[0, 2] == 3000


# the pod of the first stage → whether slots are held
BEGUN = [
    Case("it is there", {"node": "a"}, True),
    Case("it is promised a node", {"status": {"nominatedNodeName": "a"}}, True),
    Case("it waits", {}, False),
]


@pytest.mark.parametrize("case", BEGUN, ids=ids)
def test_slots_are_held_for_whoever_has_begun(case: Case[dict[str, Any], bool]) -> None:
    """And for nobody else."""
    found = encoded(node("a"), _gang(_held(a=1)), jobset_pod("n", "g", **case.given))

    assert bool(leaf_of(found, "g", "l-replica-0").slots) == case.want
    assert found.reserved == {0: json.dumps(_held(a=1))}


def test_slots_of_a_suspended_jobset_are_let_go() -> None:
    """It will ask again."""
    jobset = made("JobSet", "j", {"uid": "u"}, spec={"suspend": True})

    leaf = leaf_of(encoded(node("a"), jobset, _gang(_held(a=1)), _THERE), "g", "l-replica-0")

    assert (leaf.slots, leaf.later) == ((), 0)


def test_a_slot_for_a_pod_that_was_lost() -> None:
    """It is like those that came; there are never more than are needed."""
    held = {"n-replica-0": {"nodes": {"b": 5}, "cause": "repair"}}
    fields = _gang(held)
    fields["spec"]["subGroups"] = [{"name": "n-replica-0", "minMember": 2}]

    found = encoded(node("a"), node("b"), fields, _THERE)

    (slot,) = leaf_of(found, "g", "n-replica-0").slots
    assert (slot.node, slot.cause, found.snapshot.shapes[slot.shape].counted[2]) == (
        1,
        Cause.REPAIR,
        1000,
    )


def test_what_cannot_be_read_is_let_go() -> None:
    """It is noted; the unit is not in the way of itself."""
    found = encoded(node("a"), _gang("{"), _THERE)

    assert leaf_of(found, "g", "l-replica-0").slots == ()
    (told,) = [stray.message for stray in found.strays]
    assert told.startswith("PodGroup ns/g: metadata.annotations[trainer-kai.dev/reserved]: ")
    assert bar_of(found, "g") is None


_NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "l"}}}
_ALONE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_NEAR]}}
_TIES: dict[str, Any] = {
    "labels": {"app": "l"},
    "affinity": _ALONE,
    "hostPorts": [{"port": 22}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "l"}},
        }
    ],
}
_CLAIM = made("PersistentVolumeClaim", "c", spec={"accessModes": ["ReadWriteOnce"]})


def _in_zones() -> list[dict[str, Any]]:
    return [node(name, labels={"zone": name}) for name in ("a", "b")]


def test_who_comes_later_has_neighbours_ports_and_claims() -> None:
    """As its pods will have them."""
    found = encoded(*_in_zones(), _CLAIM, _gang(**_TIES), _THERE)

    shape = found.snapshot.shapes[leaf_of(found, "g", "l-replica-0").later_shape]
    assert len(shape.matches) == 2  # of the one who keeps apart, and of the one who spreads
    assert (len(shape.apart), shape.apart) == (1, shape.shunned)
    assert [one.counts_itself for one in shape.spread] == [True]
    assert shape.takes == shape.avoids == (0,)
    assert shape.claims == (0,)


def test_a_slot_is_a_neighbour() -> None:
    """It is as good as taken by a pod that is there: who comes near must see it (rule 6)."""
    found = encoded(*_in_zones(), _CLAIM, _gang(_held(b=1), **_TIES), _THERE)

    assert len(leaf_of(found, "g", "l-replica-0").slots) == 1
    neighbours = found.snapshot.neighbours
    assert neighbours.counts.tolist() == [[0, 1], [0, 1]]
    assert neighbours.holders.tolist() == [[0, 1]]
    assert found.snapshot.nodes.ports.tolist() == [[0], [1]]
    assert (neighbours.claim_node, neighbours.claim_users) == ((1,), (1,))


def test_a_slot_beside_a_pod_of_its_kind_is_counted_with_it() -> None:
    """Both lie on one node."""
    owner = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "controller": True}]}
    workers = [
        jobset_pod(f"l{i}", "g", "l", node="a", meta=owner, affinity=_ALONE) for i in range(2)
    ]
    wide = {"l-replica-0": {"nodes": {"a": 1}, "cause": "repair"}}
    plain = _gang(wide)
    plain["metadata"]["annotations"].pop("trainer-kai.dev/anticipated")
    plain["spec"]["subGroups"] = [_SUBS[0], {"name": "l-replica-0", "minMember": 3}]

    found = encoded(*_in_zones(), plain, _THERE, *workers)

    assert found.snapshot.neighbours.holders.tolist() == [[3, 0]]


# labels by which others may choose pods that come later
KNOWN = [
    Case("of the template", {"app": "l"}, True),
    Case("their sub-group", {"kai.scheduler/subgroup-name": "l-replica-0"}, True),
    Case("another sub-group", {"kai.scheduler/subgroup-name": "l-replica-1"}, False),
    Case("their JobSet", {"jobset.sigs.k8s.io/jobset-name": "j"}, True),
    Case("their replicatedJob", {"jobset.sigs.k8s.io/replicatedjob-name": "l"}, True),
    Case("their Job", {"jobset.sigs.k8s.io/job-index": "0"}, True),
    Case("another Job", {"jobset.sigs.k8s.io/job-index": "1"}, False),
]


@pytest.mark.parametrize("case", KNOWN, ids=ids)
def test_labels_of_pods_that_come_later(case: Case[dict[str, str], bool]) -> None:
    """Those of the template, and what is known of what JobSet will add."""
    selector = {"topologyKey": "zone", "labelSelector": {"matchLabels": case.given}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}
    jobset = made(
        "JobSet",
        "j",
        {"uid": JOBSET["uid"]},
        spec={"replicatedJobs": [{"name": "n"}, {"name": "l"}]},
    )
    asking = pod("p", affinity=apart)

    found = encoded(*_in_zones(), jobset, _gang(labels={"app": "l"}), _THERE, asking)

    shape = found.snapshot.shapes[leaf_of(found, "g", "l-replica-0").later_shape]
    assert (shape.shunned == shape_of(found, "p").apart) == case.want


_READY = {"type": "Ready", "status": "False"}
_FULL = {"type": "DiskPressure", "status": "True"}
# what is wrong with the node of a slot → whether it is still held
FAULTS = [
    Case("nothing", {}, True),
    Case("cordoned", {"spec": {"unschedulable": True}}, False),
    Case(
        "cordoned and not ready", {"spec": {"unschedulable": True}, "conditions": [_READY]}, False
    ),
    Case("not ready", {"conditions": [_READY]}, True),
    Case("under pressure", {"conditions": [_FULL]}, True),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_slots_on_nodes_that_take_no_pods(case: Case[dict[str, Any], bool]) -> None:
    """Of a node that was cordoned nobody knows that it comes back: others may find room."""
    found = encoded(node("a"), node("b", **case.given), _gang(_held(a=1, b=1)), _THERE)

    slots = leaf_of(found, "g", "l-replica-0").slots
    assert [found.snapshot.nodes.names[slot.node] for slot in slots] == ["a", "b"][: 1 + case.want]


def test_many_leaves_with_slots() -> None:
    """Work grows with their number, and not with its square: that would be sixteen times."""
    few, many = _work_with_slots(250), _work_with_slots(1000)

    assert many < 6 * few


def _work_with_slots(size: int) -> int:
    """Return what a snapshot takes after one of so many leaves lost a pod."""
    leaves = [f"l-replica-{i}" for i in range(size)]
    held = {leaf: {"nodes": {"a": 2}, "cause": "repair"} for leaf in leaves}
    meta = {"annotations": {"trainer-kai.dev/reserved": json.dumps(held)}}
    subs = [{"name": leaf, "minMember": 2} for leaf in leaves]
    pods = [pod(f"p{i}", "g", leaf, node="a") for i, leaf in enumerate(leaves)]
    objects = [node("a"), group("g", meta=meta, subGroups=subs), *pods]
    state = State(Terms(now=0))
    state.tell_all(cluster(*objects))
    state.snapshot(0)
    state.pods.tell(Key("ns", "p1"), None)
    found = []
    taken = work(lambda: found.append(state.snapshot(0)))
    assert sum(len(leaf.slots) for leaf in leaves_of(unit_of(found[0], "g").tree)) == size - 1
    return taken
