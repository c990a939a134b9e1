"""Who was promised a node, and whose queue therefore has its turn first.

What others lose for somebody is promised to him until they are gone. Dealt out anew it might go to
a third, or back to who lost it: then it was taken for nothing, and is taken once more.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from scheduler.core.chunks import Chunk
from scheduler.core.model import NONE, Snapshot
from scheduler.core.usage import Usage

__all__ = ["Promised"]


class Promised:
    """Of units that have their turns, those of whose next pods each was promised a node."""

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._usage: Final = usage
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
        return bool(pods) and all(self.is_one(int(shape[pod])) for pod in pods)

    def is_one(self, shape: int) -> bool:
        """Say whether pods of a shape were promised a node."""
        return shape in self._shapes

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

    def lateness(self, queue: int, best: int) -> int:
        """Return 0 for a queue whose best unit was promised something, 1 if others were, else 2.

        Who was promised nothing comes early only as long as its queue has to, and is not to take
        what other queues were promised.
        """
        if best in self._waiting:
            return 0
        return 1 if self._below[queue] > 0 else 2
