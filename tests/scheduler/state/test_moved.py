"""Units that were evicted to make room, and have their places elsewhere."""

import json
from typing import Any

import pytest

from scheduler.core.model import NONE, Cause, Leaf, leaves_of
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.encode import Encoded, encode
from scheduler.state.orders import read_orders
from scheduler.state.reserved import SlotAt
from scheduler.state.terms import Terms
from tests.support.case import Case, ids
from tests.support.clusters import JOBSET, NOW, cluster, group, jobset_pod, made, node, pod, queue
from trainer_kai.api.meta import Key

Fields = dict[str, Any]

GOING: Fields = {"deletionTimestamp": "2026-01-05T07:59:59Z"}


def held(count: int, cause: str = "move", *, least: int = 1, meta: Fields | None = None) -> Fields:
    """Return a group that holds so many slots on the node "n"."""
    text = json.dumps({"default": {"nodes": {"n": count}, "cause": cause}})
    found = {"annotations": {"trainer-kai.dev/reserved": text}, **(meta or {})}
    return group("g", meta=found, minMember=least)


def pods(count: int, **more: Any) -> list[Fields]:
    """Return pods of the group."""
    return [pod(f"g{i}", "g", **more) for i in range(count)]


def encoded(*objects: Fields) -> Encoded:
    """Encode objects, with a queue and a node of eight GPUs."""
    return encode(cluster(node("n"), queue("q"), *objects), Terms(now=NOW))


