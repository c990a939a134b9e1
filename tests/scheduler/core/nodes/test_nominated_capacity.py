"""Resources reserved for PodGroups with nominated nodes: which others may use them."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.model.podgroup import (
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
)
from scheduler.core.model.resources import UNBOUND
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.scheduler_names import Action

POLICIES = replace(build_policies(PolicySelection()), actions=(Action.ALLOCATE,))
ONE, FOUR, EIGHT = signature(gpu=1), signature(gpu=4), signature(gpu=8)
FULL = SnapshotNode(used_gpu=8)
ALMOST = SnapshotNode(used_gpu=7)

Got = list[tuple[int, list[int]]]  # PodGroups, and the nodes of each, in the order of their turns


def nominated(like: SchedulingSignature, node: int) -> SchedulingSignature:
    """Return the signature of a pod with a nominated node."""
    return replace(like, nominated_node=node)


def cluster(*nodes: SnapshotNode) -> Builder:
    """Return nodes and two queues of which the first one comes first."""
    return Builder(nodes, [SnapshotQueue("first", priority=200), SnapshotQueue("second")])


def own(nodes: int) -> Builder:
    """Let PodGroup 1 have a nominated node, and one wait before it in its queue."""
    builder = cluster(*[SnapshotNode()] * nodes)
    builder.uniform_podgroup(1, EIGHT, queue="first", priority=70)
    builder.uniform_podgroup(1, nominated(EIGHT, 0), queue="first")
    return builder


def across(*, can: bool = True) -> Builder:
    """Let PodGroups 1 and 3 of two queues have nominated nodes, and one wait before each of them.

    PodGroup 0 would like the node of PodGroup 3. Without *can* none is preemptible.
    """
    builder = cluster(SnapshotNode(), ALMOST, ALMOST)
    builder.uniform_podgroup(1, EIGHT, queue="first", priority=70)
    builder.uniform_podgroup(1, nominated(ONE, 1), queue="first", is_preemptible=can)
    builder.uniform_podgroup(1, ONE, queue="second", priority=70, is_preemptible=can)
    builder.uniform_podgroup(1, nominated(EIGHT, 0), queue="second", is_preemptible=can)
    return builder


def after_another(like: SchedulingSignature, number: int) -> Builder:
    """Let PodGroup 0 not fit ahead of PodGroup 3, with PodGroup 4 of its queue nominated.

    PodGroup 1 wants more than its queue may count on, so that PodGroup 2 is not next.
    """
    queues = [SnapshotQueue("first", quota=16, priority=200), SnapshotQueue("second", quota=8)]
    builder = Builder([SnapshotNode(), ALMOST, FULL], queues)
    builder.uniform_podgroup(number, EIGHT, queue="first", priority=70)
    builder.uniform_podgroup(3, EIGHT, queue="first", priority=60)
    builder.uniform_podgroup(1, nominated(like, 0 if like is EIGHT else 1), queue="first")
    builder.uniform_podgroup(1, EIGHT, queue="second", priority=70)
    builder.uniform_podgroup(
        1, nominated(ONE if like is EIGHT else EIGHT, int(like is EIGHT)), queue="second"
    )
    return builder


def taken_beside(*, limit: int = UNBOUND, can: bool = True) -> Builder:
    """Let PodGroups 1 and 3 be nominated to halves of two nodes; PodGroup 2 wants a half as well.

    Above both queues is one that may have both halves and no more.
    """
    queues = [
        SnapshotQueue("first", "above", quota=8, priority=200),
        SnapshotQueue("second", "above", quota=8),
        SnapshotQueue("above", quota=8, limit=limit),
    ]
    builder = Builder([SnapshotNode(), SnapshotNode()], queues)
    for queue, node in (("second", 1), ("first", 0)):
        want = EIGHT if queue == "second" else FOUR
        builder.uniform_podgroup(1, want, queue=queue, priority=70, is_preemptible=can)
        builder.uniform_podgroup(1, nominated(FOUR, node), queue=queue, is_preemptible=can)
    return builder


def more_of_it() -> Builder:
    """Let PodGroup 1 be nominated to two halves of a node, and need one; PodGroup 2 wants one.

    Both have one before them: PodGroup 0 finds no room, PodGroup 2 some of PodGroup 3.
    """
    builder = Builder(
        [SnapshotNode(used_gpu=4), SnapshotNode()],
        [SnapshotQueue("a", quota=8), SnapshotQueue("b", priority=200)],
    )
    builder.uniform_podgroup(2, EIGHT, queue="a", priority=70)
    builder.uniform_podgroup(2, nominated(FOUR, 1), queue="a", minimum=1)
    builder.uniform_podgroup(1, FOUR, queue="b", priority=70)
    builder.uniform_podgroup(1, nominated(FOUR, 0), queue="b")
    return builder


def before(**more: Any) -> Builder:
    """Let PodGroup 1 have a nominated node, and one come before it that could not take it."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("first", quota=8)])
    builder.uniform_podgroup(1, EIGHT, queue="first", priority=70, **more.get("he", {}))
    builder.uniform_podgroup(1, nominated(EIGHT, 0), queue="first", **more.get("other", {}))
    return builder


