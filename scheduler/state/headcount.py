"""How many pods of each gang are how far, and which pods are in the snapshot."""

from itertools import pairwise
from typing import Final

import numpy as np

from scheduler.core.model import NONE, Bools, Ints
from scheduler.state.gangs import Gang, Gangs
from scheduler.state.roll import (
    DONE,
    GATED,
    STATES,
    SUCCEEDED,
    THERE,
    WAITING,
    Roll,
)

__all__ = ["Headcount"]


class Headcount:
    """Counts of leaves, [seat, state]; and pods by row of the snapshot."""

    def __init__(self, roll: Roll, gangs: Gangs) -> None:
        self._roll: Final = roll
        self._gangs: Final = gangs
        seat, self.counts = gangs.seat[roll.kin], gangs.counts[roll.kin]
        codes = (seat * STATES + roll.state)[self.counts]
        table = np.bincount(codes, minlength=gangs.seats * STATES)
        self._table: Final[list[list[int]]] = table.reshape(-1, STATES).tolist()
        promised = sorted(number for number in roll.nominated if self.counts[number])
        self._promised: Final = set(gangs.gang[roll.kin[promised]].tolist())
        self.listed: Final = [gang for gang in gangs.gangs if self._is_listed(gang)]
        self.is_row: Final = self._rows()
        self.rows: Final = np.flatnonzero(self.is_row)
        self.row_of: Final[Ints] = np.cumsum(self.is_row) - 1
        self._waiting: Final = self._queue_up(seat)

    def of(self, gang: Gang, leaf: str, state: int) -> int:
        """Return how many pods of a leaf are so far."""
        seat = gang.seats.get(leaf)
        return 0 if seat is None else self._table[seat][state]

    def existing(self, gang: Gang, leaf: str) -> int:
        """Return how many pods of a leaf need not come any more."""
        states = (WAITING, GATED, THERE, SUCCEEDED)
        return sum(self.of(gang, leaf, state) for state in states)

    def later(self, gang: Gang, leaf: str) -> int:
        """Return how many pods of a leaf do not exist yet."""
        _, count = gang.later.get(leaf, (NONE, 0))
        return 0 if gang.is_suspended else max(count - self.existing(gang, leaf), 0)

    def is_begun(self, gang: Gang) -> bool:
        """Say whether some of a gang has its place, or the promise of one."""
        if gang.number in self._promised:
            return True
        return any(self._table[seat][THERE] for seat in gang.seats.values())

    def is_wanting(self, gang: Gang) -> bool:
        """Say whether a gang has begun, or some of it waits to."""
        return self.is_begun(gang) or any(self._table[s][WAITING] for s in gang.seats.values())

    def waiting(self, gang: Gang, leaf: str) -> tuple[int, ...]:
        """Return the rows of the pods of a leaf that wait, in the order of their placement."""
        return self._waiting.get(gang.seats.get(leaf, NONE), ())

    def _is_listed(self, gang: Gang) -> bool:
        """Say whether a gang wants or has anything; one that is suspended wants nothing."""
        states = (THERE,) if gang.is_suspended else (WAITING, GATED, THERE)
        return any(self._table[seat][state] for seat in gang.seats.values() for state in states)

    def _rows(self) -> Bools:
        """Return which pods are rows: what waits and counts, and whatever is on a node."""
        roll, gangs = self._roll, self._gangs
        is_listed = np.zeros(len(gangs.gangs) + 1, dtype=np.bool_)  # the last is of no gang
        is_suspended = np.zeros(len(gangs.gangs) + 1, dtype=np.bool_)
        for gang in self.listed:
            is_listed[gang.number] = True
            is_suspended[gang.number] = gang.is_suspended
        gang_of = gangs.gang[roll.kin]
        is_placed = (roll.state >= THERE) & (roll.state < DONE)
        may_wait = self.counts & ~(is_suspended[gang_of] & (roll.state < THERE))
        rows: Bools = is_listed[gang_of] & (may_wait | is_placed)
        rows |= gangs.is_alone[roll.kin] & (roll.state <= THERE)
        return rows

    def _queue_up(self, seat: Ints) -> dict[int, tuple[int, ...]]:
        """Return for each seat who waits there: by rank, then the oldest first."""
        roll = self._roll
        numbers = np.flatnonzero(self.counts & (roll.state == WAITING) & self.is_row)
        kins = roll.kin[numbers]
        ranks = np.zeros(len(roll.kins), dtype=np.int64)
        for kin in np.unique(kins).tolist():
            ranks[kin] = roll.kins[kin].rank
        order = np.lexsort((numbers, ranks[kins], seat[numbers]))
        numbers = numbers[order]
        seats, starts = np.unique(seat[numbers], return_index=True)
        rows = self.row_of[numbers].tolist()
        bounds = pairwise((*starts.tolist(), len(rows)))
        return {
            one: tuple(rows[start:end])
            for one, (start, end) in zip(seats.tolist(), bounds, strict=True)
        }
