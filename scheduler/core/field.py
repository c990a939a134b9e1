"""The nodes for pods of one shape, best first, kept up to date node by node.

Scores stand in rows of a few dozen nodes, and of each row the best is known, so that finding the
best of all and changing one cost the square root of the number of nodes and hardly anything.
"""

import math
from typing import Final

import numpy as np

from scheduler.core.feasible import fixed, is_unmoved, moving
from scheduler.core.ledger import Ledger
from scheduler.core.model import NONE
from scheduler.core.policy import Policies, Seats

__all__ = ["Field"]

_FEW: Final = 8  # a part of the nodes that are looked at again one by one, not all at once


class Field:
    """Where pods of a shape can go."""

    def __init__(self, ledger: Ledger, policies: Policies, shape: int) -> None:
        self.shape: Final = ledger.snapshot.shapes[shape]
        self._ledger: Final = ledger
        self._policies: Final = policies
        nodes = ledger.snapshot.nodes
        mask = fixed(ledger.snapshot, self.shape)
        for passes in policies.filters:
            mask &= passes(ledger.snapshot, self.shape)
        self.fixed: Final = mask
        axes = ledger.snapshot.axes
        self._columns: Final = list(axes.gpus) if self.shape.has_gpu else [axes.cpu]
        whole = nodes.allocatable[:, self._columns].sum(axis=1)
        self._whole: Final[list[int]] = whole.tolist()
        self._most: Final = max(self._whole, default=0)
        self._has_gpu: Final[list[bool]] = (
            nodes.allocatable[:, list(axes.gpus)].sum(axis=1) > 0
        ).tolist()
        self._asked: Final = tuple((r, n) for r, n in enumerate(self.shape.request) if n)
        self.is_unmoved: Final = is_unmoved(self.shape)
        width = max(1, math.isqrt(len(nodes.names)))
        self._width: Final = width
        self._scores = np.full(-(-len(nodes.names) // width) * width, -math.inf)
        self._rows = self._scores.reshape(-1, width)
        self._tops = self._rows.max(axis=1) if len(nodes.names) else np.full(1, -math.inf)
        self._seen = 0
        self._turns = 0
        self._look_at_all()

    def best(self) -> int:
        """Return the best node, or NONE."""
        self._look_again()
        row = int(self._tops.argmax())
        if self._tops[row] == -math.inf:
            return NONE
        return row * self._width + int(self._rows[row].argmax())

    def takes(self, node: int) -> bool:
        """Say whether a node would do."""
        self._look_again()
        return bool(self._scores[node] != -math.inf)

    def _look_again(self) -> None:
        moves = self._ledger.moves
        if self._seen == len(moves):
            return
        is_out_of_date = not self.is_unmoved and self._turns != self._ledger.turns
        if is_out_of_date or (len(moves) - self._seen) * _FEW > len(self._whole):
            self._look_at_all()
            return
        for node in moves[self._seen :]:
            self._look_at(node)
        self._seen = len(moves)

    def _look_at_all(self) -> None:
        ledger = self._ledger
        self._seen, self._turns = len(ledger.moves), ledger.turns
        if not self._whole:
            return
        mask = self.fixed.copy()
        open_to_it = None if self.is_unmoved else moving(ledger, self.shape)
        if open_to_it is not None:
            mask &= open_to_it
        self._open = mask.tolist()
        columns = [r for r, _ in self._asked]
        request = np.array([n for _, n in self._asked])
        mask &= (ledger.room[:, columns] >= request).all(axis=1)
        seats = Seats(
            room=ledger.room[:, self._columns].sum(axis=1),
            whole=np.array(self._whole),
            most=self._most,
            fits_now=(ledger.idle[:, columns] >= request).all(axis=1),
            has_gpu=np.array(self._has_gpu),
            is_nominated=np.equal(np.arange(len(mask)), self.shape.nominated),
        )
        self._scores[: len(mask)] = np.where(mask, self._liking(seats), -math.inf)
        self._tops = self._rows.max(axis=1)

    def _look_at(self, node: int) -> None:
        if not self._open[node]:
            return
        room = self._ledger.room[node].tolist()
        score = -math.inf
        if all(room[r] >= n for r, n in self._asked):
            idle = self._ledger.idle[node].tolist()
            seats = Seats(
                room=sum([room[r] for r in self._columns]),
                whole=self._whole[node],
                most=self._most,
                fits_now=all(idle[r] >= n for r, n in self._asked),
                has_gpu=self._has_gpu[node],
                is_nominated=node == self.shape.nominated,
            )
            score = self._liking(seats)
        row = node // self._width
        self._scores[node] = score
        self._tops[row] = self._rows[row].max()

    def _liking(self, seats: Seats) -> float:
        """Return how much the nodes are liked: of all of them an array, of one a number."""
        liking: float = sum([w * score(self.shape, seats) for w, score in self._policies.scores])
        return liking
