"""Messages on PodGroups that reclaim nothing, where no victim in particular is protected."""

from typing import Any, NamedTuple

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.model.podgroup import LabelRequirement, PodSet
from scheduler.core.model.rejections import (
    NO_EVENT,
    ClusterEvent,
    EvictionFailure,
    PreFilterCause,
    PreFilterFailure,
    QueueOrderConflict,
    Rejection,
)
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import DisruptionBudgets
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.scheduler.core.messages.eviction_failure_text import eviction_failure_text
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.reasons import UnschedulableReason

ONE, HALF, ALL = signature(gpu=1), signature(gpu=4), signature(gpu=8)


def halves(quota: float = 8) -> Builder:
    """Return two nodes with two gangs of A, each on both; B is owed one node, and wants that."""
    builder = Builder(
        [SnapshotNode(), SnapshotNode()],
        [SnapshotQueue("a", quota=quota), SnapshotQueue("b", quota=8)],
    )
    builder.running_podgroup([0, 1], HALF, queue="a")
    builder.running_podgroup([0, 1], HALF, queue="a")
    builder.uniform_podgroup(1, ALL, queue="b")
    return builder


def halves_and_one_that_stays(quota: float) -> Builder:
    """Return the same with a third node, which C has, and does not give."""
    builder = Builder(
        [SnapshotNode(), SnapshotNode(), SnapshotNode()],
        [SnapshotQueue("a", quota=8), SnapshotQueue("b", quota=8), SnapshotQueue("c", quota=quota)],
    )
    builder.running_podgroup([0, 1], HALF, queue="a")
    builder.running_podgroup([0, 1], HALF, queue="a")
    builder.running_podgroup([2], ALL, queue="c", is_preemptible=False)
    builder.uniform_podgroup(1, ALL, queue="b")
    return builder


def two_lenders() -> Builder:
    """Return a node of which A and C have a little too much each; B wants more than that."""
    builder = Builder(
        [SnapshotNode()],
        [SnapshotQueue("a", quota=3), SnapshotQueue("c", quota=3), SnapshotQueue("b", quota=4)],
    )
    for queue in "aaaacccc":
        builder.running_podgroup([0], ONE, queue=queue)
    builder.uniform_podgroup(1, HALF, queue="b")
    return builder


def only_one_queue() -> Builder:
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b", quota=9)])
    builder.running_podgroup([0], ALL, queue="b")
    builder.uniform_podgroup(1, ONE, queue="b")
    return builder


def more_important(gpus: int = 8, quota: int = 0) -> Builder:
    """Return a node of A, which has a fair share of two GPUs, but is ahead of B."""
    queues = [SnapshotQueue("a", quota=2, weight=0, priority=200), SnapshotQueue("b", quota=quota)]
    builder = Builder([SnapshotNode(gpu=gpus)], queues)
    for _ in range(8):
        builder.running_podgroup([0], ONE, queue="a")
    builder.uniform_podgroup(1, ONE, queue="b")
    return builder


def smaller_share() -> Builder:
    """Return nodes of which B wants all that A lost, more than A would want of it at once."""
    one, other = SnapshotNode(gpu=1, labels=(0,)), SnapshotNode(gpu=4, labels=(1,))
    builder = Builder([one, other, SnapshotNode(gpu=3)], [SnapshotQueue("a"), SnapshotQueue("b")])
    builder.running_podgroup([2], ONE, queue="a")
    builder.running_podgroup([1], HALF, queue="a")
    builder.running_podgroup([0], ONE, queue="a")
    pods = builder.waiting_pods(1, signature(gpu=1, node_affinity=on(0))) + builder.waiting_pods(
        1, signature(gpu=3, node_affinity=on(1))
    )
    builder.podgroup(PodSet("default", 2, pods), queue="b")
    return builder


def worse_off() -> Builder:
    """Return nodes where B has hardly too much, as has A, with what one of its teams wants there.

    The other team of A has its own on a node that does not do; C waits for more than is due to it.
    """
    queues = [
        SnapshotQueue("b"),
        SnapshotQueue("a"),
        SnapshotQueue("c"),
        SnapshotQueue("a1", "a"),
        SnapshotQueue("a2", "a"),
    ]
    builder = Builder([SnapshotNode(gpu=6, labels=(0,)), SnapshotNode(labels=(1,))], queues)
    builder.running_podgroup([0], ONE, queue="a1")
    for _ in range(5):
        builder.running_podgroup([0], ONE, queue="a2")
    for _ in range(8):
        builder.running_podgroup([1], ONE, queue="b")
    builder.uniform_podgroup(1, signature(gpu=1, node_affinity=on(1)), queue="a1")
    builder.uniform_podgroup(1, signature(gpu=6), queue="c")
    return builder


