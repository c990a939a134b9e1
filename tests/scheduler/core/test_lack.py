"""What is said to who gets nothing where nobody in particular is kept from losing it."""

from collections.abc import Mapping

import pytest

from scheduler.core.explain import explain
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
]


@pytest.mark.parametrize("case", CLAIMS, ids=ids)
def test_why_a_claim_is_in_vain(case: Case[Builder, str]) -> None:
    """Where nobody has a reason of his own to keep what he has, the queues tell."""
    snapshot = case.given.snapshot()
    answer = plan(snapshot, choose(Choice()))
    assert not answer.evictions
    assert explain(snapshot, answer.rejections[0]).partition(" free. ")[2] == case.want


# is the claimant preemptible, may the others be moved, which actions are chosen -> what is said
MOVES: list[Case[tuple[bool, bool, Mapping[str, bool]], str]] = [
    Case("not offered", (True, False, {}), "only TrainJobs of a queue that offers it are"),
    Case("the action is off", (True, True, {"consolidation": False}), "consolidation is off"),
    Case("offered, in vain", (True, True, {}), ""),
    Case("it could not be moved itself", (False, False, {}), ""),
]


@pytest.mark.parametrize("case", MOVES, ids=ids)
def test_why_nobody_is_moved(case: Case[tuple[bool, bool, Mapping[str, bool]], str]) -> None:
    """Room in pieces could be brought together, if somebody may be moved."""
    is_preemptible, may_move, actions = case.given
    builder = Builder([Node(), Node()], [Queue("a", quota=10), Queue("b", quota=6)])
    for node in (0, 1):  # there is no room for it on the other one
        builder.runs([node], shape(gpu=5), queue="a", may_move=may_move)
    builder.gang(1, shape(gpu=6), queue="b", is_preemptible=is_preemptible, may_move=may_move)
    snapshot = builder.snapshot()
    (one,) = plan(snapshot, choose(Choice(actions=actions))).rejections
    assert one.verdict.title == "Fragmented"
    _, is_told, why = explain(snapshot, one).partition("Nobody is moved to bring it together: ")
    assert bool(is_told) == bool(case.want)
    assert case.want in why
