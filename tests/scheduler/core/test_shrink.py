"""What a unit loses step by step: as it is said in plain words, and without sorting anew."""

import itertools
from collections import ChainMap
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.budgets import Disruptions
from scheduler.core.chunks import is_satisfied, members_of
from scheduler.core.model import NO_BUDGETS, Cause, Group, Leaf, Slot, Tree
from scheduler.core.shrink import steps
from scheduler.core.tenants import Tenants
from tests.support.snapshots import Builder, Node, shape
from tests.support.work import work

Left = dict[str, tuple[int, ...]]


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> Tree:
    """Draw a tree with names and pods of its own everywhere."""
    names, pods = itertools.count(), itertools.count()

    def grow(left: int) -> Tree:
        name = f"{next(names)}"
        if not left or draw(st.booleans()):
            there = tuple(next(pods) for _ in range(draw(st.integers(0, 4))))
            slots = (Slot(0, 0, Cause.ANTICIPATED),) * draw(st.integers(0, 1))
            done = draw(st.integers(0, 2))
            minimum = draw(st.integers(0, 3))
            return Leaf(name, minimum, (), len(there), done, slots, len(slots), 0, pods=there)
        children = tuple(grow(left - 1) for _ in range(draw(st.integers(0, 4))))
        return Group(name, draw(st.integers(0, len(children))), children)

    return grow(depth)


def smaller(tree: Tree, gone: frozenset[int]) -> Tree:
    """Return a tree without some pods."""
    if isinstance(tree, Group):
        children = tuple(smaller(child, gone) for child in tree.children)
        return Group(tree.name, tree.minimum, children)
    pods = tuple(pod for pod in tree.pods if pod not in gone)
    done, slots, later = tree.succeeded, tree.slots, tree.later
    return Leaf(tree.name, tree.minimum, (), len(pods), done, slots, later, 0, pods=pods)


def pods_of(tree: Tree) -> tuple[int, ...]:
    """Return all pods of a tree."""
    if isinstance(tree, Leaf):
        return tree.pods
    return tuple(pod for child in tree.children for pod in pods_of(child))


def size(tree: Tree) -> int:
    """Return how many members there are."""
    if isinstance(tree, Leaf):
        return members_of(tree)
    return sum(map(is_satisfied, tree.children))


def place(tree: Tree) -> tuple[bool, bool, float, str]:
    """Return the place among siblings of who takes next (rule 9); who loses next is the last."""
    if not is_satisfied(tree):
        return False, False, 0.0, tree.name
    members = size(tree)
    if tree.minimum > 0:
        return True, False, members / tree.minimum, tree.name
    return True, True, float(members), tree.name


def next_of(tree: Tree) -> tuple[str, tuple[int, ...]]:
    """Return what goes next, and of which child it is all there is: rule 35, word by word."""
    if isinstance(tree, Leaf):
        return "", tree.pods[-1:] if members_of(tree) > tree.minimum else ()
    children = sorted(tree.children, key=place, reverse=True)
    satisfied = [child for child in children if is_satisfied(child)]
    for child in satisfied:
        name, pods = next_of(child)
        if pods:
            return name, pods
    if len(satisfied) <= tree.minimum:
        return "", ()
    return next(((child.name, pods) for child in children if (pods := pods_of(child))), ("", ()))


def by_name(tree: Tree) -> dict[str, tuple[int, ...]]:
    """Return the pods of a tree and of all below it."""
    below = [] if isinstance(tree, Leaf) else map(by_name, tree.children)
    return dict(ChainMap({tree.name: pods_of(tree)}, *below))


@given(trees())
def test_each_step_is_what_the_rule_says(tree: Tree) -> None:
    """Until nothing can be spared; a child goes with what it could spare before."""
    gone: frozenset[int] = frozenset()
    every = by_name(tree)
    for pods in steps(tree):
        name, new = next_of(smaller(tree, gone))
        assert pods == every.get(name, new)
        gone |= {*pods}
    assert next_of(smaller(tree, gone)) == ("", ())


@given(trees(depth=3), st.randoms(use_true_random=False))
def test_blocks_are_lost_in_any_order(tree: Tree, random: Random) -> None:
    """Each has what it had without what was lost, and is no more once that is nothing."""
    builder = Builder([Node(gpu=64)])
    row = builder.shape(shape(gpu=1))
    for _ in pods_of(tree):
        builder.lying(0, row)
    builder.unit(tree, is_kept=True)
    tenants = Tenants(builder.snapshot(), (), lambda row, at: (at, row), Disruptions(NO_BUDGETS))
    left = {block: {*members} for block, members in enumerate(tenants.members)}

    while left:
        block = random.choice([*left])
        lost = left[block].copy()
        gone = {one for one, members in left.items() if members <= lost}
        assert {*tenants.lose(block)} == gone
        left = {one: members - lost for one, members in left.items() if one not in gone}
        for one, members in left.items():
            assert {*tenants.members[one]} == members
            counted = sum(builder.shapes[it.shape].counted[2] for it in members)
            assert tenants.amounts(one, tenants.members[one])[2] == counted


def leaves(count: int) -> Builder:
    """Return a unit of so many leaves of two pods, of which one each is needed."""
    builder = Builder([Node(gpu=2 * count)])
    row = builder.shape(shape(gpu=1))
    for _ in range(2 * count):
        builder.lying(0, row)
    parts = [Leaf(f"{i:04}", 1, there=2, pods=(2 * i, 2 * i + 1)) for i in range(count)]
    builder.unit(Group("all", count // 2, tuple(parts)), is_kept=True)
    return builder


def lose_all(tenants: Tenants) -> None:
    """Lose step by step, and the rest."""
    for block in reversed(range(len(tenants.blocks))):
        tenants.lose(block)


@pytest.mark.parametrize("loses", [False, True], ids=["the blocks are made", "and lost"])
def test_twice_the_leaves_are_twice_the_work(loses: bool) -> None:
    """It was four times as much."""

    def cost(count: int) -> int:
        snapshot = leaves(count).snapshot()
        tenants = Tenants(snapshot, (), lambda row, at: (at, row), Disruptions(NO_BUDGETS))
        if loses:
            return work(lambda: lose_all(tenants))
        return work(
            lambda: Tenants(snapshot, (), lambda row, at: (at, row), Disruptions(NO_BUDGETS))
        )

    assert cost(80) < 2.5 * cost(40)
