"""Who was promised a node, and whose queue therefore has its turn first.

What others lose for somebody is promised to him until they are gone. Dealt out anew it might go to
a third, or back to who lost it: then it was taken for nothing, and is taken once more.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from scheduler.core.chunks import Tasks
from scheduler.core.model import NONE, Snapshot
from scheduler.core.usage import Usage

__all__ = ["NominatedPodGroups"]


class NominatedPodGroups:
    """Of units that have their turns, those of whose next pods each was promised a node."""

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._usage: Final = usage
        self._nominated_signatures: Final = {
            row
            for row, signature in enumerate(snapshot.signatures)
            if signature.nominated_node != NONE
        }
        self._pending: Final[set[int]] = set()
        self._pending_below: Final[Counter[int]] = Counter()  # how many, by queue

    def __bool__(self) -> bool:
        return bool(self._nominated_signatures)

    def all_nominated(self, tasks: Tasks) -> bool:
        """Say whether each of these pods was promised a node; there must be some."""
        signature = self._snapshot.pods.signature
        pods = [pod for podset_tasks in tasks for pod in podset_tasks.pods]
        return bool(pods) and all(self.is_nominated(int(signature[pod])) for pod in pods)

    def is_nominated(self, signature: int) -> bool:
        """Say whether pods of a shape were promised a node."""
        return signature in self._nominated_signatures

    def add_pending(self, rows: Iterable[int]) -> bool:
        """Take note of some who were promised something, and are to have their turns; if any."""
        for row in rows:
            self._pending.add(row)
            self._pending_below.update(self._usage.paths[self._snapshot.podgroups[row].queue])
        return bool(self._pending)

    def attempted(self, row: int) -> None:
        """Forget somebody."""
        if row in self._pending:
            self._pending.remove(row)
            self._pending_below.subtract(self._usage.paths[self._snapshot.podgroups[row].queue])

    def rank(self, queue: int, best: int) -> int:
        """Return 0 for a queue whose best unit was promised something, 1 if others were, else 2.

        Who was promised nothing comes early only as long as its queue has to, and is not to take
        what other queues were promised.
        """
        if best in self._pending:
            return 0
        return 1 if self._pending_below[queue] > 0 else 2
