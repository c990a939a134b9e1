"""What queues and PodGroups have allocated while a plan is made, on all levels of the tree."""

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import NamedTuple, TypeAlias

import numpy as np

from scheduler.core.model.podgroup import SchedulingSignature, podsets_of
from scheduler.core.model.resources import NONE, Amounts, exact
from scheduler.core.model.snapshot import PodState, Snapshot, SnapshotQueues

AmountList: TypeAlias = list[int]  # by ResourceKind


class UnevictableUsage(NamedTuple):
    """What preemptible PodGroups of a queue have that cannot be evicted."""

    podgroups: tuple[int, ...]
    amounts: Amounts


class Usage:
    """Allocated and non-preemptible of every queue; each charge can be refunded exactly."""

    __slots__ = ("allocated", "limit", "non_preemptible", "paths", "quota", "unevictable")

    def __init__(self, queues: SnapshotQueues) -> None:
        self.allocated: list[list[int]] = queues.allocated.tolist()
        self.non_preemptible: list[list[int]] = queues.non_preemptible.tolist()
        self.quota: list[list[int]] = queues.quota.tolist()
        self.limit: list[list[int]] = queues.limit.tolist()
        self.paths = tuple(_path(queues.parent, q) for q in range(len(queues.names)))
        self.unevictable: dict[int, UnevictableUsage] = {}  # by queue

    def copy(self) -> "Usage":
        other = Usage.__new__(Usage)
        other.allocated = [row.copy() for row in self.allocated]
        other.non_preemptible = [row.copy() for row in self.non_preemptible]
        other.quota, other.limit, other.paths = self.quota, self.limit, self.paths
        other.unevictable = self.unevictable
        return other

    def emptied(self) -> "Usage":
        """Return one of the same queues in which nothing is allocated."""
        other = self.copy()
        for row in (*other.allocated, *other.non_preemptible):
            row[:] = 0, 0, 0
        return other

    def add(self, queues: Sequence[int], other: "Usage", sign: int) -> None:
        """Add what some queues have in another usage, or, with sign -1, subtract it."""
        for q in queues:
            for row, other_row in (
                (self.allocated[q], other.allocated[q]),
                (self.non_preemptible[q], other.non_preemptible[q]),
            ):
                row[0] += sign * other_row[0]
                row[1] += sign * other_row[1]
                row[2] += sign * other_row[2]

    def charge(self, queue: int, amounts: Amounts, *, is_non_preemptible: bool) -> None:
        cpu, memory, gpu = amounts
        for q in self.paths[queue]:
            row = self.allocated[q]
            row[0] += cpu
            row[1] += memory
            row[2] += gpu
        if is_non_preemptible:
            for q in self.paths[queue]:
                row = self.non_preemptible[q]
                row[0] += cpu
                row[1] += memory
                row[2] += gpu

    def add_unevictable(self, unevictable: Mapping[int, UnevictableUsage]) -> None:
        """Count what cannot be evicted as non-preemptible in its queue, and not in those above it.

        Otherwise one queue could use up the quota of its siblings.
        """
        self.unevictable = {**unevictable}
        for queue, usage in unevictable.items():
            self.non_preemptible[queue] = [*map(add, self.non_preemptible[queue], usage.amounts)]

    def refund(self, queue: int, amounts: Amounts, *, is_non_preemptible: bool) -> None:
        cpu, memory, gpu = amounts
        self.charge(queue, (-cpu, -memory, -gpu), is_non_preemptible=is_non_preemptible)


def charged(
    signatures: Sequence[SchedulingSignature], requested: Iterable[tuple[int, int]]
) -> Amounts:
    cpu = memory = gpu = 0
    for signature, count in requested:
        counted = signatures[signature].queue_request
        cpu += count * counted[0]
        memory += count * counted[1]
        gpu += count * counted[2]
    return cpu, memory, gpu


def below_common_ancestor(paths: Sequence[Sequence[int]], one: int, other: int) -> tuple[int, int]:
    """Return the ancestors of two queues just below their common one, or at the top."""
    path, other_path = paths[one], paths[other]
    depth = 1
    while path[-depth] == other_path[-depth]:
        depth += 1
    return path[-depth], other_path[-depth]


def _path(parent: tuple[int, ...], queue: int) -> tuple[int, ...]:
    path = []
    while queue != NONE:
        path.append(queue)
        queue = parent[queue]
    return tuple(path)


def allocated_by_podgroup(snapshot: Snapshot) -> tuple[list[AmountList], list[int]]:
    """Return what PodGroups are charged for, and how many pods and reserved places that are."""
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
                request = snapshot.signatures[reserved_place.signature].queue_request
                amounts[row] = [*map(add, amounts[row], request)]
                counts[row] += 1
    return amounts, counts
