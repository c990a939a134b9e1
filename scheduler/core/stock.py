"""What queues could lose at most, worked out in bulk before anybody is looked at one by one."""

import math
from collections.abc import Collection
from operator import add
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.model import NONE, PodState, ResourceKind, Snapshot, podsets_of
from scheduler.core.rights import Reclaimable
from scheduler.core.sums import exact
from scheduler.core.tenants import evictable_podgroups

__all__ = ["ReclaimableTotals", "allocated_by_podgroup"]

AmountList: TypeAlias = list[int]  # by Kind


class ReclaimableTotals:
    """By queue: all that may be taken, by priority as well, and the most of it in one block."""

    def __init__(self, snapshot: Snapshot, protected: Collection[int]) -> None:
        """Look at all units but those that are spared."""
        self.all: Final[dict[int, AmountList]] = {}
        self._largest: Final[dict[int, AmountList]] = {}
        self._by_priority: Final[dict[int, dict[int, AmountList]]] = {}
        has, counts = allocated_by_podgroup(snapshot)
        for rows in evictable_podgroups(snapshot.podgroups, protected):
            if not any(counts[row] for row in rows):
                continue
            amounts = [*map(sum, zip(*[has[row] for row in rows], strict=True))]
            queue = snapshot.podgroups[rows[0]].queue
            of_all = self.all.setdefault(queue, [0, 0, 0])
            of_one = self._largest.setdefault(queue, [0, 0, 0])
            priority = max([snapshot.podgroups[row].priority for row in rows])
            of_rank = self._by_priority.setdefault(queue, {}).setdefault(priority, [0, 0, 0])
            for kind, amount in enumerate(amounts):
                of_all[kind] += amount
                of_rank[kind] += amount
                of_one[kind] = max(of_one[kind], amount)

    def has_below(self, queue: int, priority: int) -> bool:
        """Say whether anybody of a queue may lose something whose priority is smaller."""
        return min(self._by_priority.get(queue, [priority])) < priority

    def below(self, queue: int, priority: int, kind: ResourceKind) -> int:
        """Return what all of a queue may lose whose priority is smaller."""
        ranked = self._by_priority[queue].items()
        return sum([amounts[kind] for one, amounts in ranked if one < priority])

    def reclaimable_bound(
        self, reclaimable: Reclaimable, queues: Collection[int], kind: ResourceKind
    ) -> int:
        """Return a bound of what some queues may lose of something for one claim, block by block.

        What is taken last may be as large as it is; before it, its queue had still too much. If
        that can only be too much of this kind, no more of it goes than that and one block.
        """
        beside: dict[int, list[int]] = {}
        for queue in queues:
            beside.setdefault(reclaimable.compared_queues(queue)[1], []).append(queue)
        found = 0
        for victim_queue, below in beside.items():
            over = reclaimable.surplus(victim_queue)
            if not any(over):
                continue
            most = sum([self.all[queue][kind] for queue in below])
            if not (any(over[:kind]) or any(over[kind + 1 :])):
                last = max([self._largest[queue][kind] for queue in below])
                most = min(most, math.ceil(over[kind]) - 1 + last)
            found += most
        return found


def allocated_by_podgroup(snapshot: Snapshot) -> tuple[list[AmountList], list[int]]:
    """Return what units are charged for, and how many pods and slots that are."""
    pods, podgroups = snapshot.pods, snapshot.podgroups
    rows = np.flatnonzero((pods.state == PodState.RUNNING) & (pods.podgroup != NONE))
    counted = np.array(
        [signature.queue_request for signature in snapshot.signatures], dtype=np.int64
    ).reshape(-1, 3)
    each = np.ones(len(rows), dtype=np.int64)
    amounts = exact(
        pods.podgroup[rows].astype(np.int64), counted[pods.signature[rows]], each, len(podgroups)
    )
    counts = np.bincount(pods.podgroup[rows], minlength=len(podgroups)).tolist()
    for row, podgroup in enumerate(podgroups):
        for podset in podsets_of(podgroup.tree):
            for reserved_place in podset.reserved_places:
                amounts[row] = [
                    *map(
                        add,
                        amounts[row],
                        snapshot.signatures[reserved_place.signature].queue_request,
                    )
                ]
                counts[row] += 1
    return amounts, counts
