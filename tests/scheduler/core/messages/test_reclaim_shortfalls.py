"""What is said to who gets nothing where nobody in particular is kept from losing it."""

from typing import Any, NamedTuple

import pytest

from scheduler.core.messages.rejections import rejection_message
from scheduler.core.model.cluster_events import NO_EVENT, ClusterEvent
from scheduler.core.model.podgroup import LabelRequirement, PodSet
from scheduler.core.model.rejections import (
    EvictionFailure,
    PreFilterDetails,
    QueueOrderConflict,
    Rejection,
    UnschedulableReason,
)
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import DisruptionBudgets
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature

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


def nobody_else() -> Builder:
    """Return a node of B alone."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b", quota=9)])
    builder.running_podgroup([0], ALL, queue="b")
    builder.uniform_podgroup(1, ONE, queue="b")
    return builder


def more_important(gpus: int = 8, quota: int = 0) -> Builder:
    """Return a node of A, to whom only two GPUs are due, but whose turns come before B's."""
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
    """Return what selects the nodes of a label."""
    return (((LabelRequirement(0, frozenset({label})),),),)


CLAIMS: list[Case[Builder, str]] = [
    Case(
        "in two halves",
        halves(),
        "Queue a has more than it may count on, but giving back no more than that would not make"
        " the room",
    ),
    Case(
        "too little in all",
        two_lenders(),
        "Queues a, c have more than they may count on, but giving back no more than that would not"
        " make the room",
    ),
    Case(
        "all is theirs",
        halves(quota=16),
        "It can take nothing back: no queue beside it has more than it may count on",
    ),
    Case("nobody to take from", nobody_else(), ""),
    Case(
        "the priority of a queue",
        more_important(),
        "Nothing is taken from queue a, for its turn would come again before that of queue b: its"
        " priority is larger, 200 against 100",
    ),
    Case(
        "the next turn would be theirs",
        smaller_share(),
        "Nothing is taken from queue a, for its turn would come again before that of queue b: it"
        " would have the smaller part of what is due to it",
    ),
    Case(
        "not fair on a higher level",
        worse_off(),
        "Queues b, a2 have more than they may count on, but who gave the room would be no better"
        " off then than who claims it",
    ),
    Case(
        "who stays beside it has nothing too much",
        halves_and_one_that_stays(quota=8),
        "Queue a has more than it may count on, but giving back no more than that would not make"
        " the room",
    ),
    Case(
        "who stays beside it has too much",
        halves_and_one_that_stays(quota=4),
        "Others stay: 1 because priority or preemptibility forbids it",
    ),
]


@pytest.mark.parametrize("case", CLAIMS, ids=ids)
def test_why_nothing_is_reclaimed(case: Case[Builder, str]) -> None:
    """Where nobody has a reason of his own to keep what he has, the queues tell."""
    snapshot = case.given.snapshot()
    answer = plan(snapshot, build_policies(PolicySelection()))
    assert not answer.evictions
    assert rejection_message(snapshot, answer.rejections[0]).partition(" free. ")[2] == case.want


def test_what_two_actions_found_is_reported_together() -> None:
    """Nobody of its own queue may lose anything, and another queue would have back what it gave."""
    builder = more_important(gpus=9, quota=1)
    builder.running_podgroup([0], ONE, queue="b", is_preemptible=False, priority=10)
    snapshot = builder.snapshot()
    (one,) = plan(snapshot, build_policies(PolicySelection())).rejections
    report = rejection_message(snapshot, one)
    assert "Others stay: 1 because priority or preemptibility forbids it" in report
    assert "Nothing is taken from queue a" in report


TURNS: list[Case[int, str]] = [
    Case("passed", 0, "the other one has more than its fair share of everything"),
    Case("within", 1, "it would stay within its quota"),
    Case("priority", 2, "its priority is larger, 300 against 100"),
    Case("undue", 3, "nothing is due to the other one of something that it has or would have"),
    Case("share with it", 4, "it would have the smaller part of what is due to it"),
    Case("share without", 5, "it has the smaller part of what is due to it"),
    Case("size", 6, "their parts are alike, and it is smaller or older"),
    Case("age", 9, "their parts are alike, and it is smaller or older"),
]


