"""What one attempt takes of a unit, rule by rule."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.chunks import (
    Chunk,
    Growth,
    Part,
    Progress,
    can_be_satisfied,
    chunk,
    is_satisfied,
    standing,
)
from scheduler.core.model import Cause, Group, Leaf, Slot, Tree, leaves_of
from tests.support.case import Case, ids


def some(
    pods: str, minimum: int, *, name: str = "", slots: int = 0, later: int = 0, **more: Any
) -> Leaf:
    """Return a leaf named after the first of its pods; each letter is a pod that waits."""
    return Leaf(
        name=name or pods[:1] or "-",
        minimum=minimum,
        waiting=tuple(ord(pod) for pod in pods),
        slots=(Slot(0, 0, Cause.ANTICIPATED),) * slots,
        later=later,
        later_shape=0,
        **more,
    )


def group(minimum: int, *children: Tree, name: str = "group") -> Group:
    """Return a group."""
    return Group(name, minimum, children)


def told(taken: Chunk) -> str:
    """Return a chunk as the letters of its pods, and a + for each later one."""
    return " ".join("".join(map(chr, pods)) + "+" * later for _, pods, later in taken)


# a tree -> the chunks taken one after another
CHUNKS: list[Case[Tree, list[str]]] = [
    Case("a gang is taken whole, then pod by pod", some("abcd", 2), ["ab", "c", "d"]),
    Case("a minimum of 0 needs nothing, so pods come one by one", some("ab", 0), ["a", "b"]),
    Case("what is there counts", some("abc", 2, there=1), ["a", "b", "c"]),
    Case("what succeeded counts", some("abc", 3, succeeded=1), ["ab", "c"]),
    Case("too few pods are nothing", some("a", 2), []),
    Case("later pods fill up to the minimum", some("a", 3, later=4), ["a++"]),
    Case("real pods come before later ones", some("abc", 2, later=4), ["ab", "c"]),
    Case("later pods alone are never beyond the minimum", some("", 0, later=4), []),
    Case("too few with later ones are nothing", some("a", 3, later=1), []),
    Case("slots that nobody has come for count", some("", 2, slots=2, later=2), []),
    Case("of a slot and a later pod without, one is missing", some("", 2, slots=1, later=2), ["+"]),
    Case("who comes for a slot is placed with the rest", some("ab", 2, slots=2), ["ab"]),
    Case("slots claimed are not counted twice", some("a", 2, slots=2, later=1), ["a"]),
    Case("more pods than slots", some("abc", 3, slots=1), ["abc"]),
    Case("a group without pods gives nothing", group(0, some("", 0)), []),
    Case("all children are taken together", group(2, some("ab", 2), some("c", 1)), ["ab c"]),
    Case("k of n: the first by name", group(1, some("cd", 2), some("ab", 2)), ["ab", "cd"]),
    Case("k of n: who cannot be is passed over", group(1, some("a", 2), some("bc", 2)), ["bc"]),
    Case("k of n: too few that can be is nothing", group(2, some("a", 2), some("bc", 2)), []),
    Case(
        "k of n: who is satisfied counts",
        group(2, some("ab", 2), some("cd", 2), some("", 1, there=1)),
        ["ab", "cd"],
    ),
    Case(
        "a satisfied group takes a child whole",
        group(0, some("ab", 2), some("cd", 2)),
        ["ab", "cd"],
    ),
    Case(
        "who is not satisfied comes before who has more",
        group(1, some("a", 1, there=1), some("bc", 2)),
        ["bc", "a"],
    ),
    Case(
        "required before optional",
        group(2, some("a", 0, there=1), some("bc", 1, there=5)),
        ["b", "c", "a"],
    ),
    Case(
        "of required ones the smaller part of the minimum",
        group(2, some("ab", 2, there=3), some("cd", 4, there=4)),
        ["c", "d", "a", "b"],
    ),
    Case(
        "of optional ones the fewer members",
        group(0, some("ab", 0, there=2), some("cd", 0, there=1)),
        ["c", "a", "d", "b"],
    ),
    Case(
        "equal ones by name, in turn",
        group(2, some("ab", 1, there=1), some("cd", 1, there=1)),
        ["a", "c", "b", "d"],
    ),
    Case(
        "a group counts its satisfied children, a leaf its members",
        group(0, group(1, some("ab", 1, there=5), name="x"), some("cd", 2, there=3, name="y")),
        ["a", "b", "c", "d"],
    ),
    Case(
        "k of n groups of groups",
        group(
            1,
            group(2, some("ab", 2), some("c", 2), name="x"),
            group(2, some("d", 1), some("ef", 1), name="y"),
        ),
        ["d e", "f"],
    ),
    Case(
        "a child that is not satisfied and cannot be gives nothing, and the next is asked",
        group(0, some("a", 2), some("b", 0, there=7)),
        ["b"],
    ),
    Case("with a minimum of 0 a child may lack what it needs", group(0, some("a", 2)), []),
    Case(
        "optional leaves beside needed ones wait for their turn",
        group(2, some("a", 0), some("bc", 2)),
        ["bc", "a"],
    ),
    Case("later pods fill a group", group(2, some("a", 1), some("b", 2, later=1)), ["a b+"]),
]


@pytest.mark.parametrize("case", CHUNKS, ids=ids)
def test_chunks_of_a_unit(case: Case[Tree, list[str]]) -> None:
    """Each attempt takes what is needed next, until nothing waits."""
    progress = Progress()
    got: list[str] = []
    while (taken := chunk(case.given, progress)) and len(got) < 10:
        got.append(told(taken))
        progress.add(taken)
    assert got == case.want


# a tree -> is it satisfied, can it be, and its standing
STANDINGS: list[Case[Tree, tuple[bool, bool, int]]] = [
    Case("nothing needed, nothing there", some("a", 0), (True, True, 0)),
    Case("below", some("ab", 2, there=1), (False, True, -1)),
    Case("below for good", some("", 2, there=1), (False, False, -1)),
    Case("at it", some("a", 1, there=1), (True, True, 0)),
    Case("above", some("", 1, there=2), (True, True, 1)),
    Case("with who succeeded", some("", 2, there=1, succeeded=2), (True, True, 1)),
    Case("slots are as good as pods", some("", 2, slots=2, later=2), (True, True, 0)),
    Case("slots that pods have come for are not", some("ab", 2, slots=2), (False, True, -1)),
    Case("later pods may satisfy", some("", 2, later=2), (False, True, -1)),
    Case(
        "pods in slots are not counted again as later",
        some("", 3, slots=2, later=2),
        (False, False, -1),
    ),
    Case("a group below", group(2, some("", 1, there=1), some("b", 1)), (False, True, -1)),
    Case("a group at it", group(1, some("", 1, there=1), some("b", 1)), (True, True, 0)),
    Case(
        "a group with a child too many",
        group(1, some("", 1, there=1), some("", 1, there=1)),
        (True, True, 1),
    ),
    Case(
        "a group with a pod too many", group(1, some("", 1, there=2), some("b", 1)), (True, True, 1)
    ),
    Case(
        "who is in one that is below can be spared", group(0, some("", 3, there=2)), (True, True, 1)
    ),
    Case(
        "satisfied children without members are nothing to spare",
        group(0, some("", 0), some("", 0)),
        (True, True, 0),
    ),
    Case(
        "what a child has that is not needed can be spared",
        group(1, some("", 1, there=1), group(1, some("", 2, there=1))),
        (True, True, 1),
    ),
    Case("of nothing", group(0), (True, True, 0)),
]


@pytest.mark.parametrize("case", STANDINGS, ids=ids)
def test_standing(case: Case[Tree, tuple[bool, bool, int]]) -> None:
    """Whether a unit has its minimum, could have it, and has more."""
    tree = case.given
    assert (is_satisfied(tree), can_be_satisfied(tree), standing(tree)) == case.want


def test_slots_are_given_up_in_order() -> None:
    """Each pod that was placed has taken the first slot left."""
    slots = tuple(Slot(node, 0, Cause.ANTICIPATED) for node in (4, 7))
    leaf = Leaf("a", 2, (0, 1), slots=slots)
    progress = Progress()
    assert progress.slots(leaf) == slots
    progress.add((Part(leaf, (0,), 0),))
    assert progress.slots(leaf) == slots[1:]


def test_leaves_are_found_at_every_depth() -> None:
    """From the first to the last."""
    tree = group(0, some("a", 0), group(0, some("b", 0), group(0, some("c", 0))))
    assert [leaf.name for leaf in leaves_of(tree)] == ["a", "b", "c"]


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> Tree:
    """Draw a tree with names of its own everywhere."""
    leaves = itertools.count()

    def grow(left: int) -> Tree:
        name = f"{next(leaves)}"
        if not left or draw(st.booleans()):
            waiting = tuple(range(draw(st.integers(0, 4))))
            return Leaf(name, draw(st.integers(0, 3)), waiting, draw(st.integers(0, 3)))
        children = tuple(grow(left - 1) for _ in range(draw(st.integers(0, 4))))
        return Group(name, draw(st.integers(0, len(children))), children)

    return grow(depth)


@given(trees())
def test_growth_takes_what_would_be_taken_anyway(tree: Tree) -> None:
    """It only knows the order of children from the last time."""
    progress, growth = Progress(), Growth(tree)
    while more := chunk(tree, progress):
        assert growth.next(progress) == more
        progress.add(more)
    assert growth.next(progress) == ()