def on(label: int) -> Any:
    return (((LabelRequirement(0, frozenset({label})),),),)


CLAIMS: list[Case[Builder, str]] = [
    Case(
        "in two halves",
        halves(),
        "Queue a is over its fair share, but what can be reclaimed is not enough",
    ),
    Case(
        "too little in all",
        two_lenders(),
        "Queues a, c are over their fair shares, but what can be reclaimed is not enough",
    ),
    Case(
        "all is theirs",
        halves(quota=16),
        "Nothing can be reclaimed: no other queue is over its fair share",
    ),
    Case("no other queue", only_one_queue(), ""),
    Case(
        "the priority of a queue",
        more_important(),
        "Nothing is reclaimed from queue a, because it would be ahead of queue b again: queue a "
        "has the higher priority (200, queue b has 100)",
    ),
    Case(
        "the next turn would be theirs",
        smaller_share(),
        "Nothing is reclaimed from queue a, because it would be ahead of queue b again: queue a "
        "would then use a smaller part of its fair share",
    ),
    Case(
        "not fair on a higher level",
        worse_off(),
        "Queues b, a2 are over their fair shares, but reclaiming enough would leave the queue that "
        "loses resources no better off than the queue that gets them",
    ),
    Case(
        "a non-evictable queue within its share",
        halves_and_one_that_stays(quota=8),
        "Queue a is over its fair share, but what can be reclaimed is not enough",
    ),
    Case(
        "a non-evictable queue over its share",
        halves_and_one_that_stays(quota=4),
        "1 PodGroup cannot be evicted because non-preemptible pods are not evicted",
    ),
]


@pytest.mark.parametrize("case", CLAIMS, ids=ids)
def test_why_nothing_is_reclaimed(case: Case[Builder, str]) -> None:
    snapshot = case.given.snapshot()
    answer = plan(snapshot, build_policies(PolicySelection()))
    assert not answer.evictions
    assert eviction_failure_text(snapshot, answer.rejections[0]) == case.want


def test_what_two_actions_found_is_reported_together() -> None:
    """No victim in its own queue, and another queue would reclaim what it lost."""
    builder = more_important(gpus=9, quota=1)
    builder.running_podgroup([0], ONE, queue="b", is_preemptible=False, priority=10)
    snapshot = builder.snapshot()
    (one,) = plan(snapshot, build_policies(PolicySelection())).rejections
    report = rejection_message(snapshot, one)
    assert "1 PodGroup cannot be evicted because non-preemptible pods are not evicted" in report
    assert "Nothing is reclaimed from queue a" in report


EQUAL_PARTS = "both use equal parts of their fair share, and queue b uses less or is older"
TURNS: list[Case[int, str]] = [
    Case(
        "a queue over its fair share is named first",
        0,
        "queue a is over its fair share of every resource",
    ),
    Case("a queue within its quota is named", 1, "queue b would stay within its quota"),
    Case(
        "a queue of higher priority is named",
        2,
        "queue b has the higher priority (300, queue a has 100)",
    ),
    Case(
        "a queue without fair share is named",
        3,
        "queue a has no fair share of a resource that it uses or would use",
    ),
    Case("share with it", 4, "queue b would then use a smaller part of its fair share"),
    Case(
        "a smaller part of a fair share is named",
        5,
        "queue b uses a smaller part of its fair share",
    ),
    Case("equal parts are named", 6, EQUAL_PARTS),
    Case("equal parts are named whatever is older", 9, EQUAL_PARTS),
]


@pytest.mark.parametrize("case", TURNS, ids=ids)
def test_why_a_queue_would_have_it_back(case: Case[int, str]) -> None:
    """By the first of rule 18 that decides."""
    builder = Builder(queues=[SnapshotQueue("a"), SnapshotQueue("b", priority=300)])
    builder.uniform_podgroup(1, ONE, queue="a")
    failure = EvictionFailure(order_conflict=QueueOrderConflict(1, 0, case.given))
    details = PreFilterFailure(PreFilterCause.IGNORED_PODS, ("it waits",))
    one = Rejection(
        0,
        UnschedulableReason.NO_CAPACITY,
        details,
        is_resolvable=True,
        retry_on=ClusterEvent.ANY,
        eviction_failure=failure,
    )
    report = "Nothing is reclaimed from queue b, because it would be ahead of queue a again"
    assert rejection_message(builder.snapshot(), one) == f"it waits. {report}: {case.want}"


class ConsolidationCase(NamedTuple):
    """A gang for which free resources are fragmented, and the pods that use the rest."""

    is_evictable: bool = True  # the pods that use the rest
    may_relocate: bool = True
    is_preemptor_fixed: bool = False
    is_partly_succeeded: bool = True


