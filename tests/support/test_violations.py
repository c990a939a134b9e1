"""What must hold of every plan is found where it does not: plans broken by hand."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from scheduler.core.decision import Action, Admission, Eviction, Placing, Plan, Reservation
from scheduler.core.model import (
    NONE,
    UNBOUND,
    Budgets,
    Cause,
    Going,
    Group,
    Leaf,
    Slot,
    Snapshot,
)
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

GANG, FIXED, GROUPS, LATER, SLOTS = range(5)
ONE: Final = shape(gpu=1)
NODES: Final = [Node(gpu=2), Node(gpu=2, used_gpu=1, releasing_gpu=1), Node(gpu=1, used_gpu=3)]


def snapshot(**queue: Any) -> Snapshot:
    """Return five units of two pods each, of one GPU; the last one has slots for both."""
    build = Builder(nodes=NODES, queues=[Queue("all", **{"quota": UNBOUND, **queue})])
    build.gang(2, ONE)
    build.gang(2, ONE, is_preemptible=False)
    one, two = Leaf("a", 1, build.pods(1, ONE)), Leaf("b", 1, build.pods(1, ONE))
    build.unit(Group("all", 1, (one, two)))
    build.unit(Leaf("a", 3, build.pods(2, ONE), later=1, later_shape=0))
    slots = (Slot(2, 0, Cause.ANTICIPATED), Slot(2, 0, Cause.ANTICIPATED))
    build.unit(Leaf("a", 1, build.pods(2, ONE), slots=slots, later_shape=0))
    return build.snapshot()


def plan(*decisions: Admission) -> Plan:
    """Return a plan that says nothing else."""
    return Plan(decisions, (), np.zeros((1, 3), dtype=np.int64))


def binds(unit: int, *nodes: int, first: int = 0) -> Admission:
    """Bind the pods of a unit, from the first one on, to nodes."""
    pods = range(2 * unit + first, 2 * unit + 2)
    return Admission(unit, tuple(map(Placing, pods, nodes)))


def waits(unit: int, *nodes: int) -> Admission:
    """Nominate nodes for the pods of a unit."""
    return replace(binds(unit), nominations=binds(unit, *nodes).binds)


def holds(admission: Admission, *nodes: int) -> Admission:
    """Reserve as well."""
    held = tuple(Reservation("a", node, 1, Cause.ANTICIPATED) for node in nodes)
    return replace(admission, reservations=held)


ROOM: Final = "node node-{} has no room for all that is placed there"
IDLE: Final = "more is bound to node node-{} than is idle there"

# decisions -> what they break
BROKEN: list[Case[tuple[Admission, ...], list[str]]] = [
    Case("nothing", (), []),
    Case("a gang that fits", (binds(GANG, 0, 0),), []),
    Case(
        "a pod twice",
        (binds(GANG, 0, 0), binds(GANG, 1)),
        ["pod 0 of unit-0 is placed 2 times", IDLE.format(1)],
    ),
    Case(
        "more than there is",
        (binds(GANG, 0, 0), binds(FIXED, 0, 0)),
        [ROOM.format(0), IDLE.format(0)],
    ),
    Case("what is not idle yet", (binds(GANG, 0, 1),), [IDLE.format(1)]),
    Case("who waits needs nothing idle", (waits(GANG, 0, 1),), []),
    Case("too many wait", (waits(GANG, 1, 1),), [ROOM.format(1)]),
    Case(
        "an overcommitted node gets no worse", (binds(GROUPS, 2),), [ROOM.format(2), IDLE.format(2)]
    ),
    Case("who takes its slots adds nothing", (binds(SLOTS, 2, 2),), []),
    Case("half a gang", (binds(GANG, 0),), ["unit-0 is bound in part"]),
    Case(
        "half of it waits",
        (replace(waits(GANG, 0), binds=(Placing(1, 0),)),),
        ["unit-0 is bound in part"],
    ),
    Case("one after the other is whole", (binds(GANG, 0), binds(GANG, 0, first=1)), []),
    Case("one of two groups is enough", (binds(GROUPS, 0),), []),
    Case("a later pod is missing", (binds(LATER, 0, 0),), ["unit-3 is bound in part"]),
    Case("a later pod has a slot", (holds(binds(LATER, 0, 0), 1),), []),
    Case("a slot that has no room", (holds(binds(LATER, 0, 0), 0),), [ROOM.format(0)]),
    Case("slots alone are not torn", (holds(Admission(LATER), 0),), []),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_broken_is_told(case: Case[tuple[Admission, ...], list[str]]) -> None:
    """Nobody twice, no overcommitment, no gang in part."""
    assert list(violations(snapshot(), plan(*case.given))) == case.want


def test_a_pod_that_does_not_wait_is_told() -> None:
    """It is there already, or gated, or not of the unit's leaves."""
    given = snapshot()
    units = (replace(given.units[0], tree=Leaf("default", 0)), *given.units[1:])
    told = list(violations(replace(given, units=units), plan(binds(GANG, 0, 0))))
    assert told == ["pod 0 of unit-0 does not wait", "pod 1 of unit-0 does not wait"]


