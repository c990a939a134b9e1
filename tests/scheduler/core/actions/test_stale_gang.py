"""Which PodGroups are stale and evicted: the action stalegangeviction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.actions.stale_gang import is_stale, next_stale_at
from scheduler.core.model.podgroup import podsets_of
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Eviction, Plan
from scheduler.core.model.snapshot import DisruptionBudgets, Snapshot
from scheduler.core.plan import PlanLimits, plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.scheduler_names import Action

POLICIES = build_policies(PolicySelection())
ONE, EIGHT = signature(gpu=1), signature(gpu=8)


def cluster(*queues: SnapshotQueue) -> Builder:
    return Builder([SnapshotNode(gpu=8)], queues or (SnapshotQueue("a", quota=8),))


def short(builder: Builder, count: int = 2, *, waiting: int = 0, **more: Any) -> Builder:
    """Add a PodGroup with so many pods that needs one more; it is stale unless *more* says so."""
    builder.running_podgroup([0] * count, ONE, minimum=count + 1, **{"stale_at": 0, **more})
    if waiting:
        podgroup = builder.podgroups.pop()
        (podset,) = podsets_of(podgroup.tree)
        pods = builder.waiting_pods(waiting, ONE)
        builder.podgroups.append(replace(podgroup, tree=replace(podset, pending=pods)))
    return builder


def jobset(**more: Any) -> Builder:
    """Return a JobSet of two PodGroups, one of which is stale."""
    builder = cluster()
    builder.running_podgroup([0], ONE, workload="j", **more)
    return short(builder, workload="j")


def claimed() -> Builder:
    """Return a stale PodGroup of a queue over its quota, and its reclaimer."""
    builder = short(cluster(SnapshotQueue("a"), SnapshotQueue("b", quota=8)), 8, queue="a")
    builder.uniform_podgroup(1, EIGHT, queue="b")
    return builder


def described(answer: Plan) -> str:
    """Return what is evicted: PodGroups and pods, and for which PodGroup."""
    return " ".join(f"{it.podgroups}:{len(it.pods)}:{it.preemptor}" for it in answer.evictions)


GOES = f"(0,):2:{NONE}"

PLANS: list[Case[Builder, str]] = [
    Case("all that it has is evicted, for no PodGroup", short(cluster()), GOES),
    Case("not before its time", short(cluster(), stale_at=1), ""),
    Case("nor ever, if it has none", short(cluster(), stale_at=None), ""),
    Case("a non-preemptible one is evicted as well", short(cluster(), is_preemptible=False), GOES),
    Case("one that gets what it lacks keeps running", short(cluster(), waiting=1), ""),
    Case(
        "one that finds no place for it is evicted",
        short(cluster(), 8, waiting=1),
        f"(0,):8:{NONE}",
    ),
    Case("a JobSet goes whole", jobset(), f"(0, 1):3:{NONE}"),
    Case("but not if it comes to its end", jobset(non_evictable_reason="ends"), ""),
    Case("one that has lost all is not evicted again", claimed(), "(0,):8:1"),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_which_podgroups_are_evicted(case: Case[Builder, str]) -> None:
    snapshot = case.given.snapshot()

    answer = plan(snapshot, POLICIES)

    assert described(answer) == case.want
    assert list(plan_violations(snapshot, answer)) == []


def test_a_podgroup_without_a_queue_is_left_alone() -> None:
    snapshot = short(cluster()).snapshot()
    podgroups = tuple(replace(podgroup, queue=NONE) for podgroup in snapshot.podgroups)

    assert described(plan(replace(snapshot, podgroups=podgroups), POLICIES)) == ""


def test_the_limit_of_evicted_gpus_does_not_hold_stale_gangs() -> None:
    """It is about reclaiming and preempting too much by mistake."""
    snapshot = short(short(cluster())).snapshot()

    answer = plan(snapshot, POLICIES, PlanLimits(evictable_gpus=0))

    assert described(answer) == f"{GOES} (1,):2:{NONE}"


def test_when_the_next_grace_ends() -> None:
    builder = short(short(short(cluster(), stale_at=7), stale_at=5), stale_at=None)
    snapshot = builder.snapshot()

    at = [next_stale_at(replace(snapshot, now=now)) for now in (4, 5, 7)]

    assert at == [5, 7, None]


def test_it_is_asked_for_by_its_name() -> None:
    """Without the action no pod is evicted for no PodGroup."""
    snapshot = short(cluster()).snapshot()

    off = build_policies(PolicySelection(actions={"stalegangeviction": False}))

    assert is_stale(snapshot, 0)
    assert described(plan(snapshot, off)) == ""


Evictions = Callable[[Eviction], Eviction]

BROKEN: list[Case[tuple[Builder, Evictions], str]] = [
    Case(
        "one that is not stale",
        (short(cluster(), stale_at=1), lambda it: it),
        "unit-0 is evicted for no PodGroup",
    ),
    Case(
        "in part",
        (short(cluster()), lambda it: replace(it, is_whole=False)),
        "unit-0 is evicted for no PodGroup",
    ),
    Case(
        "one with succeeded pods",
        (short(cluster(), non_evictable_reason="x"), lambda it: it),
        "may not lose",
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_broken_is_reported(case: Case[tuple[Builder, Evictions], str]) -> None:
    """Without a reclaimer only stale PodGroups are evicted, whole."""
    builder, change = case.given
    snapshot: Snapshot = builder.snapshot()
    plan_result = plan(snapshot, replace(POLICIES, actions=()))
    one = Eviction((0,), (0, 1), is_whole=True, action=Action.STALE_GANG_EVICTION, preemptor=NONE)

    found = list(plan_violations(snapshot, replace(plan_result, evictions=(change(one),))))

    assert any(case.want in it for it in found)


def test_a_budget_does_not_protect_a_stale_podgroup() -> None:
    """It is of no use as it is."""
    snapshot = short(cluster()).snapshot(
        budgets=DisruptionBudgets(("ns/b",), (0,), ((0,),), (0, 0))
    )
    answer = plan(snapshot, POLICIES)
    assert described(answer) == GOES
    assert list(plan_violations(snapshot, answer)) == []
