"""The nodes for pods of one shape, best first, kept up to date node by node.

Scores stand in rows of a few dozen nodes, and of each row the best is known, so that finding the
best of all and changing one cost the square root of the number of nodes and hardly anything.
"""

import math
from typing import Final

import numpy as np

from scheduler.core.feasible import fixed, is_unmoved, moving, until_uneven
from scheduler.core.ledger import Ledger, holds
from scheduler.core.model import NONE, Ints, Snapshot
from scheduler.core.policy import Policies, Seats

__all__ = ["Field", "Ground"]

_FEW: Final = 8  # a part of the nodes that are looked at again one by one, not all at once


class Ground:
    """What all pods that count the same resource see of nodes: GPUs, or else CPU."""

    def __init__(self, snapshot: Snapshot, *, has_gpu: bool) -> None:
        axes, allocatable = snapshot.axes, snapshot.nodes.allocatable
        self.columns: Final = list(axes.gpus) if has_gpu else [axes.cpu]
        self.whole: Final[Ints] = allocatable[:, self.columns].sum(axis=1)
        self.has_gpu: Final = allocatable[:, list(axes.gpus)].sum(axis=1) > 0
        self.wholes: Final[list[int]] = self.whole.tolist()
        self.have_gpus: Final[list[bool]] = self.has_gpu.tolist()
        self.most: Final = max(self.wholes, default=0)


class Field:
    """Where pods of a shape can go."""

    def __init__(self, ledger: Ledger, policies: Policies, shape: int, ground: Ground) -> None:
        self.shape: Final = ledger.snapshot.shapes[shape]
        self._row: Final = shape
        self._ledger: Final = ledger
        self._policies: Final = policies
        self._ground: Final = ground
        self.fixed: Final = fixed(ledger.snapshot, self.shape)
        self._asked: Final = tuple((r, n) for r, n in enumerate(self.shape.request) if n)
        self.is_unmoved: Final = is_unmoved(self.shape)
        self._open = self.fixed  # to which no other pod closes the way
        count = len(self.fixed)
        width = max(1, math.isqrt(count))
        self._width: Final = width
        self._scores = np.full(-(-count // width) * width, -math.inf)
        self._rows = self._scores.reshape(-1, width)
        self._tops = self._rows.max(axis=1) if count else np.full(1, -math.inf)
        self._liked: Final[dict[Seats, float]] = {}  # how much a node is liked that looks so
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

    def in_a_row(self, node: int, most: int) -> int:
        """Return how many of so many equal pods the best node gets, one by one, before another.

        Of pods that mind each other no more than keep open what is open. All of them fit into what
        is idle, or none does.
        """
        if not self.is_unmoved:
            most = int(min(most, self._while_open(node)))
        if most == 1:
            return 1
        idle, room = self._ledger.idle[node], self._ledger.room[node]
        fitting = min([most, *(int(room[r]) // n for r, n in self._asked)])
        before = np.arange(fitting)
        is_idle = [idle[r] - before * n >= n for r, n in self._asked]
        ground, request = self._ground, self.shape.request
        seats = Seats(
            room=room[ground.columns].sum() - before * sum([request[r] for r in ground.columns]),
            whole=ground.wholes[node],
            most=ground.most,
            fits_now=np.logical_and.reduce([before >= 0, *is_idle]),
            has_gpu=ground.have_gpus[node],
            is_nominated=node == self.shape.nominated,
        )
        liking, (other, likes) = self._liking(seats), self._next_to(node)
        is_last = liking <= likes if other < node else liking < likes
        is_last = is_last | (seats.fits_now != seats.fits_now[0])
        return int(is_last.argmax()) if is_last.any() else fitting

    def _while_open(self, node: int) -> float:
        """Return how many more pods leave all nodes open and closed that are so with the last one.

        What pods say of each other asks whether one is there, so that only the first one changes
        it; a spread asks how many are.
        """
        if not self._ledger.came_last(node, self._row):
            return 1
        return until_uneven(self._ledger, self.shape, node)

    def _next_to(self, node: int) -> tuple[int, float]:
        """Return which node would be the best without the best one, and how much it is liked."""
        at, place = divmod(node, self._width)
        was, self._rows[at, place] = self._rows[at, place], -math.inf
        tops = self._tops.copy()
        tops[at] = self._rows[at].max()
        row = int(tops.argmax())
        found = row * self._width + int(self._rows[row].argmax()), float(tops[row])
        self._rows[at, place] = was
        return found

    def takes(self, node: int) -> bool:
        """Say whether a node would do."""
        self._look_again()
        return bool(self._scores[node] != -math.inf)

    def _look_again(self) -> None:
        moves = self._ledger.moves
        if self._seen == len(moves):
            return
        is_out_of_date = not self.is_unmoved and self._turns != self._ledger.turns
        if is_out_of_date or (len(moves) - self._seen) * _FEW > len(self.fixed):
            self._look_at_all()
            return
        for node in set(moves[self._seen :]):
            self._look_at(node)
        self._seen = len(moves)

    def _look_at_all(self) -> None:
        ledger = self._ledger
        self._seen, self._turns = len(ledger.moves), ledger.turns
        if not len(self.fixed):
            return
        open_to_it = None if self.is_unmoved else moving(ledger, self.shape)
        self._open = self.fixed if open_to_it is None else self.fixed & open_to_it
        columns = [r for r, _ in self._asked]
        request = np.array([n for _, n in self._asked])
        mask = self._open & (ledger.room[:, columns] >= request).all(axis=1)
        seats = Seats(
            room=ledger.room[:, self._ground.columns].sum(axis=1),
            whole=self._ground.whole,
            most=self._ground.most,
            fits_now=(ledger.idle[:, columns] >= request).all(axis=1),
            has_gpu=self._ground.has_gpu,
            is_nominated=np.equal(np.arange(len(mask)), self.shape.nominated),
        )
        self._scores[: len(mask)] = np.where(mask, self._liking(seats), -math.inf)
        self._tops = self._rows.max(axis=1)

    def _look_at(self, node: int) -> None:
        if not self._open[node]:
            return
        room = self._ledger.room[node].tolist()
        score = -math.inf
        if holds(room, self._asked):
            idle = self._ledger.idle[node].tolist()
            ground = self._ground
            seats = Seats(
                room=sum([room[r] for r in ground.columns]),
                whole=ground.wholes[node],
                most=ground.most,
                fits_now=holds(idle, self._asked),
                has_gpu=ground.have_gpus[node],
                is_nominated=node == self.shape.nominated,
            )
            if seats not in self._liked:
                self._liked[seats] = self._liking(seats)
            score = self._liked[seats]
        row = node // self._width
        was, top = self._scores[node], self._tops[row]
        self._scores[node] = score
        if score >= top:
            self._tops[row] = score
        elif was == top:
            self._tops[row] = self._rows[row].max()

    def _liking(self, seats: Seats) -> float:
        """Return how much the nodes are liked: of all of them an array, of one a number."""
        liking: float = sum([w * score(self.shape, seats) for w, score in self._policies.scores])
        return liking