CASES: list[Case[list[Fields], int]] = [
    Case("before its pods are gone", [held(2), *pods(2, node="n", meta=GOING)], 2),
    Case("when they are back", [held(2), *pods(2)], 2),
    Case("also those that it could spare", [held(3, least=1), *pods(3)], 3),
    Case("not for pods that there are not", [held(3, least=1), *pods(2)], 2),
    Case("but for all that it needs", [held(3, least=3), *pods(1)], 3),
    Case("until they are there", [held(2), *pods(2, node="n")], 0),
    Case("not for any other cause", [held(2, "repair"), *pods(2)], 0),
    Case("nor if no pods are left", [held(2)], 0),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_its_slots_are_held(case: Case[list[Fields], int]) -> None:
    """Though nothing of it is there."""
    snapshot = encoded(*case.given).snapshot

    slots = [
        slot for unit in snapshot.units for leaf in leaves_of(unit.tree) for slot in leaf.slots
    ]

    assert [slot.cause for slot in slots] == [Cause.MOVE] * case.want
    going = sum("deletionTimestamp" in it["metadata"] for it in case.given)
    there = sum(bool(it.get("spec", {}).get("nodeName")) for it in case.given)
    assert snapshot.nodes.idle[0, -1] == 1000 * (8 - case.want - there)
    assert snapshot.nodes.releasing[0, -1] == 1000 * going


def test_who_is_suspended_holds_nothing() -> None:
    """It has to ask for room again when it goes on."""
    text = json.dumps({"n-replica-0": {"nodes": {"n": 1}, "cause": "move"}})
    meta = {"ownerReferences": [JOBSET], "annotations": {"trainer-kai.dev/reserved": text}}
    subs = [{"name": "n-replica-0", "minMember": 1}]

    def idle(*, suspend: bool) -> int:
        jobset = made("JobSet", "j", {"uid": "u"}, spec={"suspend": suspend})
        owned = group("g", meta=meta, subGroups=subs)
        return int(encoded(owned, jobset, jobset_pod("a", "g", "n")).snapshot.nodes.idle[0, -1])

    assert (idle(suspend=True), idle(suspend=False)) == (8000, 7000)


def test_its_pods_come_to_its_slots() -> None:
    """Nobody else does, though he comes first."""
    first = {"creationTimestamp": "2026-01-05T07:00:00Z"}
    later = {"creationTimestamp": "2026-01-05T07:30:00Z"}
    rival = [group("r", meta=first, minMember=1), pod("r0", "r", asks={"nvidia.com/gpu": "8"})]
    found = encoded(held(2, meta=later), *pods(2), *rival)

    orders = read_orders(found, plan(found.snapshot, choose(Choice())))

    assert [it.pod.name for it in orders.binds] == ["g0", "g1"]
    assert orders.reserved == {Key("ns", "g"): ""}


def test_only_groups_hold_slots() -> None:
    """Of a pod on its own there is nothing to write them on."""
    (alone, gang) = sorted(
        encoded(group("g", minMember=1), pod("g0", "g"), pod("p")).snapshot.units,
        key=lambda unit: unit.can_hold,
    )
    assert (alone.can_hold, gang.can_hold) == (False, True)


def fragmented(*more: Fields) -> Encoded:
    """Return two nodes with one gang on each, and who needs a whole node."""
    objects = [node("m", gpu=4), node("n", gpu=4), queue("q"), *more]
    for name, at in (("a", "m"), ("b", "n")):
        objects += [group(name, minMember=1), pod(f"{name}0", name, node=at)]
    objects += [group("c", minMember=1), pod("c0", "c", asks={"nvidia.com/gpu": "4"})]
    return encode(cluster(*objects), Terms(now=NOW))


def test_what_is_to_be_done_of_a_move() -> None:
    """The slots go with the departure: they are written before it, and told as reservations."""
    found = fragmented()

    orders = read_orders(found, plan(found.snapshot, choose(Choice())))

    assert [(it.pods, it.action, it.claimant) for it in orders.departures] == [
        ((Key("ns", "b0"),), "consolidation", Key("ns", "c"))
    ]
    text = '{"default":{"nodes":{"m":1},"cause":"move"}}'
    assert orders.reserved == {Key("ns", "b"): text}
    (one,) = orders.units
    assert (one.group, one.hold) == (Key("ns", "c"), None)
    assert [it.slots for it in one.departures] == [
        ((Key("ns", "b"), (SlotAt("default", "m", Cause.MOVE),)),)
    ]
    (slot,) = orders.reservations
    assert (slot.group, slot.node, slot.number, slot.cause) == (Key("ns", "b"), "m", 1, "move")


def test_who_loses_all_holds_nothing() -> None:
    """Who is on his way to his slots may lose them, too."""
    rich = queue("rich", meta={"creationTimestamp": "2026-01-05T07:00:00Z"})
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 0}
    poor = queue("q", resources={"gpu": {**free, "quota": 0}, "cpu": free, "memory": free})
    claimant = made("PodGroup", "c", {"uid": "c"}, spec={"queue": "rich", "minMember": 1})
    going = pods(2, node="n", meta=GOING)
    objects = [node("n"), rich, poor, held(2), *going, claimant]
    objects.append(pod("c0", "c", asks={"nvidia.com/gpu": "8"}))
    found = encode(cluster(*objects), Terms(now=NOW))
    (row,) = [i for i, key in enumerate(found.units) if key.name == "g"]

    answer = plan(found.snapshot, choose(Choice()))

    assert [it.units for it in answer.evictions] == [(row,)]
    assert read_orders(found, answer).reserved == {Key("ns", "g"): ""}


@pytest.mark.parametrize(("there", "spares"), [(2, True), (1, False)])
def test_pods_are_told_apart_where_succeeded_ones_make_more_than_needed(
    *, there: int, spares: bool
) -> None:
    """One pod has succeeded, and two are needed: of two that run one can be spared."""
    done = pod("done", "g", node="n", phase="Succeeded")
    (unit,) = encoded(group("g", minMember=2), *pods(there, node="n"), done).snapshot.units
    assert bool(*[leaf.pods for leaf in leaves_of(unit.tree)]) is spares


def test_pods_are_told_apart_where_leaves_differ() -> None:
    """By leaf, so that it is known what each leaf needs anew."""
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    found = encoded(
        group("g", subGroups=subs), pod("a", "g", "x", node="n"), pod("b", "g", "y", node="n")
    )
    (unit,) = found.snapshot.units

    names = {leaf.name: [found.pods[it].name for it in leaf.pods] for leaf in leaves_of(unit.tree)}

    assert names == {"x": ["a"], "y": ["b"]}
    assert all(isinstance(leaf, Leaf) for leaf in leaves_of(unit.tree))
    assert NONE not in found.snapshot.pods.node[found.snapshot.pods.unit == 0]
