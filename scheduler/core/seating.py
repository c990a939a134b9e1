"""How many pods of a shape there is room for, node by node, while room comes and goes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.core.field import NodeRanking
from scheduler.core.ledger import Statement

__all__ = ["PodCapacity"]

_UNLIMITED: Final = 2**40  # for who asks for nothing


class PodCapacity:
    """The seats of one shape, where nothing but room matters."""

    def __init__(self, statement: Statement, field: NodeRanking) -> None:
        self._statement: Final = statement
        self._requests: Final = tuple((r, n) for r, n in enumerate(field.signature.request) if n)
        self.is_open: Final[list[bool]] = field.fits_empty.tolist()
        self._per_node: Final = self._fitting_on_all(field)
        self._seen = len(statement.changed_nodes)
        self._trial: dict[int, int] = {}  # seats of nodes as they would be
        self._total = sum(self._per_node)

    @property
    def total(self) -> int:
        """Return how many there would be."""
        return self._total

    def refresh(self) -> None:
        """Forget what would be, and look again at the nodes that have changed."""
        moves = self._statement.changed_nodes
        if not self._trial and self._seen == len(moves):
            return
        for node, seats in self._trial.items():
            self._total += self._per_node[node] - seats
        self._trial.clear()
        for node in set(moves[self._seen :]):
            if self.is_open[node]:
                seats = self._fitting(self._statement.free[node].tolist())
                self._total += seats - self._per_node[node]
                self._per_node[node] = seats
        self._seen = len(moves)

    def set_free(self, node: int, room: Sequence[int]) -> None:
        """Let a node have so much room, as it would be."""
        seats = self._fitting(room)
        self._total += seats - self._trial.get(node, self._per_node[node])
        self._trial[node] = seats

    def _fitting(self, room: Sequence[int]) -> int:
        seats = _UNLIMITED
        for resource, amount in self._requests:
            here = room[resource] // amount
            if here < seats:  # noqa: PLR1730 - asked for every block, and so faster
                seats = here
        return max(seats, 0)

    def _fitting_on_all(self, field: NodeRanking) -> list[int]:
        if not self._requests or not len(field.fits_empty):
            return [_UNLIMITED if is_open else 0 for is_open in self.is_open]
        columns = [r for r, _ in self._requests]
        each = self._statement.free[:, columns] // np.array([n for _, n in self._requests])
        seats: list[int] = np.where(field.fits_empty, each.min(axis=1).clip(min=0), 0).tolist()
        return seats
