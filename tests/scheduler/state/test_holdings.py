"""Pods that come later, and the slots that are held for them (rules 6, 7 and 12)."""

import json
from typing import Any

import pytest

from scheduler.core.model import Cause
from tests.support.case import Case, ids
from tests.support.clusters import (
    JOBSET,
    bar_of,
    encoded,
    group,
    jobset_pod,
    leaf_of,
    made,
    node,
)

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
    found = encoded(node("a"), _gang(sharing={"gpu-fraction": "0.5"}), jobset_pod("n", "g"))

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
    assert [stray.group.name for stray in found.strays] == ["g"]
    assert bar_of(found, "g") is None
