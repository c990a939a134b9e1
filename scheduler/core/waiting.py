"""Who waits before a claimant in its queue: to them the room would go, were it dealt out anew."""

from typing import Final

from scheduler.core.displace import Displacement
from scheduler.core.model import Verdict
from scheduler.core.order import by_queue
from scheduler.core.usage import Amounts

__all__ = ["Waiting"]


class Waiting:
    """Who waits in each queue, and so has its turn before others of it."""

    def __init__(self, made: Displacement) -> None:
        """Look at all who wait now."""
        self._made: Final = made
        self._allocation: Final = made.allocation
        allocation = made.allocation
        told = allocation.rejections
        rows = [row for row in allocation.next if row in told]
        units = allocation.snapshot.units
        self._keys: Final = by_queue(
            (units[row].queue, allocation.next[row].key)
            for row in rows
            if told[row].verdict > Verdict.PODS_MISSING
        )
        self._seen: Final = dict.fromkeys(self._keys, 0)
        self._asks: Final[dict[int, dict[Amounts, int]]] = {queue: {} for queue in self._keys}

    def asks(self, row: int) -> dict[Amounts, int]:
        """Return what is asked for by those that have their turns before a unit, and by whom first.

        It is asked for those of a queue in their order.
        """
        queue = self._allocation.snapshot.units[row].queue
        key = self._allocation.next[row].key
        keys, seen = self._keys[queue], self._seen[queue]
        while seen < len(keys) and keys[seen] < key:
            one = keys[seen][-1]
            if one in self._allocation.rejections and one not in self._made.served:
                self._asks[queue].setdefault(self._allocation.next[one].amounts, one)
            seen += 1
        self._seen[queue] = seen
        return self._asks[queue]
