"""Who was promised a node, and whose queue therefore has its turn earlier.

What others lose for somebody is promised to him until they are gone. Dealt out anew it might go to
a third who is due no more, and he would have to take from others once more.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final

from scheduler.core.chunks import Chunk
from scheduler.core.model import NONE, Floats, Snapshot
from scheduler.core.rights import Bounds, Claim, Rights
from scheduler.core.usage import Amounts, Usage

__all__ = ["Promised"]


class Promised:
    """Of units that have their turns, those of whose next pods each was promised a node."""

    def __init__(
        self, snapshot: Snapshot, due: Floats, usage: Usage, asked: Callable[[int], Amounts]
    ) -> None:
        """Take how much a unit would be given next."""
        self._snapshot: Final = snapshot
        self._due: Final = due
        self._usage: Final = usage
        self._asked: Final = asked
        self._shapes: Final = {
            row for row, shape in enumerate(snapshot.shapes) if shape.nominated != NONE
        }
        self._waiting: Final[set[int]] = set()
        self._below: Final[Counter[int]] = Counter()  # how many, by queue

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def holds(self, parts: Chunk) -> bool:
        """Say whether each of these pods was promised a node; there must be some."""
        shape = self._snapshot.pods.shape
        pods = [pod for part in parts for pod in part.pods]
        return bool(pods) and all(int(shape[pod]) in self._shapes for pod in pods)

    def expect(self, rows: Iterable[int]) -> bool:
        """Take note of some who were promised something, and are to have their turns; if any."""
        for row in rows:
            self._waiting.add(row)
            self._below.update(self._usage.paths[self._snapshot.units[row].queue])
        return bool(self._waiting)

    def had_turn(self, row: int) -> None:
        """Forget somebody."""
        if row in self._waiting:
            self._waiting.remove(row)
            self._below.subtract(self._usage.paths[self._snapshot.units[row].queue])

    def is_early(self, queue: int, row: int) -> bool:
        """Say whether a queue, of which a unit is the first, comes before those that are due less.

        It does if anybody below it was promised something, or if the unit might claim it.
        """
        return self._below[queue] > 0 or self._has_claim(row)

    @cached_property
    def _bounds(self) -> Bounds:
        return Bounds(self._snapshot.queues, self._due)

    def _has_claim(self, row: int) -> bool:
        unit = self._snapshot.units[row]
        claim = Claim(unit.queue, self._asked(row), not unit.is_preemptible)
        rights = Rights(self._bounds, self._usage, claim)
        return rights.has_claim and not any(
            self._bounds.is_quota_only(queue) and not rights.is_owed(queue)
            for queue in self._usage.paths[unit.queue]
        )