LIMIT: Final = "queue all has more GPU than its limit"
QUOTA: Final = "queue all has more GPU that is fixed than its quota"

# what the queue has, decisions -> what they break
BOUNDS: list[Case[tuple[dict[str, int], tuple[Admission, ...]], list[str]]] = [
    Case("up to the limit", ({"limit": 2}, (binds(GANG, 0, 0),)), []),
    Case("past the limit", ({"limit": 1}, (binds(GANG, 0, 0),)), [LIMIT]),
    Case(
        "past it with what is there", ({"limit": 2, "allocated": 1}, (binds(GANG, 0, 0),)), [LIMIT]
    ),
    Case("who waits counts", ({"limit": 1}, (waits(GANG, 0, 0),)), [LIMIT]),
    Case("who was above stays there", ({"limit": 1, "allocated": 9}, ()), []),
    Case("reservations count", ({"limit": 2}, (holds(binds(LATER, 0, 0), 1),)), [LIMIT]),
    Case("slots are given up", ({"limit": 2, "allocated": 2}, (binds(SLOTS, 2, 2),)), []),
    Case("up to the quota", ({"quota": 2}, (binds(FIXED, 0, 0),)), []),
    Case("past the quota", ({"quota": 1}, (binds(FIXED, 0, 0),)), [QUOTA]),
    Case(
        "past it with what is there for good",
        ({"quota": 2, "fixed": 1}, (binds(FIXED, 0, 0),)),
        [QUOTA],
    ),
    Case("past the quota, but preemptible", ({"quota": 1}, (binds(GANG, 0, 0),)), []),
]


@pytest.mark.parametrize("case", BOUNDS, ids=ids)
def test_bounds(case: Case[tuple[dict[str, int], tuple[Admission, ...]], list[str]]) -> None:
    """No queue passes a limit, and what cannot be preempted no quota."""
    queue, decisions = case.given
    assert list(violations(snapshot(**queue), plan(*decisions))) == case.want


def test_a_parent_has_bounds_too() -> None:
    """What a team gets, its department gets."""
    queues = [Queue("department", limit=1, quota=UNBOUND), Queue("team", "department")]
    build = Builder(nodes=NODES, queues=queues)
    build.gang(2, ONE)
    told = list(violations(build.snapshot(), plan(binds(GANG, 0, 0))))
    assert told == ["queue department has more GPU than its limit"]


def test_what_goes_is_on_nodes_until_it_is_gone() -> None:
    """Nothing is bound beside it past a limit; who waits is not there yet."""
    build = Builder(nodes=NODES, queues=[Queue("all", limit=2, quota=UNBOUND)])
    build.going.append(Going(0, 1, (0, 0, 1000)))
    build.gang(2, ONE)
    found = build.snapshot()
    told = "queue all has more GPU on nodes than its limit"
    assert list(violations(found, plan(binds(GANG, 0, 0)))) == [told]
    waits = Admission(GANG, nominations=(Placing(0, 0), Placing(1, 0)))
    assert list(violations(found, plan(waits))) == []


def crowded() -> Snapshot:
    """Return who waits, and who run: one whole, one with a pod on top, one of two children."""
    build = Builder(nodes=[Node(gpu=9)], queues=[Queue("all", quota=UNBOUND)])
    build.gang(1, ONE)
    build.runs([0, 0], ONE)
    build.runs([0, 0], ONE, minimum=1)
    row = build.shape(ONE)
    for _ in range(4):
        build.lying(0, row)
    first, second = Leaf("a", 2, there=2, pods=(5, 6)), Leaf("b", 2, there=2, pods=(7, 8))
    build.unit(Group("all", 1, (first, second)), is_kept=True)
    return build.snapshot()