def reserved_places() -> Builder:
    """Let PodGroup 3 have a reserved place on its nominated node; PodGroup 0 fits beside it."""
    builder = cluster(SnapshotNode(used_gpu=4), ALMOST)
    builder.uniform_podgroup(1, FOUR, queue="first", priority=70)
    builder.uniform_podgroup(1, nominated(ONE, 1), queue="first")
    builder.uniform_podgroup(1, ONE, queue="second", priority=70, is_preemptible=False)
    reserved_place = ReservedPlace(0, builder.signature_row(FOUR), ReservationCause.ANTICIPATED)
    pods = builder.waiting_pods(1, nominated(FOUR, 0))
    builder.podgroup(
        PodSet("default", 1, pods, reserved_places=(reserved_place,)), queue="second", is_kept=True
    )
    return builder


@pytest.mark.parametrize(
    "case",
    [
        Case("none of another queue sees it", across(), [(1, [1]), (2, [2]), (3, [0])]),
        Case("it is for all after its owner failed", across(can=False), [(0, [0])]),
        Case("one ahead in the same queue may have it", own(1), [(0, [0])]),
        Case("but not where there is other room", own(2), [(0, [1]), (1, [0])]),
        Case(
            "nor if he may not preempt yet", before(he={"preemption_delay_until": 10}), [(1, [0])]
        ),
        Case("nor from one that it may not", before(other={"is_preemptible": False}), [(1, [0])]),
        Case("a limit is held as well", taken_beside(limit=8), [(2, [0]), (1, [1])]),
        Case("so is a quota", taken_beside(can=False), [(3, [0]), (1, [1])]),
        Case("and what is beyond the next attempt", more_of_it(), [(2, [0]), (1, [1]), (1, [1])]),
        Case(
            "nor what another queue found no room in", after_another(ONE, 1), [(3, [0]), (2, [1])]
        ),
        Case(
            "it is held again after a turn in vain", after_another(EIGHT, 2), [(4, [1]), (2, [0])]
        ),
        Case(
            "beside reserved places nothing is held",
            reserved_places(),
            [(0, [0]), (1, [1]), (3, [0])],
        ),
    ],
    ids=ids,
)
def test_which_podgroup_gets_which_node(case: Case[Builder, Got]) -> None:
    """The PodGroups that get something, in order."""
    snapshot = case.given.snapshot()

    plan_result = plan(snapshot, POLICIES)

    got = [(one.podgroup, [it.node for it in one.binds]) for one in plan_result.allocations]
    assert got == case.want
    assert list(plan_violations(snapshot, plan_result)) == []
