"""What is said to who gets nothing where nobody in particular is kept from losing it."""

from typing import Any, NamedTuple

import pytest

from scheduler.core.decision import BarNumbers, Kept, Regain, Rejection
from scheduler.core.explain import explain
from scheduler.core.model import NONE, Budgets, Leaf, Require, Verdict
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape

ONE, HALF, ALL = shape(gpu=1), shape(gpu=4), shape(gpu=8)


def halves(quota: float = 8) -> Builder:
    """Return two nodes with two gangs of A, each on both; B is owed one node, and wants that."""
    builder = Builder([Node(), Node()], [Queue("a", quota=quota), Queue("b", quota=8)])
    builder.runs([0, 1], HALF, queue="a")
    builder.runs([0, 1], HALF, queue="a")
    builder.gang(1, ALL, queue="b")
    return builder


def halves_and_one_that_stays(quota: float) -> Builder:
    """Return the same with a third node, which C has, and does not give."""
    builder = Builder(
        [Node(), Node(), Node()],
        [Queue("a", quota=8), Queue("b", quota=8), Queue("c", quota=quota)],
    )
    builder.runs([0, 1], HALF, queue="a")
    builder.runs([0, 1], HALF, queue="a")
    builder.runs([2], ALL, queue="c", is_preemptible=False)
    builder.gang(1, ALL, queue="b")
    return builder


def two_lenders() -> Builder:
    """Return a node of which A and C have a little too much each; B wants more than that."""
    builder = Builder([Node()], [Queue("a", quota=3), Queue("c", quota=3), Queue("b", quota=4)])
    for queue in "aaaacccc":
        builder.runs([0], ONE, queue=queue)
    builder.gang(1, HALF, queue="b")
    return builder


def nobody_else() -> Builder:
    """Return a node of B alone."""
    builder = Builder([Node()], [Queue("a"), Queue("b", quota=9)])
    builder.runs([0], ALL, queue="b")
    builder.gang(1, ONE, queue="b")
    return builder


def more_important(gpus: int = 8, quota: int = 0) -> Builder:
    """Return a node of A, to whom only two GPUs are due, but whose turns come before B's."""
    queues = [Queue("a", quota=2, weight=0, priority=200), Queue("b", quota=quota)]
    builder = Builder([Node(gpu=gpus)], queues)
    for _ in range(8):
        builder.runs([0], ONE, queue="a")
    builder.gang(1, ONE, queue="b")
    return builder


def smaller_share() -> Builder:
    """Return nodes of which B wants all that A lost, more than A would want of it at once."""
    one, other = Node(gpu=1, labels=(0,)), Node(gpu=4, labels=(1,))
    builder = Builder([one, other, Node(gpu=3)], [Queue("a"), Queue("b")])
    builder.runs([2], ONE, queue="a")
    builder.runs([1], HALF, queue="a")
    builder.runs([0], ONE, queue="a")
    pods = builder.pods(1, shape(gpu=1, any_of=on(0))) + builder.pods(1, shape(gpu=3, any_of=on(1)))
    builder.unit(Leaf("default", 2, pods), queue="b")
    return builder


def worse_off() -> Builder:
    """Return nodes where B has hardly too much, as has A, with what one of its teams wants there.

    The other team of A has its own on a node that does not do; C waits for more than is due to it.
    """
    queues = [Queue("b"), Queue("a"), Queue("c"), Queue("a1", "a"), Queue("a2", "a")]
    builder = Builder([Node(gpu=6, labels=(0,)), Node(labels=(1,))], queues)
    builder.runs([0], ONE, queue="a1")
    for _ in range(5):
        builder.runs([0], ONE, queue="a2")
    for _ in range(8):
        builder.runs([1], ONE, queue="b")
    builder.gang(1, shape(gpu=1, any_of=on(1)), queue="a1")
    builder.gang(1, shape(gpu=6), queue="c")
    return builder


def on(label: int) -> Any:
    """Return what selects the nodes of a label."""
    return (((Require(0, frozenset({label})),),),)


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
def test_why_a_claim_is_in_vain(case: Case[Builder, str]) -> None:
    """Where nobody has a reason of his own to keep what he has, the queues tell."""
    snapshot = case.given.snapshot()
    answer = plan(snapshot, choose(Choice()))
    assert not answer.evictions
    assert explain(snapshot, answer.rejections[0]).partition(" free. ")[2] == case.want


