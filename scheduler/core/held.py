"""Room that is set aside for whoever was promised it, until his turn.

Nobody else sees it but those who come before him in his own queue, and they only where there is no
other room for them: had he bound it first, they would take it from him.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.ledger import Ledger
from scheduler.core.model import NONE, Ints, Snapshot

__all__ = ["Held"]


class _Promise(NamedTuple):
    row: int
    nodes: Ints  # [pod]
    amounts: Ints  # [pod, resource]


class Held:
    """What is set aside, by queue and unit."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self._snapshot: Final = snapshot
        self._ledger: Final = ledger
        self._of: Final[dict[int, dict[int, _Promise]]] = {}
        self._lifted: list[_Promise] = []

    def __bool__(self) -> bool:
        return bool(self._of)

    def has(self, queue: int) -> bool:
        """Say whether anything is set aside for units of a queue."""
        return queue in self._of

    def hold(self, units: Iterable[tuple[int, tuple[int, ...]]]) -> None:
        """Set aside what units were promised, by their shapes; for each all of it, if it fits."""
        self._keep([self._promise(row, shapes) for row, shapes in units])

    def let_go(self, row: int) -> bool:
        """Leave it to a unit whose turn has come, if something is set aside for it."""
        queue = self._snapshot.units[row].queue
        mine = self._of.get(queue, {})
        if row not in mine:
            return False
        self._give_back([mine.pop(row)])
        if not mine:
            del self._of[queue]
        return True

    def lift(self, queue: int) -> None:
        """Let somebody of a queue have what is set aside for others of it."""
        self._lifted = list(self._of.pop(queue).values())
        self._give_back(self._lifted)

    def put_back(self) -> None:
        """Set aside again what was lifted and is still there."""
        self._keep(sorted(self._lifted))  # the oldest first
        self._lifted = []

    def _promise(self, row: int, shapes: tuple[int, ...]) -> _Promise:
        every = [self._snapshot.shapes[shape] for shape in shapes]
        some = [one for one in every if one.nominated != NONE]
        nodes = np.array([one.nominated for one in some], dtype=np.int64)
        return _Promise(row, nodes, np.array([one.request for one in some], dtype=np.int64))

    def _keep(self, promises: list[_Promise]) -> None:
        """Set aside each of these that fits, in order: all at once, or else by halves."""
        if not promises:
            return
        nodes, amounts = _together(promises)
        self._ledger.set_aside(nodes, amounts)
        if ((self._ledger.room[nodes] >= 0) | (amounts == 0)).all():
            for one in promises:
                self._of.setdefault(self._snapshot.units[one.row].queue, {})[one.row] = one
            return
        self._ledger.set_aside(nodes, -amounts)
        if len(promises) > 1:
            half = len(promises) // 2
            self._keep(promises[:half])
            self._keep(promises[half:])

    def _give_back(self, promises: list[_Promise]) -> None:
        if promises:
            nodes, amounts = _together(promises)
            self._ledger.set_aside(nodes, -amounts)


def _together(promises: list[_Promise]) -> tuple[Ints, Ints]:
    if len(promises) == 1:
        return promises[0].nodes, promises[0].amounts
    nodes = np.concatenate([one.nodes for one in promises])
    return nodes, np.concatenate([one.amounts for one in promises])