_CANDIDATES = (
    "only preemptible TrainJobs that Kueue does not manage can be relocated, in queues with the "
    'annotation trainer-kai.dev/consolidation: "on"'
)
MOVES: list[Case[ConsolidationCase, str]] = [
    Case("no queue allows it", ConsolidationCase(may_relocate=False), _CANDIDATES),
    Case("none is evictable", ConsolidationCase(is_evictable=False), _CANDIDATES),
    Case(
        "the action is disabled",
        ConsolidationCase(is_partly_succeeded=False),
        "the action consolidation is disabled",
    ),
    Case(
        "a search without a solution is named",
        ConsolidationCase(),
        "no set of relocations was found that frees enough",
    ),
    Case(
        "not for a non-preemptible PodGroup",
        ConsolidationCase(is_preemptor_fixed=True),
        "the pending PodGroup is non-preemptible",
    ),
]


@pytest.mark.parametrize("case", MOVES, ids=ids)
def test_why_no_podgroup_is_relocated(case: Case[ConsolidationCase, str]) -> None:
    """A relocation could free enough on one node, if a PodGroup may be relocated."""
    one = case.given
    builder = Builder(
        [SnapshotNode(), SnapshotNode()],
        [SnapshotQueue("a", quota=10), SnapshotQueue("b", quota=6)],
    )
    for node in (0, 1):  # there is no room for it on the other one
        more: dict[str, Any] = {
            "may_relocate": one.may_relocate,
            "is_preemptible": one.is_evictable,
        }
        builder.running_podgroup([node], signature(gpu=5), queue="a", **more)
    builder.uniform_podgroup(
        1, signature(gpu=6), queue="b", is_preemptible=not one.is_preemptor_fixed
    )
    snapshot = builder.snapshot()
    (it,) = plan(
        snapshot,
        build_policies(PolicySelection(actions={"consolidation": one.is_partly_succeeded})),
    ).rejections
    assert it.reason == "Fragmented"
    text = rejection_message(snapshot, it)
    assert text.endswith(f". No PodGroup is relocated to free enough on one node: {case.want}")


@pytest.mark.parametrize("requested", [2, 4])
def test_a_time_is_reported_only_where_it_could_help(requested: int) -> None:
    """Two GPUs may go when their time has come, but not four; nor is a budget told for four."""
    queues = [
        SnapshotQueue("a", quota=2, reclaim_min_runtime_s=100),
        SnapshotQueue("c", quota=4),
        SnapshotQueue("b", quota=4),
    ]
    builder = Builder([SnapshotNode()], queues)
    builder.running_podgroup([0], signature(gpu=2), queue="a", running_since=990)
    builder.running_podgroup([0], signature(gpu=2), queue="a", running_since=900)
    builder.running_podgroup([0], HALF, queue="c")
    builder.uniform_podgroup(1, signature(gpu=requested), queue="b")
    budgets = DisruptionBudgets(("ns/pdb",), (0,), ((0,),), (NONE, 0, NONE, NONE))
    snapshot = builder.snapshot(now=1000, budgets=budgets)
    (one,) = plan(snapshot, build_policies(PolicySelection(disruption_budgets="always"))).rejections
    report = rejection_message(snapshot, one)
    assert ("can be evicted from" in report, "PodDisruptionBudget" in report) == (
        requested == 2,
        requested == 2,
    )
    assert ("what can be reclaimed is not enough" in report) == (requested == 4)
    awaited = ClusterEvent.TIME_PASSED | ClusterEvent.BUDGET_CHANGED
    assert one.retry_on & awaited == (awaited if requested == 2 else NO_EVENT)


def test_whatever_keeps_them_is_reported_together() -> None:
    """A budget covers half of the GPUs, and the other half cannot be evicted."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b", quota=8)])
    builder.running_podgroup([0], HALF, queue="a")
    builder.running_podgroup(
        [0], HALF, queue="a", non_evictable_reason="Kueue suspends and resumes the TrainJob"
    )
    builder.uniform_podgroup(1, ALL, queue="b")
    budgets = DisruptionBudgets(("ns/pdb",), (0,), ((0,),), (0, NONE, NONE))
    snapshot = builder.snapshot(budgets=budgets)
    for failure in (True, False):  # of a budget that is not kept nothing is told
        configured = "always" if failure else "best-effort"
        (one,) = plan(
            snapshot, build_policies(PolicySelection(disruption_budgets=configured))
        ).rejections
        report = rejection_message(snapshot, one)
        assert (
            "1 PodGroup cannot be evicted because Kueue suspends and resumes the TrainJob" in report
        )
        assert ("PodDisruptionBudget ns/pdb allows too few evictions" in report) == failure