def test_what_two_actions_found_is_told_together() -> None:
    """Nobody of its own queue may lose anything, and another queue would have back what it gave."""
    builder = more_important(gpus=9, quota=1)
    builder.runs([0], ONE, queue="b", is_preemptible=False, priority=10)
    snapshot = builder.snapshot()
    (one,) = plan(snapshot, choose(Choice())).rejections
    told = explain(snapshot, one)
    assert "Others stay: 1 because priority or preemptibility forbids it" in told
    assert "Nothing is taken from queue a" in told


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
    builder = Builder(queues=[Queue("a"), Queue("b", priority=300)])
    builder.gang(1, ONE, queue="a")
    kept = Kept(regain=Regain(1, 0, case.given))
    numbers, wakes_on = BarNumbers("it waits"), frozenset[str]()
    one = Rejection(0, Verdict.NO_CAPACITY, numbers, is_curable=True, wakes_on=wakes_on, kept=kept)
    told = "Nothing is taken from queue b, for its turn would come again before that of queue a"
    assert explain(builder.snapshot(), one) == f"it waits. {told}: {case.want}"


class Pieces(NamedTuple):
    """A gang that has room in pieces only, and whoever has the rest."""

    can_lose: bool = True  # whoever has the rest
    is_offered: bool = True
    claims_fixed: bool = False
    is_done: bool = True


MOVES: list[Case[Pieces, str]] = [
    Case("not offered", Pieces(is_offered=False), "of a queue that offers it"),
    Case("they keep what they have", Pieces(can_lose=False), "only preemptible TrainJobs"),
    Case("the action is off", Pieces(is_done=False), "consolidation is off"),
    Case("in vain", Pieces(), "no way was found with those who may be"),
    Case("not for this one", Pieces(claims_fixed=True), "only for who is preemptible"),
]


@pytest.mark.parametrize("case", MOVES, ids=ids)
def test_why_nobody_is_moved(case: Case[Pieces, str]) -> None:
    """Room in pieces could be brought together, if somebody may be moved."""
    one = case.given
    builder = Builder([Node(), Node()], [Queue("a", quota=10), Queue("b", quota=6)])
    for node in (0, 1):  # there is no room for it on the other one
        more = {"may_move": one.is_offered, "is_preemptible": one.can_lose}
        builder.runs([node], shape(gpu=5), queue="a", **more)
    builder.gang(1, shape(gpu=6), queue="b", is_preemptible=not one.claims_fixed)
    snapshot = builder.snapshot()
    (it,) = plan(snapshot, choose(Choice(actions={"consolidation": one.is_done}))).rejections
    assert it.verdict.title == "Fragmented"
    assert case.want in explain(snapshot, it).partition("Nobody is moved to bring it together")[2]


@pytest.mark.parametrize("asked", [2, 4])
def test_a_time_is_told_only_where_it_could_help(asked: int) -> None:
    """Two GPUs may go when their time has come, but not four; nor is a budget told for four."""
    queues = [Queue("a", quota=2, reclaim_min_s=100), Queue("c", quota=4), Queue("b", quota=4)]
    builder = Builder([Node()], queues)
    builder.runs([0], shape(gpu=2), queue="a", since=990)
    builder.runs([0], shape(gpu=2), queue="a", since=900)
    builder.runs([0], HALF, queue="c")
    builder.gang(1, shape(gpu=asked), queue="b")
    budgets = Budgets(("ns/pdb",), (0,), ((0,),), (NONE, 0, NONE, NONE))
    snapshot = builder.snapshot(now=1000, budgets=budgets)
    (one,) = plan(snapshot, choose(Choice(disruption_budgets="always"))).rejections
    told = explain(snapshot, one)
    assert ("may go from" in told, "PodDisruptionBudget" in told) == (asked == 2, asked == 2)
    assert ("would not make the room" in told) == (asked == 4)
    assert one.wakes_on & {"time", "budgets"} == ({"time", "budgets"} if asked == 2 else set())


def test_whatever_keeps_them_is_told_together() -> None:
    """A budget covers half of the room, and the other half nobody may take."""
    builder = Builder([Node()], [Queue("a"), Queue("b", quota=8)])
    builder.runs([0], HALF, queue="a")
    builder.runs([0], HALF, queue="a", stays="Kueue suspends and resumes it")
    builder.gang(1, ALL, queue="b")
    budgets = Budgets(("ns/pdb",), (0,), ((0,),), (0, NONE, NONE))
    snapshot = builder.snapshot(budgets=budgets)
    for kept in (True, False):  # of a budget that is not kept nothing is told
        chosen = "always" if kept else "best-effort"
        (one,) = plan(snapshot, choose(Choice(disruption_budgets=chosen))).rejections
        told = explain(snapshot, one)
        assert "1 because Kueue suspends and resumes it" in told
        assert ("Too few pods may go by PodDisruptionBudget ns/pdb" in told) == kept
