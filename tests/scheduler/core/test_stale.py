"""Who is evicted because it is short for too long: the action stalegangeviction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.decision import Action, Eviction, Plan
from scheduler.core.model import NONE, Budgets, Snapshot, leaves_of
from scheduler.core.plan import Limits, plan
from scheduler.core.stale import is_stale
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

POLICIES = choose(Choice())
ONE, EIGHT = shape(gpu=1), shape(gpu=8)


def cluster(*queues: Queue) -> Builder:
    """Return a node and queues."""
    return Builder([Node(gpu=8)], queues or (Queue("a", quota=8),))


def short(builder: Builder, count: int = 2, *, waiting: int = 0, **more: Any) -> Builder:
    """Add a unit with so many pods, of which it needs one more; it is stale unless it says so."""
    builder.runs([0] * count, ONE, minimum=count + 1, **{"stale_at": 0, **more})
    if waiting:
        unit = builder.units.pop()
        (leaf,) = leaves_of(unit.tree)
        pods = builder.pods(waiting, ONE)
        builder.units.append(replace(unit, tree=replace(leaf, waiting=pods)))
    return builder


def jobset(**more: Any) -> Builder:
    """Return a JobSet of two units, one of which is stale."""
    builder = cluster()
    builder.runs([0], ONE, bundle="j", **more)
    return short(builder, bundle="j")


def claimed() -> Builder:
    """Return a short unit of a queue that has borrowed, and who takes the room back."""
    builder = short(cluster(Queue("a"), Queue("b", quota=8)), 8, queue="a")
    builder.gang(1, EIGHT, queue="b")
    return builder


def told(answer: Plan) -> str:
    """Return who goes: units and pods, and for whom."""
    return " ".join(f"{it.units}:{len(it.pods)}:{it.claimant}" for it in answer.evictions)


GOES = f"(0,):2:{NONE}"

PLANS: list[Case[Builder, str]] = [
    Case("all that it has goes, for nobody", short(cluster()), GOES),
    Case("not before its time", short(cluster(), stale_at=1), ""),
    Case("nor ever, if it has none", short(cluster(), stale_at=None), ""),
    Case("who may not be preempted goes as well", short(cluster(), is_preemptible=False), GOES),
    Case("who gets what it lacks stays", short(cluster(), waiting=1), ""),
    Case("who finds no room for it goes", short(cluster(), 8, waiting=1), f"(0,):8:{NONE}"),
    Case("a JobSet goes whole", jobset(), f"(0, 1):3:{NONE}"),
    Case("but not if it comes to its end", jobset(stays="ends"), ""),
    Case("who has lost all is not evicted again", claimed(), "(0,):8:1"),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_who_goes(case: Case[Builder, str]) -> None:
    """Whoever is stale by now, with all it has."""
    snapshot = case.given.snapshot()

    answer = plan(snapshot, POLICIES)

    assert told(answer) == case.want
    assert list(violations(snapshot, answer)) == []


def test_a_unit_without_a_queue_is_left_alone() -> None:
    """Nobody knows whose it is."""
    snapshot = short(cluster()).snapshot()
    units = tuple(replace(unit, queue=NONE) for unit in snapshot.units)

    assert told(plan(replace(snapshot, units=units), POLICIES)) == ""


def test_no_gpus_may_be_taken() -> None:
    """Who begins below the limit may go beyond it; then it is reached."""
    builder = short(cluster())
    snapshot = short(builder).snapshot()

    assert told(plan(snapshot, POLICIES, Limits(evictable_gpus=0))) == ""
    assert told(plan(snapshot, POLICIES, Limits(evictable_gpus=1))) == GOES
    assert told(plan(snapshot, POLICIES, Limits(evictable_gpus=2001))) == f"{GOES} (1,):2:{NONE}"


def test_it_is_asked_for_by_its_name() -> None:
    """Without the action nobody is evicted for nobody."""
    snapshot = short(cluster()).snapshot()

    off = choose(Choice(actions={"stalegangeviction": False}))

    assert is_stale(snapshot, 0)
    assert told(plan(snapshot, off)) == ""


Evictions = Callable[[Eviction], Eviction]

BROKEN: list[Case[tuple[Builder, Evictions], str]] = [
    Case(
        "who is not stale",
        (short(cluster(), stale_at=1), lambda it: it),
        "unit-0 is evicted for nobody",
    ),
    Case(
        "in part",
        (short(cluster()), lambda it: replace(it, is_whole=False)),
        "unit-0 is evicted for nobody",
    ),
    Case("who comes to its end", (short(cluster(), stays="x"), lambda it: it), "may not lose"),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_broken_is_told(case: Case[tuple[Builder, Evictions], str]) -> None:
    """For nobody only those go who are stale, whole."""
    builder, change = case.given
    snapshot: Snapshot = builder.snapshot()
    made = plan(snapshot, replace(POLICIES, actions=()))
    one = Eviction((0,), (0, 1), is_whole=True, action=Action.STALE_GANG_EVICTION, claimant=NONE)

    found = list(violations(snapshot, replace(made, evictions=(change(one),))))

    assert any(case.want in it for it in found)


def test_a_budget_does_not_hold_who_is_stale() -> None:
    """It is of no use to anybody as it is."""
    snapshot = short(cluster()).snapshot(budgets=Budgets(("ns/b",), (0,), ((0,),), (0, 0)))
    answer = plan(snapshot, POLICIES)
    assert told(answer) == GOES
    assert list(violations(snapshot, answer)) == []
