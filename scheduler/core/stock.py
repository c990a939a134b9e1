"""What queues could lose at most, worked out in bulk before anybody is looked at one by one."""

import math
from collections.abc import Collection
from operator import add
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.model import NONE, Kind, PodState, Snapshot, leaves_of
from scheduler.core.rights import Rights
from scheduler.core.sums import exact
from scheduler.core.tenants import movable

__all__ = ["Stock", "held"]

Amounts: TypeAlias = list[int]  # by Kind


class Stock:
    """By queue: all that may be taken, by priority as well, and the most of it in one block."""

    def __init__(self, snapshot: Snapshot, spared: Collection[int]) -> None:
        """Look at all units but those that are spared."""
        self.all: Final[dict[int, Amounts]] = {}
        self._most: Final[dict[int, Amounts]] = {}
        self._ranked: Final[dict[int, dict[int, Amounts]]] = {}
        has, counts = held(snapshot)
        for rows in movable(snapshot.units, spared):
            if not any(counts[row] for row in rows):
                continue
            amounts = [*map(sum, zip(*[has[row] for row in rows], strict=True))]
            queue = snapshot.units[rows[0]].queue
            of_all = self.all.setdefault(queue, [0, 0, 0])
            of_one = self._most.setdefault(queue, [0, 0, 0])
            priority = max([snapshot.units[row].priority for row in rows])
            of_rank = self._ranked.setdefault(queue, {}).setdefault(priority, [0, 0, 0])
            for kind, amount in enumerate(amounts):
                of_all[kind] += amount
                of_rank[kind] += amount
                of_one[kind] = max(of_one[kind], amount)

    def has_below(self, queue: int, priority: int) -> bool:
        """Say whether anybody of a queue may lose something whose priority is smaller."""
        return min(self._ranked.get(queue, [priority])) < priority

    def below(self, queue: int, priority: int, kind: Kind) -> int:
        """Return what all of a queue may lose whose priority is smaller."""
        ranked = self._ranked[queue].items()
        return sum([amounts[kind] for one, amounts in ranked if one < priority])

    def most(self, rights: Rights, queues: Collection[int], kind: Kind) -> int:
        """Return a bound of what some queues may lose of something for one claim, block by block.

        What is taken last may be as large as it is; before it, its queue had still too much. If
        that can only be too much of this kind, no more of it goes than that and one block.
        """
        beside: dict[int, list[int]] = {}
        for queue in queues:
            beside.setdefault(rights.pair(queue)[1], []).append(queue)
        found = 0
        for theirs, below in beside.items():
            over = rights.surplus(theirs)
            if not any(over):
                continue
            most = sum([self.all[queue][kind] for queue in below])
            if not (any(over[:kind]) or any(over[kind + 1 :])):
                last = max([self._most[queue][kind] for queue in below])
                most = min(most, math.ceil(over[kind]) - 1 + last)
            found += most
        return found


def held(snapshot: Snapshot) -> tuple[list[Amounts], list[int]]:
    """Return what units are charged for, and how many pods and slots that are."""
    pods, units = snapshot.pods, snapshot.units
    rows = np.flatnonzero((pods.state == PodState.THERE) & (pods.unit != NONE))
    counted = np.array([shape.counted for shape in snapshot.shapes], dtype=np.int64).reshape(-1, 3)
    each = np.ones(len(rows), dtype=np.int64)
    amounts = exact(pods.unit[rows].astype(np.int64), counted[pods.shape[rows]], each, len(units))
    counts = np.bincount(pods.unit[rows], minlength=len(units)).tolist()
    for row, unit in enumerate(units):
        for leaf in leaves_of(unit.tree):
            for slot in leaf.slots:
                amounts[row] = [*map(add, amounts[row], snapshot.shapes[slot.shape].counted)]
                counts[row] += 1
    return amounts, counts