def evicts(unit: int, *pods: int, is_whole: bool = False) -> Eviction:
    """Let a unit lose pods for who waits."""
    return Eviction((unit,), pods, is_whole, Action.RECLAIM, 0)


NEEDED: Final = "unit-{} loses what it needs"

# who goes -> what that breaks
TAKEN: list[Case[tuple[Eviction, ...], list[str]]] = [
    Case("all of a unit", (evicts(1, 1, 2, is_whole=True),), []),
    Case("a part of what it needs", (evicts(1, 2),), [NEEDED.format(1)]),
    Case("what is on top", (evicts(2, 4),), []),
    Case("more than that", (evicts(2, 4), evicts(2, 3)), [NEEDED.format(2)]),
    Case("what is on top, and then all", (evicts(2, 4), evicts(2, 3, is_whole=True)), []),
    Case("a child that is not needed", (evicts(3, 7, 8),), []),
    Case("a part of it", (evicts(3, 8),), [NEEDED.format(3)]),
    Case("both children", (evicts(3, 7, 8), evicts(3, 5, 6)), [NEEDED.format(3)]),
]


@pytest.mark.parametrize("case", TAKEN, ids=ids)
def test_what_is_taken(case: Case[tuple[Eviction, ...], list[str]]) -> None:
    """All of a unit, or what it does not need."""
    given = Admission(0, nominations=(Placing(0, 0),))
    made = replace(plan(given), evictions=case.given)
    assert list(violations(crowded(), made)) == case.want


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ((), ["unit-1 is evicted for nobody"]),
        ((Admission(0, binds=(Placing(0, 0),)),), ["unit-1 is evicted for nobody"]),
        ((Admission(0, nominations=(Placing(0, 0),)),), []),
    ],
    ids=["nobody", "who need not wait", "who waits for it"],
)
def test_for_whom_it_is_taken(given: tuple[Admission, ...], want: list[str]) -> None:
    """For who is given something that is to be released."""
    made = replace(plan(*given), evictions=(evicts(1, 1, 2, is_whole=True),))
    assert list(violations(crowded(), made)) == want


@pytest.mark.parametrize(
    ("action", "named", "want"),
    [
        (Action.RECLAIM, (0,), []),
        (Action.RECLAIM, (), ["2 pods of ns/b go, not 1"]),
        (Action.PREEMPT, (0,), ["unit-1 goes for its own queue, despite a budget"]),
    ],
    ids=["for what is lent", "unnamed", "in its own queue"],
)
def test_a_budget_is_passed_by_name(
    action: Action, named: tuple[int, ...], want: list[str]
) -> None:
    """And only where a queue takes back what it lent."""
    budgets = Budgets(("ns/b",), (1,), ((0,),), (NONE, 0, 0, *[NONE] * 6))
    one = replace(evicts(1, 1, 2, is_whole=True), action=action, budgets=named)
    made = replace(plan(Admission(0, nominations=(Placing(0, 0),))), evictions=(one,))
    assert list(violations(replace(crowded(), budgets=budgets), made)) == want


def test_who_cannot_give_back_borrows_no_more() -> None:
    """What is above the quota, and cannot be evicted, is told; what moves is not counted."""
    for is_moving in (False, True):
        build = Builder(nodes=[Node(gpu=9)], queues=[Queue("all", quota=1)])
        build.gang(1, ONE)
        build.runs([0, 0], ONE, stays="x", is_moving=is_moving)
        told = [] if is_moving else ["queue all borrows more GPU"]
        assert list(violations(build.snapshot(), plan(binds(0, 0)))) == told


def test_what_is_partly_done_does_not_move() -> None:
    """But it may go for another unit."""
    found = crowded()
    units = [replace(it, is_partly_done=row == 1) for row, it in enumerate(found.units)]
    given = replace(found, units=tuple(units))
    one = evicts(1, 1, 2, is_whole=True)
    made = replace(plan(Admission(0, nominations=(Placing(0, 0),))), evictions=(one,))
    assert list(violations(given, made)) == []
    moved = replace(made, evictions=(replace(one, action=Action.CONSOLIDATION),))
    assert "unit-1 may not lose anything" in violations(given, moved)
