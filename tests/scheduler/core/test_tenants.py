"""In which blocks units could lose what they have."""

from typing import Any

import pytest

from scheduler.core.budgets import Disruptions
from scheduler.core.model import NO_BUDGETS, Cause, Group, Leaf, Slot
from scheduler.core.tenants import Tenants
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape

ONE = shape(gpu=1)


def blocks(builder: Builder, spared: frozenset[int] = frozenset()) -> list[str]:
    """Return the blocks: whose, whole or not, its pods as letters, and its GPUs."""
    found = Tenants(builder.snapshot(), spared, lambda row, at: (at, row), Disruptions(NO_BUDGETS))
    told = []
    for one, members, units, is_whole in zip(
        found.blocks, found.members, found.units, found.is_whole, strict=True
    ):
        pods = "".join(chr(97 + it.pod) if it.pod >= 0 else "+" for it in members)
        whose = ",".join(map(str, units))
        told.append(f"{whose} {'all' if is_whole else 'some'} {pods} {one.amounts[2] // 1000}")
    return told


def one(count: int = 1, **more: Any) -> Builder:
    """Return a unit of pods that run."""
    builder = Builder([Node()])
    builder.runs([0] * count, ONE, **more)
    return builder


def two(**more: Any) -> Builder:
    """Return two units of one bundle."""
    builder = Builder([Node()], [Queue("a"), Queue("b")])
    builder.runs([0], ONE, queue="a", bundle="x")
    builder.runs([0], ONE, bundle="x", **{"queue": "a", **more})
    return builder


def one_of_two() -> Builder:
    """Return two units of one bundle, of which one waits."""
    builder = Builder([Node()])
    builder.runs([0], ONE, bundle="x")
    builder.gang(1, ONE, bundle="x")
    return builder


def nested(minimum: int, there: int = 1) -> Builder:
    """Return a group of two leaves, of which so many are needed, and of each so many pods."""
    builder = Builder([Node()])
    row = builder.shape(ONE)
    for _ in range(2 * there):
        builder.lying(0, row)
    pods = {"m": tuple(range(there)), "n": tuple(range(there, 2 * there))}
    leaves = tuple(Leaf(name, 1, there=there, pods=of) for name, of in pods.items())
    builder.unit(Group("all", minimum, leaves), is_kept=True)
    return builder


def with_slot() -> Builder:
    """Return a unit that has a pod and a slot."""
    builder = Builder([Node()])
    row = builder.shape(ONE)
    builder.lying(0, row)
    slot = Slot(0, row, Cause.ANTICIPATED)
    builder.unit(Leaf("x", 2, there=1, slots=(slot,), later=1, later_shape=row), is_kept=True)
    return builder


def beside_slots() -> Builder:
    """Return a group that needs one child: a pod, or two later ones, for which it has slots."""
    builder = Builder([Node()])
    row = builder.shape(ONE)
    builder.lying(0, row)
    slots = (Slot(0, row, Cause.ANTICIPATED),) * 2
    later = Leaf("z", 2, slots=slots, later=2, later_shape=row)
    leaves = (Leaf("m", 1, there=1, pods=(0,)), later)
    builder.unit(Group("all", 1, leaves), is_kept=True)
    return builder


def lacking() -> Builder:
    """Return a group of which a child waits that is needed, and another has a pod on top."""
    builder = Builder([Node()])
    row = builder.shape(ONE)
    builder.lying(0, row)
    builder.lying(0, row)
    waiting = builder.pods(1, ONE)
    leaves = (Leaf("m", 1, there=2, pods=(0, 1)), Leaf("n", 1, waiting=waiting))
    builder.unit(Group("all", 2, leaves), is_kept=True)
    return builder


BLOCKS: list[Case[Builder, list[str]]] = [
    Case("a gang has one", one(3), ["0 all abc 3"]),
    Case(
        "what comes on top is lost pod by pod, in line the last one first",
        one(3, minimum=1),
        ["0 all abc 1", "0 some b 1", "0 some c 1"],
    ),
    Case("of a bundle nothing is on top", one(3, minimum=1, bundle="x"), ["0 all abc 3"]),
    Case("units of a bundle have one", two(), ["0,1 all ab 2"]),
    Case("unless one of them stays", two(stays="for a reason"), []),
    Case("or cannot be preempted", two(is_preemptible=False), []),
    Case("or is of another queue", two(queue="b"), []),
    Case("who cannot be preempted has none", one(is_preemptible=False), []),
    Case("who stays has none", one(stays="for a reason"), []),
    Case("a slot is lost with all", with_slot(), ["0 all a+ 2"]),
    Case("slots alone nobody keeps", beside_slots(), ["0 all a++ 3"]),
    Case("all children are needed", nested(2), ["0 all ab 2"]),
    Case("a child that is not needed goes whole", nested(1), ["0 all ab 1", "0 some b 1"]),
    Case(
        "where none is needed all go one by one",
        nested(0),
        ["0 all ab 0", "0 some a 1", "0 some b 1"],
    ),
    Case(
        "a child goes with what it could spare before",
        nested(1, there=2),
        ["0 all abcd 1", "0 some cd 1", "0 some b 1", "0 some d 1"],
    ),
]


