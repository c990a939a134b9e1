"""How many pods of a shape there is room for, node by node, while room comes and goes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.core.field import Field
from scheduler.core.ledger import Ledger

__all__ = ["Seating"]

_ENDLESS: Final = 2**40  # for who asks for nothing


class Seating:
    """The seats of one shape, where nothing but room matters."""

    def __init__(self, ledger: Ledger, field: Field) -> None:
        self._ledger: Final = ledger
        self._asked: Final = tuple((r, n) for r, n in enumerate(field.shape.request) if n)
        self.is_open: Final[list[bool]] = field.fixed.tolist()
        self._seats: Final = self._all(field)
        self._seen = len(ledger.moves)
        self._tried: dict[int, int] = {}  # seats of nodes as they would be
        self._total = sum(self._seats)

    @property
    def total(self) -> int:
        """Return how many there would be."""
        return self._total

    def settle(self) -> None:
        """Forget what would be, and look again at the nodes that have changed."""
        moves = self._ledger.moves
        if not self._tried and self._seen == len(moves):
            return
        for node, seats in self._tried.items():
            self._total += self._seats[node] - seats
        self._tried.clear()
        for node in set(moves[self._seen :]):
            if self.is_open[node]:
                seats = self._on(self._ledger.room[node].tolist())
                self._total += seats - self._seats[node]
                self._seats[node] = seats
        self._seen = len(moves)

    def have(self, node: int, room: Sequence[int]) -> None:
        """Let a node have so much room, as it would be."""
        seats = self._on(room)
        self._total += seats - self._tried.get(node, self._seats[node])
        self._tried[node] = seats

    def _on(self, room: Sequence[int]) -> int:
        seats = _ENDLESS
        for resource, amount in self._asked:
            here = room[resource] // amount
            if here < seats:  # noqa: PLR1730 - asked for every block, and so faster
                seats = here
        return max(seats, 0)

    def _all(self, field: Field) -> list[int]:
        if not self._asked or not len(field.fixed):
            return [_ENDLESS if is_open else 0 for is_open in self.is_open]
        columns = [r for r, _ in self._asked]
        each = self._ledger.room[:, columns] // np.array([n for _, n in self._asked])
        seats: list[int] = np.where(field.fixed, each.min(axis=1).clip(min=0), 0).tolist()
        return seats
