"""Whom to take: against all sets there are, as long as those can be counted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.search import choose
from tests.support.case import Case, ids
from tests.support.size import examples


class One(NamedTuple):
    """Somebody who may be taken: what he has of each node, and the queue that loses it."""

    queue: int
    has: dict[int, int]


@dataclass
class Town:
    """Nodes, queues that may lose while they have too much, and seats that somebody needs."""

    people: Sequence[One]
    surplus: list[int]  # of each queue
    seats: int
    size: int
    grace: int = 100  # by so much one queue may lose more than the other
    nodes: int = 3
    room: list[int] = field(init=False)
    lost: list[int] = field(init=False)
    asked: int = 0  # about room
    refused: int = 0
    gone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.room = [0] * self.nodes
        self.lost = [0] * len(self.surplus)

    def may_lose(self, candidate: int) -> bool:
        """Say whether his queue still has too much."""
        may = self.surplus[self.people[candidate].queue] > 0
        self.refused += not may
        return may

    def take(self, candidate: int) -> None:
        """Make room."""
        self.gone.add(candidate)
        self._move(self.people[candidate], 1)

    def spare(self, candidate: int) -> None:
        """Give it back."""
        self.gone.remove(candidate)
        self._move(self.people[candidate], -1)

    def has_room(self) -> bool:
        """Count the seats."""
        self.asked += 1
        return sum(room // self.size for room in self.room) >= self.seats

    def is_fair(self) -> bool:
        """Be asked only of who may be taken and is needed: else it would be told in vain."""
        assert self._is_lawful(), "somebody is gone who may not be"
        assert not any(self._is_spare(one) for one in self.gone), "somebody is gone in vain"
        return self.is_even()

    def is_even(self) -> bool:
        """Compare what the first queue lost with what the second one did."""
        return self.lost[0] <= self.lost[1] + self.grace

    def _is_lawful(self) -> bool:
        left = [has + lost for has, lost in zip(self.surplus, self.lost, strict=True)]
        for one in (self.people[rank] for rank in sorted(self.gone)):
            if left[one.queue] <= 0:
                return False
            left[one.queue] -= sum(one.has.values())
        return True

    def _is_spare(self, candidate: int) -> bool:
        room = self.room.copy()
        for node, amount in self.people[candidate].has.items():
            room[node] -= amount
        return sum(it // self.size for it in room) >= self.seats

    def _move(self, one: One, sign: int) -> None:
        self.surplus[one.queue] -= sign * sum(one.has.values())
        self.lost[one.queue] += sign * sum(one.has.values())
        for node, amount in one.has.items():
            self.room[node] += sign * amount


def does(town: Town, ranks: Sequence[int]) -> bool:
    """Say whether a set does."""
    taken = []
    for rank in ranks:
        if not town.may_lose(rank):
            break
        town.take(rank)
        taken.append(rank)
    enough = len(taken) == len(ranks) and town.has_room() and town.is_even()
    for rank in taken:
        town.spare(rank)
    return enough


def leave_room(town: Town, ranks: Sequence[int]) -> bool:
    """Say whether a set leaves room enough, whether it may be taken or not."""
    for rank in ranks:
        town.take(rank)
    enough = town.has_room()
    for rank in ranks:
        town.spare(rank)
    return enough


def all_that_do(town: Town) -> Iterator[tuple[int, ...]]:
    """Yield every set that does, and of which everybody is needed for there to be room."""
    count = len(town.people)
    for number in range(1, count + 1):
        for ranks in combinations(range(count), number):
            fewer = combinations(ranks, number - 1)
            if does(town, ranks) and not any(leave_room(town, some) for some in fewer):
                yield ranks


PEOPLE = st.builds(
    One,
    st.integers(0, 1),
    st.dictionaries(st.integers(0, 2), st.integers(1, 4), min_size=1, max_size=2),
)
TOWNS = st.builds(
    Town,
    st.lists(PEOPLE, max_size=8),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    seats=st.integers(1, 3),
    size=st.integers(1, 4),
    grace=st.integers(0, 9),
)


@given(TOWNS)
@settings(max_examples=examples(200))
def test_of_eight_it_is_the_first_of_all_sets(town: Town) -> None:
    """If any does."""
    wanted = min(all_that_do(town), default=None)
    choice = choose(len(town.people), town)
    assert choice.ranks == wanted
    assert not choice.is_cut


@given(TOWNS, st.integers(0, 40))
@settings(max_examples=examples(200))
def test_with_any_limit_it_does(town: Town, limit: int) -> None:
    """What is found is enough, and nobody of it can be spared."""
    do = sorted(all_that_do(town))
    choice = choose(len(town.people), town, limit)
    assert choice.tried <= limit
    assert choice.ranks is None or choice.ranks in do
    if not choice.is_cut:
        assert choice.ranks == (do[0] if do else None)


# who may be taken, for a seat of four -> who is
CHOSEN: list[Case[list[One], tuple[int, ...] | None]] = [
    Case("nobody", [], None),
    Case("the first who is enough", [One(0, {0: 4}), One(0, {1: 4})], (0,)),
    Case("not who only makes it less", [One(0, {1: 3}), One(0, {0: 4})], (1,)),
    Case("two who lie on one node", [One(0, {0: 2}), One(0, {1: 2}), One(0, {0: 2})], (0, 2)),
    Case("nobody of whom not enough is to be had", [One(0, {0: 2}), One(1, {1: 2})], None),
    Case(
        "the first as one of two, before one alone",
        [One(0, {0: 2}), One(0, {1: 4}), One(0, {0: 2})],
        (0, 2),
    ),
    Case("another one, where the first stands in the way", [One(1, {0: 2}), One(1, {1: 4})], (1,)),
]


@pytest.mark.parametrize("case", CHOSEN, ids=ids)
def test_who_is_chosen(case: Case[list[One], tuple[int, ...] | None]) -> None:
    """The first set: smaller ranks before fewer."""
    town = Town(case.given, [100, 1], seats=1, size=4)
    assert choose(len(case.given), town).ranks == case.want


def test_of_thousands_few_sets_are_tried() -> None:
    """Each node is swept once for each of its eight, and only the first one is given up.

    No more than those eight might be taken: that the others are is only to see who is in the way.
    """
    people = [One(0, {node: 1}) for _ in range(8) for node in range(500)]
    town = Town(people, [8, 0], seats=1, size=8, nodes=500)
    choice = choose(len(people), town)
    assert choice.ranks == tuple(range(0, 4000, 500))
    assert town.asked <= 2 * 3501
    assert choice.tried == 256
    assert town.refused <= 4000 + 256


def test_where_there_is_never_room_nothing_is_tried() -> None:
    """Everybody together leaves too little: that is proof enough."""
    town = Town([One(0, {0: 1})] * 100, [1000, 0], seats=1, size=101)
    assert choose(100, town) == (None, 0, False)
    assert town.asked == 8  # of 1, 2, 4 and so on, and of all


def test_nothing_is_asked_twice() -> None:
    """One who is enough is one question; of two in one queue the first, and both."""
    one = Town([One(0, {0: 4})], [9, 0], seats=1, size=4)
    assert (choose(1, one).ranks, one.asked) == ((0,), 1)
    two = Town([One(0, {0: 2}), One(0, {0: 2})], [9, 0], seats=1, size=4)
    assert (choose(2, two).ranks, two.asked) == ((0, 1), 3)  # and the second alone