@pytest.mark.parametrize("case", BLOCKS, ids=ids)
def test_blocks(case: Case[Builder, list[str]]) -> None:
    """Rules 35 and 36."""
    assert blocks(case.given) == case.want


ASKS: list[Case[Builder, list[list[int]]]] = [
    Case("a gang for all", one(3), [[3]]),
    Case("for what it needs, and then for one at a time", one(3, minimum=1), [[1], [1], [1]]),
    Case("units of a bundle each for itself", two(), [[1, 1]]),
    Case("who has nothing for nothing", one_of_two(), [[1]]),
    Case("of a bundle for what it needs", one(3, minimum=1, bundle="x"), [[1]]),
    Case("for what it holds", with_slot(), [[2]]),
    Case("for one child of two", beside_slots(), [[1]]),
    Case("who lacks something for what it cannot spare", lacking(), [[1], [1]]),
    Case("a child for what it could not spare", nested(1, there=2), [[1], [1], [1], [1]]),
]


@pytest.mark.parametrize("case", ASKS, ids=ids)
def test_what_would_be_asked_for_first(case: Case[Builder, list[list[int]]]) -> None:
    """Of each block, if it were to be had back: rule 32."""
    snapshot = case.given.snapshot()
    found = Tenants(snapshot, (), lambda row, at: (at, row), Disruptions(NO_BUDGETS))
    assert [[gpu // 1000 for *_, gpu in it.asks] for it in found.blocks] == case.want


def test_who_is_spared_has_none() -> None:
    """And nobody of his bundle."""
    assert blocks(two(), frozenset({1})) == []


def test_what_is_lost_is_gone() -> None:
    """A step leaves the others, with less in the whole; the whole leaves nothing."""
    found = Tenants(
        one(3, minimum=1).snapshot(), (), lambda row, at: (at, row), Disruptions(NO_BUDGETS)
    )
    assert found.lose(2) == [2]
    assert [it.pod for it in found.members[0]] == [0, 1]
    assert found.lose(0) == [0, 1]
    assert found.spare(0) == []


def test_who_loses_a_child_loses_what_it_could_spare() -> None:
    """In whatever order, and no more than that."""
    found, other = (
        Tenants(
            nested(1, there=2).snapshot(), (), lambda row, at: (at, row), Disruptions(NO_BUDGETS)
        )
        for _ in range(2)
    )
    assert sorted(found.lose(1)) == [1, 3]
    assert [it.pod for it in found.members[0]] == [0, 1]
    assert found.lose(2) == [2]

    assert other.lose(3) == [3]
    assert [it.pod for it in other.members[1]] == [2]
    assert other.amounts(1, other.members[1])[2] == 1000
    assert other.lose(1) == [1]
    assert [it.pod for it in other.members[0]] == [0, 1]


def test_who_loses_a_child_loses_what_is_inside_its_children() -> None:
    """And so on: here the pod of m on top, that of n, and then one of these."""
    builder = Builder([Node()])
    row = builder.shape(ONE)
    for _ in range(5):
        builder.lying(0, row)
    inner = (Leaf("m", 1, there=2, pods=(1, 2)), Leaf("n", 1, there=2, pods=(3, 4)))
    child = Group("z", 1, inner)
    builder.unit(Group("all", 1, (Leaf("a", 1, there=1, pods=(0,)), child)), is_kept=True)
    found = Tenants(builder.snapshot(), (), lambda row, at: (at, row), Disruptions(NO_BUDGETS))
    assert [it.pod for it in found.members[1]] == [1, 2, 3, 4]
    assert sorted(found.lose(1)) == [1, 2, 3, 4]


def test_who_is_given_something_keeps_all() -> None:
    """All its blocks are no more."""
    found = Tenants(
        one(2, minimum=1).snapshot(), (), lambda row, at: (at, row), Disruptions(NO_BUDGETS)
    )
    assert found.spare(0) == [0, 1]
    assert found.spare(0) == []
