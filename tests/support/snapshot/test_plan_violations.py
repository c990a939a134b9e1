"""Violations of the invariants are found in plans that are broken by hand."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace, SubGroupSet
from scheduler.core.model.resources import NONE, UNBOUND
from scheduler.core.model.result import (
    Eviction,
    Plan,
    PodGroupAllocation,
    PodPlacement,
    Reservation,
)
from scheduler.core.model.snapshot import DisruptionBudgets, ReleasingAmount, Snapshot
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.scheduler_names import Action

PODGROUP, NON_PREEMPTIBLE, SUBGROUPS, EXPECTED, RESERVED_PLACES = range(5)
ONE: Final = signature(gpu=1)
NODES: Final = [
    SnapshotNode(gpu=2),
    SnapshotNode(gpu=2, used_gpu=1, releasing_gpu=1),
    SnapshotNode(gpu=1, used_gpu=3),
]


def snapshot(**queue: Any) -> Snapshot:
    """Return five PodGroups of two pods, of one GPU each; the last one has places reserved."""
    build = Builder(nodes=NODES, queues=[SnapshotQueue("all", **{"quota": UNBOUND, **queue})])
    build.uniform_podgroup(2, ONE)
    build.uniform_podgroup(2, ONE, is_preemptible=False)
    one, two = (
        PodSet("a", 1, build.waiting_pods(1, ONE)),
        PodSet("b", 1, build.waiting_pods(1, ONE)),
    )
    build.podgroup(SubGroupSet("all", 1, (one, two)))
    build.podgroup(PodSet("a", 3, build.waiting_pods(2, ONE), expected=1, expected_signature=0))
    reserved_places = (
        ReservedPlace(2, 0, ReservationCause.ANTICIPATED),
        ReservedPlace(2, 0, ReservationCause.ANTICIPATED),
    )
    build.podgroup(
        PodSet(
            "a",
            1,
            build.waiting_pods(2, ONE),
            reserved_places=reserved_places,
            expected_signature=0,
        )
    )
    return build.snapshot()


def plan(*decisions: PodGroupAllocation) -> Plan:
    """Return a plan that says nothing else."""
    return Plan(decisions, (), np.zeros((1, 3), dtype=np.int64))


def binds(podgroup: int, *nodes: int, first: int = 0) -> PodGroupAllocation:
    """Bind the pods of a PodGroup, from the first one on, to nodes."""
    pods = range(2 * podgroup + first, 2 * podgroup + 2)
    return PodGroupAllocation(podgroup, tuple(map(PodPlacement, pods, nodes)))


def nominates(podgroup: int, *nodes: int) -> PodGroupAllocation:
    """Nominate nodes for the pods of a PodGroup."""
    return replace(binds(podgroup), nominations=binds(podgroup, *nodes).binds)


def reserves(admission: PodGroupAllocation, *nodes: int) -> PodGroupAllocation:
    """Reserve as well."""
    held = tuple(Reservation("a", node, 1, ReservationCause.ANTICIPATED) for node in nodes)
    return replace(admission, reservations=held)


CAPACITY: Final = "node node-{} has no room for all that is placed there"
IDLE: Final = "more is bound to node node-{} than is idle there"

# decisions -> what they break
BROKEN: list[Case[tuple[PodGroupAllocation, ...], list[str]]] = [
    Case("nothing", (), []),
    Case("a gang that fits", (binds(PODGROUP, 0, 0),), []),
    Case(
        "a pod twice",
        (binds(PODGROUP, 0, 0), binds(PODGROUP, 1)),
        ["pod 0 of unit-0 is placed 2 times", IDLE.format(1)],
    ),
    Case(
        "more than there is",
        (binds(PODGROUP, 0, 0), binds(NON_PREEMPTIBLE, 0, 0)),
        [CAPACITY.format(0), IDLE.format(0)],
    ),
    Case("what is not idle yet", (binds(PODGROUP, 0, 1),), [IDLE.format(1)]),
    Case("a nominated pod needs nothing idle", (nominates(PODGROUP, 0, 1),), []),
    Case("too many wait", (nominates(PODGROUP, 1, 1),), [CAPACITY.format(1)]),
    Case(
        "an overcommitted node gets no worse",
        (binds(SUBGROUPS, 2),),
        [CAPACITY.format(2), IDLE.format(2)],
    ),
    Case("a pod on its reserved place adds nothing", (binds(RESERVED_PLACES, 2, 2),), []),
    Case("half a gang", (binds(PODGROUP, 0),), ["unit-0 is bound in part"]),
    Case(
        "half of it waits",
        (replace(nominates(PODGROUP, 0), binds=(PodPlacement(1, 0),)),),
        ["unit-0 is bound in part"],
    ),
    Case("one after the other is whole", (binds(PODGROUP, 0), binds(PODGROUP, 0, first=1)), []),
    Case("one of two groups is enough", (binds(SUBGROUPS, 0),), []),
    Case("a later pod is missing", (binds(EXPECTED, 0, 0),), ["unit-3 is bound in part"]),
    Case("a later pod has a slot", (reserves(binds(EXPECTED, 0, 0), 1),), []),
    Case("a slot that has no room", (reserves(binds(EXPECTED, 0, 0), 0),), [CAPACITY.format(0)]),
    Case("slots alone are not torn", (reserves(PodGroupAllocation(EXPECTED), 0),), []),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_a_broken_plan_is_reported(case: Case[tuple[PodGroupAllocation, ...], list[str]]) -> None:
    """No pod twice, no overcommitment, no gang in part."""
    assert list(plan_violations(snapshot(), plan(*case.given))) == case.want


def test_placing_a_pod_that_does_not_wait_is_reported() -> None:
    """It is there already, or gated, or not of its PodSets."""
    given = snapshot()
    podgroups = (replace(given.podgroups[0], tree=PodSet("default", 0)), *given.podgroups[1:])
    report = list(plan_violations(replace(given, podgroups=podgroups), plan(binds(PODGROUP, 0, 0))))
    assert report == ["pod 0 of unit-0 does not wait", "pod 1 of unit-0 does not wait"]


LIMIT: Final = "queue all has more GPU than its limit"
QUOTA: Final = "queue all has more GPU that is fixed than its quota"

# what the queue has, decisions -> what they break
BOUNDS: list[Case[tuple[dict[str, int], tuple[PodGroupAllocation, ...]], list[str]]] = [
    Case("up to the limit", ({"limit": 2}, (binds(PODGROUP, 0, 0),)), []),
    Case("past the limit", ({"limit": 1}, (binds(PODGROUP, 0, 0),)), [LIMIT]),
    Case(
        "past it with what is there",
        ({"limit": 2, "allocated": 1}, (binds(PODGROUP, 0, 0),)),
        [LIMIT],
    ),
    Case("a nominated pod counts", ({"limit": 1}, (nominates(PODGROUP, 0, 0),)), [LIMIT]),
    Case("a queue that was above its limit may stay there", ({"limit": 1, "allocated": 9}, ()), []),
    Case("reservations count", ({"limit": 2}, (reserves(binds(EXPECTED, 0, 0), 1),)), [LIMIT]),
    Case("slots are given up", ({"limit": 2, "allocated": 2}, (binds(RESERVED_PLACES, 2, 2),)), []),
    Case("up to the quota", ({"quota": 2}, (binds(NON_PREEMPTIBLE, 0, 0),)), []),
    Case("past the quota", ({"quota": 1}, (binds(NON_PREEMPTIBLE, 0, 0),)), [QUOTA]),
    Case(
        "past it with what is there for good",
        ({"quota": 2, "non_preemptible": 1}, (binds(NON_PREEMPTIBLE, 0, 0),)),
        [QUOTA],
    ),
    Case("past the quota, but preemptible", ({"quota": 1}, (binds(PODGROUP, 0, 0),)), []),
]


@pytest.mark.parametrize("case", BOUNDS, ids=ids)
def test_bounds(
    case: Case[tuple[dict[str, int], tuple[PodGroupAllocation, ...]], list[str]],
) -> None:
    """No queue passes a limit, and what cannot be preempted no quota."""
    queue, decisions = case.given
    assert list(plan_violations(snapshot(**queue), plan(*decisions))) == case.want


def test_a_parent_has_bounds_too() -> None:
    """What a team gets, its department gets."""
    queues = [
        SnapshotQueue("department", limit=1, quota=UNBOUND),
        SnapshotQueue("team", "department"),
    ]
    build = Builder(nodes=NODES, queues=queues)
    build.uniform_podgroup(2, ONE)
    report = list(plan_violations(build.snapshot(), plan(binds(PODGROUP, 0, 0))))
    assert report == ["queue department has more GPU than its limit"]


def test_what_goes_is_on_nodes_until_it_is_gone() -> None:
    """Nothing is bound beside it past a limit; a nominated pod is not there yet."""
    build = Builder(nodes=NODES, queues=[SnapshotQueue("all", limit=2, quota=UNBOUND)])
    build.terminating.append(ReleasingAmount(0, 1, (0, 0, 1000)))
    build.uniform_podgroup(2, ONE)
    found = build.snapshot()
    report = "queue all has more GPU on nodes than its limit"
    assert list(plan_violations(found, plan(binds(PODGROUP, 0, 0)))) == [report]
    waits = PodGroupAllocation(PODGROUP, nominations=(PodPlacement(0, 0), PodPlacement(1, 0)))
    assert list(plan_violations(found, plan(waits))) == []


def crowded() -> Snapshot:
    """Return a waiting PodGroup and running ones: at its minimum, with a surplus pod, nested."""
    build = Builder(nodes=[SnapshotNode(gpu=9)], queues=[SnapshotQueue("all", quota=UNBOUND)])
    build.uniform_podgroup(1, ONE)
    build.running_podgroup([0, 0], ONE)
    build.running_podgroup([0, 0], ONE, minimum=1)
    row = build.signature_row(ONE)
    for _ in range(4):
        build.pod_on_node(0, row)
    first, second = (
        PodSet("a", 2, running=2, running_pods=(5, 6)),
        PodSet("b", 2, running=2, running_pods=(7, 8)),
    )
    build.podgroup(SubGroupSet("all", 1, (first, second)), is_kept=True)
    return build.snapshot()


def evicts(podgroup: int, *pods: int, is_whole: bool = False) -> Eviction:
    """Let a PodGroup lose pods for one that waits."""
    return Eviction((podgroup,), pods, is_whole, Action.RECLAIM, 0)


NEEDED: Final = "unit-{} loses what it needs"

# what is evicted -> what that breaks
EVICTED: list[Case[tuple[Eviction, ...], list[str]]] = [
    Case("all of a unit", (evicts(1, 1, 2, is_whole=True),), []),
    Case("a part of what it needs", (evicts(1, 2),), [NEEDED.format(1)]),
    Case("what is on top", (evicts(2, 4),), []),
    Case("more than that", (evicts(2, 4), evicts(2, 3)), [NEEDED.format(2)]),
    Case("what is on top, and then all", (evicts(2, 4), evicts(2, 3, is_whole=True)), []),
    Case("a child that is not needed", (evicts(3, 7, 8),), []),
    Case("a part of it", (evicts(3, 8),), [NEEDED.format(3)]),
    Case("both children", (evicts(3, 7, 8), evicts(3, 5, 6)), [NEEDED.format(3)]),
]


@pytest.mark.parametrize("case", EVICTED, ids=ids)
def test_what_is_taken(case: Case[tuple[Eviction, ...], list[str]]) -> None:
    """All of a PodGroup, or what it does not need."""
    given = PodGroupAllocation(0, nominations=(PodPlacement(0, 0),))
    made = replace(plan(given), evictions=case.given)
    assert list(plan_violations(crowded(), made)) == case.want


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ((), ["unit-1 is evicted for no PodGroup"]),
        (
            (PodGroupAllocation(0, binds=(PodPlacement(0, 0),)),),
            ["unit-1 is evicted for no PodGroup"],
        ),
        ((PodGroupAllocation(0, nominations=(PodPlacement(0, 0),)),), []),
    ],
    ids=["no PodGroup", "a PodGroup that need not wait", "a PodGroup that waits for it"],
)
def test_a_victim_needs_a_claimant(given: tuple[PodGroupAllocation, ...], want: list[str]) -> None:
    """For a PodGroup that is nominated to what is released."""
    made = replace(plan(*given), evictions=(evicts(1, 1, 2, is_whole=True),))
    assert list(plan_violations(crowded(), made)) == want


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
    budgets = DisruptionBudgets(("ns/b",), (1,), ((0,),), (NONE, 0, 0, *[NONE] * 6))
    one = replace(evicts(1, 1, 2, is_whole=True), action=action, budgets=named)
    made = replace(plan(PodGroupAllocation(0, nominations=(PodPlacement(0, 0),))), evictions=(one,))
    assert list(plan_violations(replace(crowded(), budgets=budgets), made)) == want


def test_a_non_evictable_queue_over_quota_gets_no_more() -> None:
    """What is above the quota, and cannot be evicted, is told; what moves is not counted."""
    for is_moving in (False, True):
        build = Builder(nodes=[SnapshotNode(gpu=9)], queues=[SnapshotQueue("all", quota=1)])
        build.uniform_podgroup(1, ONE)
        build.running_podgroup([0, 0], ONE, non_evictable_reason="x", is_relocating=is_moving)
        report = [] if is_moving else ["queue all borrows more GPU"]
        assert list(plan_violations(build.snapshot(), plan(binds(0, 0)))) == report


def test_what_is_partly_done_does_not_move() -> None:
    """But it may go for another PodGroup."""
    found = crowded()
    podgroups = [
        replace(it, is_partly_succeeded=row == 1) for row, it in enumerate(found.podgroups)
    ]
    given = replace(found, podgroups=tuple(podgroups))
    one = evicts(1, 1, 2, is_whole=True)
    made = replace(plan(PodGroupAllocation(0, nominations=(PodPlacement(0, 0),))), evictions=(one,))
    assert list(plan_violations(given, made)) == []
    moved = replace(made, evictions=(replace(one, action=Action.CONSOLIDATION),))
    assert "unit-1 may not lose anything" in plan_violations(given, moved)