@pytest.mark.parametrize("case", TURNS, ids=ids)
def test_why_a_queue_would_have_it_back(case: Case[int, str]) -> None:
    """By the first of rule 18 that decides."""
    builder = Builder(queues=[SnapshotQueue("a"), SnapshotQueue("b", priority=300)])
    builder.uniform_podgroup(1, ONE, queue="a")
    failure = EvictionFailure(order_conflict=QueueOrderConflict(1, 0, case.given))
    details, retry_on = PreFilterDetails("it waits"), ClusterEvent.ANY
    one = Rejection(
        0,
        UnschedulableReason.NO_CAPACITY,
        details,
        is_resolvable=True,
        retry_on=retry_on,
        eviction_failure=failure,
    )
    report = "Nothing is taken from queue b, for its turn would come again before that of queue a"
    assert rejection_message(builder.snapshot(), one) == f"it waits. {report}: {case.want}"


class ConsolidationCase(NamedTuple):
    """A gang that has room in pieces only, and whoever has the rest."""

    is_evictable: bool = True  # whoever has the rest
    may_relocate: bool = True
    is_preemptor_fixed: bool = False
    is_partly_succeeded: bool = True


MOVES: list[Case[ConsolidationCase, str]] = [
    Case("not offered", ConsolidationCase(may_relocate=False), "of a queue that offers it"),
    Case(
        "they keep what they have",
        ConsolidationCase(is_evictable=False),
        "only preemptible TrainJobs",
    ),
    Case("the action is off", ConsolidationCase(is_partly_succeeded=False), "consolidation is off"),
    Case("in vain", ConsolidationCase(), "no way was found with those who may be"),
    Case(
        "not for this one",
        ConsolidationCase(is_preemptor_fixed=True),
        "only for who is preemptible",
    ),
]


@pytest.mark.parametrize("case", MOVES, ids=ids)
def test_why_nobody_is_moved(case: Case[ConsolidationCase, str]) -> None:
    """Room in pieces could be brought together, if somebody may be moved."""
    one = case.given
    builder = Builder(
        [SnapshotNode(), SnapshotNode()],
        [SnapshotQueue("a", quota=10), SnapshotQueue("b", quota=6)],
    )
    for node in (0, 1):  # there is no room for it on the other one
        more = {"may_relocate": one.may_relocate, "is_preemptible": one.is_evictable}
        builder.running_podgroup([node], signature(gpu=5), queue="a", **more)
    builder.uniform_podgroup(
        1, signature(gpu=6), queue="b", is_preemptible=not one.is_preemptor_fixed
    )
    snapshot = builder.snapshot()
    (it,) = plan(
        snapshot,
        build_policies(PolicySelection(actions={"consolidation": one.is_partly_succeeded})),
    ).rejections
    assert it.reason.title == "Fragmented"
    assert (
        case.want
        in rejection_message(snapshot, it).partition("Nobody is moved to bring it together")[2]
    )


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
    assert ("may go from" in report, "PodDisruptionBudget" in report) == (
        requested == 2,
        requested == 2,
    )
    assert ("would not make the room" in report) == (requested == 4)
    awaited = ClusterEvent.TIME_PASSED | ClusterEvent.BUDGET_CHANGED
    assert one.retry_on & awaited == (awaited if requested == 2 else NO_EVENT)


def test_whatever_keeps_them_is_reported_together() -> None:
    """A budget covers half of the room, and the other half nobody may take."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b", quota=8)])
    builder.running_podgroup([0], HALF, queue="a")
    builder.running_podgroup(
        [0], HALF, queue="a", non_evictable_reason="Kueue suspends and resumes it"
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
        assert "1 because Kueue suspends and resumes it" in report
        assert ("Too few pods may go by PodDisruptionBudget ns/pdb" in report) == failure
