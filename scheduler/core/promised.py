"""Who was promised a node, and before whom he has his turn.

What others lose for somebody is promised to him until they are gone. Dealt out anew it might go to
a third, and he would have to take from others once more.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final, TypeAlias

from scheduler.core.chunks import Chunk
from scheduler.core.model import NONE, Floats, Snapshot
from scheduler.core.rights import Bounds, Claim, Rights, Taking
from scheduler.core.usage import Amounts, Usage

__all__ = ["Promised"]

_Like: TypeAlias = tuple[int, int, bool, Amounts]


class Promised:
    """Of units that have their turns, those of whose next pods each was promised a node."""

    def __init__(
        self,
        snapshot: Snapshot,
        due: Floats,
        usage: Usage,
        parts: Callable[[int], Chunk],
        asked: Callable[[int], Amounts],
    ) -> None:
        """Take what a unit would be given next, and how much that is."""
        self._snapshot: Final = snapshot
        self._due: Final = due
        self._usage: Final = usage
        self._parts: Final = parts
        self._asked: Final = asked
        self._shapes: Final = {
            row for row, shape in enumerate(snapshot.shapes) if shape.nominated != NONE
        }
        self._like: Final[dict[int, _Like]] = {}
        self._units: Final[dict[_Like, set[int]]] = {}  # there may be many that are alike

    def expect(self, rows: Iterable[int]) -> None:
        """Take note of some who are to have their turns."""
        for row in rows if self._shapes else ():
            if self._is_promised(row):
                unit = self._snapshot.units[row]
                like = unit.queue, unit.priority, unit.is_preemptible, self._asked(row)
                self._like[row] = like
                self._units.setdefault(like, set()).add(row)

    def had_turn(self, row: int) -> None:
        """Forget somebody."""
        like = self._like.pop(row, None)
        if like is not None:
            self._units[like].remove(row)
            if not self._units[like]:
                del self._units[like]

    def ahead(self, row: int) -> list[int]:
        """Return who has his turn before a unit: who was promised what it could not take."""
        if not self._units or row in self._like:
            return []
        return [
            one
            for like, rows in self._units.items()
            if not self._could_take(row, like)
            for one in rows
        ]

    @cached_property
    def _bounds(self) -> Bounds:
        return Bounds(self._snapshot.queues, self._due)

    def _is_promised(self, row: int) -> bool:
        shape = self._snapshot.pods.shape
        pods = [pod for part in self._parts(row) for pod in part.pods]
        return bool(pods) and all(int(shape[pod]) in self._shapes for pod in pods)

    def _could_take(self, row: int, like: _Like) -> bool:
        """Say whether a unit could take from another what that was promised, if that had it."""
        unit, asks = self._snapshot.units[row], self._asked(row)
        queue, priority, is_preemptible, has = like
        if not is_preemptible:
            return False
        if unit.queue == queue:
            return unit.priority > priority
        usage = self._usage.copy()
        usage.take(queue, has, is_fixed=False)
        rights = Rights(self._bounds, usage, Claim(unit.queue, asks, not unit.is_preemptible))
        if not rights.has_claim or not rights.concerns(queue):
            return False
        taking = Taking(rights)
        may = taking.may_lose(queue)
        taking.take(queue, has)
        return may and taking.is_fair()
