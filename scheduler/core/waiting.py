"""Who waits before a claimant in its queue: to them the room would go, were it dealt out anew."""

from typing import Final

from scheduler.core.displace import EvictionSession
from scheduler.core.model import UnschedulableReason
from scheduler.core.order import keys_by_queue
from scheduler.core.usage import Amounts

__all__ = ["EarlierPending"]


class EarlierPending:
    """Who waits in each queue, and so has its turn before others of it."""

    def __init__(self, plan_result: EvictionSession) -> None:
        """Look at all who wait now."""
        self._eviction_session: Final = plan_result
        self._session: Final = plan_result.session
        session = plan_result.session
        report = session.rejections
        rows = [row for row in session.attempts if row in report]
        podgroups = session.snapshot.podgroups
        self._keys: Final = keys_by_queue(
            (podgroups[row].queue, session.attempts[row].key)
            for row in rows
            if report[row].reason > UnschedulableReason.PODS_MISSING
        )
        self._seen: Final = dict.fromkeys(self._keys, 0)
        self._requests: Final[dict[int, dict[Amounts, int]]] = {queue: {} for queue in self._keys}

    def requests_before(self, row: int) -> dict[Amounts, int]:
        """Return what is asked for by those that have their turns before a unit, and by whom first.

        It is asked for those of a queue in their order.
        """
        queue = self._session.snapshot.podgroups[row].queue
        key = self._session.attempts[row].key
        keys, seen = self._keys[queue], self._seen[queue]
        while seen < len(keys) and keys[seen] < key:
            one = keys[seen][-1]
            if one in self._session.rejections and one not in self._eviction_session.preemptors:
                self._requests[queue].setdefault(self._session.attempts[one].amounts, one)
            seen += 1
        self._seen[queue] = seen
        return self._requests[queue]
