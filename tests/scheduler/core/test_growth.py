"""A unit that runs and may have no more than it needs (rule 8a)."""

from typing import Final

import pytest

from scheduler.core.decision import Plan
from scheduler.core.model import NONE, Bar, Cause, Group, Leaf, Slot, Verdict
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, shape

POLICIES: Final = choose(Choice())
ONE: Final = shape(gpu=1)
BAR: Final = Bar(Verdict.FORBIDDEN_QUEUE, "no", frozenset({"permits"}))


def answer(running: int, waiting: int, minimum: int, *, free: int = 8) -> Plan:
    """Plan for a unit of one leaf that may not grow."""
    builder = Builder([Node(gpu=running + free)])
    row = builder.shape(ONE)
    for _ in range(running):
        builder.lying(0, row)
    pods = tuple(range(running))
    leaf = Leaf("default", minimum, builder.pods(waiting, ONE), there=running, pods=pods)
    builder.unit(leaf, is_kept=True, growth_bar=BAR)
    return plan(builder.snapshot(), POLICIES)


# pods that run, that wait, that are needed -> how many are bound, and the verdict on the rest
ONES: list[Case[tuple[int, int, int], tuple[int, str]]] = [
    Case("it has what it needs", (2, 2, 2), (0, "ForbiddenQueue")),
    Case("it lacks one", (1, 1, 2), (1, "")),
    Case("it lacks two, and three wait", (1, 3, 3), (2, "ForbiddenQueue")),
    Case("it needs none", (1, 1, 0), (0, "ForbiddenQueue")),
    Case("nobody waits", (2, 0, 2), (0, "")),
]


@pytest.mark.parametrize("case", ONES, ids=ids)
def test_it_is_made_whole_and_no_larger(
    case: Case[tuple[int, int, int], tuple[int, str]],
) -> None:
    """What is in the way is told of what waits on."""
    made = answer(*case.given)

    told = [it.verdict.title for it in made.rejections]
    assert sum(len(it.binds) for it in made.decisions) == case.want[0]
    assert told == ([case.want[1]] if case.want[1] else [])


def test_it_is_told_what_keeps_it_from_being_whole() -> None:
    """Not what it would be told afterwards."""
    (one,) = answer(1, 2, 2, free=0).rejections
    assert one.verdict == Verdict.NO_CAPACITY


def two_leaves(minimum: int, slots: tuple[Slot, ...]) -> Plan:
    """Plan for a unit whose first leaf runs, and a pod of whose second one waits."""
    builder = Builder([Node(gpu=8)])
    row = builder.shape(ONE)
    builder.lying(0, row)
    first = Leaf("first", 1, there=1, pods=(0,))
    second = Leaf("second", 1, builder.pods(1, ONE), slots=slots, later_shape=NONE)
    builder.unit(Group("", minimum, (first, second)), is_kept=True, growth_bar=BAR)
    return plan(builder.snapshot(), POLICIES)


def test_a_leaf_that_is_needed_comes() -> None:
    """All leaves have to be there."""
    assert len(two_leaves(2, ()).decisions) == 1


def test_a_leaf_that_is_not_needed_does_not() -> None:
    """One of the two is enough."""
    assert two_leaves(1, ()).decisions == ()


def test_its_own_slots_it_may_have_again() -> None:
    """Though it could do without: they are its own already."""
    (one,) = two_leaves(1, (Slot(0, 0, Cause.REPAIR),)).decisions
    assert len(one.binds) == 1
