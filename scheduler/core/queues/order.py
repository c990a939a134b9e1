"""Which PodGroup is next: the order of queues, and in each queue the order of its PodGroups.

A queue's place among its siblings depends on its allocation and on the request of its best
PodGroup, and on nothing else. So of all places only those above the PodGroup taken last change,
and each of these is first among its siblings: they are updated one by one, from below.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

import numpy as np

from scheduler.core.model.resources import NONE, UNBOUND, Amounts, Ints
from scheduler.core.model.snapshot import SnapshotQueues
from scheduler.core.model.usage import Usage
from scheduler.core.queues.fair_share import allocatable_share, bounds_of

PodGroupKey: TypeAlias = tuple[int, ...]  # its last number is the row of the PodGroup
QueueKey: TypeAlias = tuple[float, ...]


_SHARE_INDEX: Final = 4  # the place in a key of the dominant share with the request
_NEXT_TO_NOTHING: Final = np.array([1e-3, 1e-3, 1.0])  # where the share is zero; by ResourceKind


class AllocatedByQueue(Protocol):
    def __getitem__(self, queue: int, /) -> list[int]: ...


class QueueOrder:
    def __init__(
        self, queues: SnapshotQueues, usage: Usage, fair_shares: Ints, total: tuple[int, int, int]
    ) -> None:
        self.allocated: AllocatedByQueue = usage.allocated
        share = allocatable_share(queues, fair_shares)
        whole = np.where(share == UNBOUND, np.array(total), share)
        columns = (
            fair_shares.tolist(),
            bounds_of(queues.quota),
            bounds_of(share),
            np.where(whole > 0, whole, _NEXT_TO_NOTHING).tolist(),
            queues.priority,
        )
        self.rows = [*zip(*columns, strict=True)]

    def with_allocated(self, allocated: AllocatedByQueue) -> "QueueOrder":
        other = QueueOrder.__new__(QueueOrder)
        other.allocated, other.rows = allocated, self.rows
        return other

    def share(self, queue: int) -> list[float]:
        """Return the allocatable share of a queue, infinite where it has no bound."""
        share: list[float] = self.rows[queue][2]
        return share

    def key(self, queue: int, requested: Amounts) -> QueueKey:
        """Return the key of a queue if its best PodGroup requests so much.

        Its parts are those of rule 18, in order; `messages` names each of them by its number.
        """
        cpu, memory, gpu = self.allocated[queue]
        more_cpu, more_memory, more_gpu = requested
        want_cpu, want_memory, want_gpu = cpu + more_cpu, memory + more_memory, gpu + more_gpu
        fair_shares, quota, (share_cpu, share_memory, share_gpu), whole, priority = self.rows[queue]
        of_cpu, of_memory, of_gpu = whole
        return (
            fair_shares[0] < cpu and fair_shares[1] < memory and fair_shares[2] < gpu,
            want_cpu > quota[0] or want_memory > quota[1] or want_gpu > quota[2],
            -priority,
            (share_cpu == 0 and want_cpu > 0)
            or (share_memory == 0 and want_memory > 0)
            or (share_gpu == 0 and want_gpu > 0),
            max(want_cpu / of_cpu, want_memory / of_memory, want_gpu / of_gpu),
            max(cpu / of_cpu, memory / of_memory, gpu / of_gpu),
            share_gpu,
            share_cpu,
            share_memory,
            queue,
        )

    def victim_key(self, queue: int, evicted: Amounts) -> QueueKey:
        """Return the key of a queue in the order of victims: the queue that comes last is first.

        Dominant shares are compared without its first victim; the other parts of the key are those
        of the queue as it is.
        """
        has = self.key(queue, (0, 0, 0))
        cpu, memory, gpu = evicted
        without = self.key(queue, (-cpu, -memory, -gpu))
        share = without[_SHARE_INDEX]
        return tuple([-it for it in (*has[:_SHARE_INDEX], share, *has[_SHARE_INDEX + 1 :])])


def keys_by_queue(waiting: Iterable[tuple[int, PodGroupKey]]) -> dict[int, list[PodGroupKey]]:
    by_queue: dict[int, list[PodGroupKey]] = {}
    for queue, key in waiting:
        by_queue.setdefault(queue, []).append(key)
    for keys in by_queue.values():
        keys.sort()
    return by_queue


class JobsOrderByQueues:
    """PodGroups in the order in which they are attempted, as queues get more."""

    def __init__(
        self,
        queues: SnapshotQueues,
        key: Callable[[int, Amounts], QueueKey],
        requested: Callable[[int], Amounts],
        podgroups: dict[int, list[PodGroupKey]],
        nomination_rank: Callable[[int, int], int] | None = None,
    ) -> None:
        """Take PodGroups, in order in each queue; *requested* returns what one would take next.

        The lists are consumed. *nomination_rank* of a queue and its best PodGroup comes first.
        """
        self._key = key
        self._nomination_rank = nomination_rank
        self._requested = requested
        self._parent = queues.parent
        self._podgroups: Final = podgroups
        self._queues: dict[int, list[tuple[QueueKey, int]]] = {NONE: []}
        # The queue of the PodGroup that was taken last: keys from it up are out of date.
        self._last = NONE
        for queue in self._podgroups:
            self._add_ancestors(queue)
        for queue in self._bottom_up():
            heapq.heapify(self._queues[queue])
            if queue != NONE:
                self._queues[self._parent[queue]].append(self._entry(queue))

    def pop(self) -> int | None:
        if self._last != NONE:
            self._reorder(self._last)
            self._last = NONE
        queue = NONE
        while queue not in self._podgroups:
            siblings = self._queues[queue]
            if not siblings:
                return None
            queue = siblings[0][1]
        self._last = queue
        return heapq.heappop(self._podgroups[queue])[-1]

    def push(self, key: PodGroupKey) -> None:
        """Put the PodGroup that was taken last back into its queue."""
        heapq.heappush(self._podgroups[self._last], key)

    def update_queue(self, queue: int) -> None:
        """Call it when the allocations of a queue have changed otherwise than by what was taken."""
        if self._last != NONE:
            self._reorder(self._last)
            self._last = NONE
        while queue != NONE:
            siblings = self._queues.get(self._parent[queue], [])
            for i, (_, one) in enumerate(siblings):
                if one == queue:
                    siblings[i] = self._entry(queue)
                    heapq.heapify(siblings)
                    break
            queue = self._parent[queue]

    def _add_ancestors(self, queue: int) -> None:
        parent = self._parent[queue]
        while parent not in self._queues:
            self._queues[parent] = []
            parent = self._parent[parent]

    def _bottom_up(self) -> list[int]:
        """Return the inner queues, each after all below it; add queues of PodGroups to them."""
        for queue in self._podgroups:
            self._queues[self._parent[queue]].append(self._entry(queue))
        return sorted(self._queues, key=self._depth, reverse=True)

    def _depth(self, queue: int) -> int:
        depth = 0
        while queue != NONE:
            queue, depth = self._parent[queue], depth + 1
        return depth

    def _entry(self, queue: int) -> tuple[QueueKey, int]:
        """Return the key of a queue, by the best PodGroup below it."""
        best = queue
        while best not in self._podgroups:
            best = self._queues[best][0][1]
        podgroup = self._podgroups[best][0][-1]
        key = self._key(queue, self._requested(podgroup))
        if self._nomination_rank is not None:
            key = self._nomination_rank(queue, podgroup), *key
        return key, queue

    def _reorder(self, queue: int) -> None:
        """Update the place of a queue, and of all above it."""
        is_empty = not self._podgroups[queue]
        while queue != NONE:
            parent = self._parent[queue]
            siblings = self._queues[parent]
            if is_empty:
                heapq.heappop(siblings)
            elif len(siblings) > 1:  # an only child is not compared
                heapq.heapreplace(siblings, self._entry(queue))
            is_empty = not siblings
            queue = parent
