"""A scenario of numbers, on which the solver chooses victims."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Candidate(NamedTuple):
    """A possible victim: what it has of each node, and the queue that loses it."""

    queue: int
    amount: dict[int, int]


@dataclass
class FakeScenario:
    """Nodes, queues that may lose while they have too much, and seats that are needed."""

    candidates: Sequence[Candidate]
    surplus: list[int]  # of each queue
    per_candidate: int
    size: int
    tolerance: int = 100  # by so much one queue may lose more than the other
    nodes: int = 3
    room: list[int] = field(init=False)
    evicted_amounts: list[int] = field(init=False)
    asked: int = 0  # about room
    refused: int = 0
    evicted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.room = [0] * self.nodes
        self.evicted_amounts = [0] * len(self.surplus)

    def may_evict(self, candidate: int) -> bool:
        may = self.surplus[self.candidates[candidate].queue] > 0
        self.refused += not may
        return may

    def evict(self, candidate: int) -> None:
        self.evicted.add(candidate)
        self._change(self.candidates[candidate], 1)

    def restore(self, candidate: int) -> None:
        self.evicted.remove(candidate)
        self._change(self.candidates[candidate], -1)

    def fits(self) -> bool:
        self.asked += 1
        return sum(room // self.size for room in self.room) >= self.per_candidate

    def is_valid(self) -> bool:
        """Be asked only of victims that are allowed and needed: else it would be asked in vain."""
        assert self._is_allowed(), "a candidate is evicted that may not be"
        assert not any(self._is_spare(one) for one in self.evicted), "evicted in vain"
        return self.is_balanced()

    def is_balanced(self) -> bool:
        """Compare what the first queue lost with what the second one did."""
        return self.evicted_amounts[0] <= self.evicted_amounts[1] + self.tolerance

    def _is_allowed(self) -> bool:
        left = [
            has + evicted for has, evicted in zip(self.surplus, self.evicted_amounts, strict=True)
        ]
        for one in (self.candidates[rank] for rank in sorted(self.evicted)):
            if left[one.queue] <= 0:
                return False
            left[one.queue] -= sum(one.amount.values())
        return True

    def _is_spare(self, candidate: int) -> bool:
        room = self.room.copy()
        for node, amount in self.candidates[candidate].amount.items():
            room[node] -= amount
        return sum(it // self.size for it in room) >= self.per_candidate

    def _change(self, one: Candidate, sign: int) -> None:
        self.surplus[one.queue] -= sign * sum(one.amount.values())
        self.evicted_amounts[one.queue] += sign * sum(one.amount.values())
        for node, amount in one.amount.items():
            self.room[node] += sign * amount
