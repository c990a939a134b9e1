"""What a PodGroup loses step by step: as it is said in plain words, and without sorting anew."""

import itertools
from collections import ChainMap
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.eviction.victims import DisruptionAllowance, VictimPool
from scheduler.core.gang import is_satisfied, member_count, tasks_to_evict
from scheduler.core.model.podgroup import (
    PodSet,
    ReservationCause,
    ReservedPlace,
    SubGroupSet,
    SubGroupTree,
)
from scheduler.core.model.snapshot import NO_BUDGETS
from tests.support.instruction_count import count_instructions
from tests.support.snapshot.builder import Builder, SnapshotNode, signature

Left = dict[str, tuple[int, ...]]


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> SubGroupTree:
    names, pods = itertools.count(), itertools.count()

    def grow(left: int) -> SubGroupTree:
        name = f"{next(names)}"
        if not left or draw(st.booleans()):
            there = tuple(next(pods) for _ in range(draw(st.integers(0, 4))))
            reserved_places = (ReservedPlace(0, 0, ReservationCause.ANTICIPATED),) * draw(
                st.integers(0, 1)
            )
            done = draw(st.integers(0, 2))
            minimum = draw(st.integers(0, 3))
            return PodSet(
                name,
                minimum,
                (),
                len(there),
                done,
                reserved_places,
                len(reserved_places),
                0,
                running_pods=there,
            )
        children = tuple(grow(left - 1) for _ in range(draw(st.integers(0, 4))))
        return SubGroupSet(name, draw(st.integers(0, len(children))), children)

    return grow(depth)


def smaller(tree: SubGroupTree, gone: frozenset[int]) -> SubGroupTree:
    if isinstance(tree, SubGroupSet):
        children = tuple(smaller(child, gone) for child in tree.children)
        return SubGroupSet(tree.name, tree.minimum, children)
    pods = tuple(pod for pod in tree.running_pods if pod not in gone)
    done, reserved_places, later = tree.succeeded, tree.reserved_places, tree.expected
    return PodSet(
        tree.name, tree.minimum, (), len(pods), done, reserved_places, later, 0, running_pods=pods
    )


def pods_of(tree: SubGroupTree) -> tuple[int, ...]:
    if isinstance(tree, PodSet):
        return tree.running_pods
    return tuple(pod for child in tree.children for pod in pods_of(child))


def size(tree: SubGroupTree) -> int:
    if isinstance(tree, PodSet):
        return member_count(tree)
    return sum(map(is_satisfied, tree.children))


def place(tree: SubGroupTree) -> tuple[bool, bool, float, str]:
    """Return the place among siblings of the next to grow (rule 9); the next to shrink is last."""
    if not is_satisfied(tree):
        return False, False, 0.0, tree.name
    members = size(tree)
    if tree.minimum > 0:
        return True, False, members / tree.minimum, tree.name
    return True, True, float(members), tree.name


def next_of(tree: SubGroupTree) -> tuple[str, tuple[int, ...]]:
    """Return what goes next, and of which child it is all there is: rule 35, word by word."""
    if isinstance(tree, PodSet):
        return "", tree.running_pods[-1:] if member_count(tree) > tree.minimum else ()
    children = sorted(tree.children, key=place, reverse=True)
    satisfied = [child for child in children if is_satisfied(child)]
    for child in satisfied:
        name, pods = next_of(child)
        if pods:
            return name, pods
    if len(satisfied) <= tree.minimum:
        return "", ()
    return next(((child.name, pods) for child in children if (pods := pods_of(child))), ("", ()))


def by_name(tree: SubGroupTree) -> dict[str, tuple[int, ...]]:
    below = [] if isinstance(tree, PodSet) else map(by_name, tree.children)
    return dict(ChainMap({tree.name: pods_of(tree)}, *below))


@given(trees())
def test_each_step_is_what_the_rule_says(tree: SubGroupTree) -> None:
    """Until nothing can be spared; a child goes with what it could spare before."""
    gone: frozenset[int] = frozenset()
    every = by_name(tree)
    for pods in tasks_to_evict(tree):
        name, new = next_of(smaller(tree, gone))
        assert pods == every.get(name, new)
        gone |= {*pods}
    assert next_of(smaller(tree, gone)) == ("", ())


@given(trees(depth=3), st.randoms(use_true_random=False))
def test_eviction_units_are_lost_in_any_order(tree: SubGroupTree, random: Random) -> None:
    """Each has what it had without what was lost, and is no more once that is nothing."""
    builder = Builder([SnapshotNode(gpu=64)])
    row = builder.signature_row(signature(gpu=1))
    for _ in pods_of(tree):
        builder.pod_on_node(0, row)
    builder.podgroup(tree, is_kept=True)
    victims = VictimPool(
        builder.snapshot(), (), lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS)
    )
    left = {eviction_unit: {*members} for eviction_unit, members in enumerate(victims.victims)}

    while left:
        eviction_unit = random.choice([*left])
        evicted = left[eviction_unit].copy()
        gone = {one for one, members in left.items() if members <= evicted}
        assert {*victims.remove_unit(eviction_unit)} == gone
        left = {one: members - evicted for one, members in left.items() if one not in gone}
        for one, members in left.items():
            assert {*victims.victims[one]} == members
            counted = sum(builder.signatures[it.signature].queue_request[2] for it in members)
            assert victims.amounts(one, victims.victims[one])[2] == counted


def podsets(count: int) -> Builder:
    """Return a PodGroup of so many PodSets of two pods, of which one each is needed."""
    builder = Builder([SnapshotNode(gpu=2 * count)])
    row = builder.signature_row(signature(gpu=1))
    for _ in range(2 * count):
        builder.pod_on_node(0, row)
    tasks = [PodSet(f"{i:04}", 1, running=2, running_pods=(2 * i, 2 * i + 1)) for i in range(count)]
    builder.podgroup(SubGroupSet("all", count // 2, tuple(tasks)), is_kept=True)
    return builder


def lose_all(victims: VictimPool) -> None:
    for eviction_unit in reversed(range(len(victims.eviction_units))):
        victims.remove_unit(eviction_unit)


@pytest.mark.parametrize("loses", [False, True], ids=["the blocks are made", "and lost"])
def test_twice_the_podsets_are_twice_the_work(loses: bool) -> None:
    def cost(count: int) -> int:
        snapshot = podsets(count).snapshot()
        victims = VictimPool(
            snapshot, (), lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS)
        )
        if loses:
            return count_instructions(lambda: lose_all(victims))
        return count_instructions(
            lambda: VictimPool(
                snapshot, (), lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS)
            )
        )

    assert cost(80) < 2.5 * cost(40)
