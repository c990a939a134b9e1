"""Which queue may reclaim from which, up to what, and what queues have that is unevictable."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.podgroup import PodGroupInfo, is_evictable
from scheduler.core.model.resources import NONE, UNBOUND, Amounts, Ints, ResourceKind
from scheduler.core.model.snapshot import Snapshot, SnapshotQueues
from scheduler.core.model.usage import (
    UnevictableUsage,
    Usage,
    allocated_by_podgroup,
    below_common_ancestor,
)
from scheduler.core.queues.fair_share import allocatable_share, bounds_of

Row: TypeAlias = list[float]


class QueueShares:
    """Quotas and shares of queues; no bound is infinite."""

    def __init__(self, queues: SnapshotQueues, fair_shares: Ints) -> None:
        share = allocatable_share(queues, fair_shares)
        self.quota: Final[list[Row]] = bounds_of(queues.quota)
        self.allocatable_share: Final[list[Row]] = bounds_of(share)
        self.fair_share: Final[list[Row]] = fair_shares.tolist()
        self.parent: Final = queues.parent
        self._is_quota_only: Final = queues.is_quota_only
        self.has_quota_only: Final = any(queues.is_quota_only)

    def is_quota_only(self, queue: int) -> bool:
        """Say whether a queue reclaims nothing from its siblings beyond its quota."""
        above = self.parent[queue]
        return above != NONE and bool(self._is_quota_only) and self._is_quota_only[above]


class Reclaimer(NamedTuple):
    queue: int
    amounts: Amounts
    is_non_preemptible: bool  # it could not be reclaimed again


class Reclaimable:
    def __init__(self, shares: QueueShares, usage: Usage, reclaimer: Reclaimer) -> None:
        """Compare with *usage*, which must not change meanwhile."""
        self.shares: Final = shares
        self.usage: Final = usage
        self.reclaimer: Final = reclaimer
        self._wanted: Final = {
            q: self._with_request(usage.allocated[q]) for q in usage.paths[reclaimer.queue]
        }
        self._within_quota: Final = {
            q: _within(it, shares.quota[q]) for q, it in self._wanted.items()
        }
        self._pairs: Final[dict[int, tuple[int, int]]] = {}

    @property
    def may_reclaim(self) -> bool:
        """The queue would still be within its fair share."""
        queue, shares = self.reclaimer.queue, self.shares
        if not _within(self._wanted[queue], shares.fair_share[queue]):
            return False
        return not self.reclaimer.is_non_preemptible or all(
            _within(self._with_request(self.usage.non_preemptible[q]), shares.quota[q])
            for q in self.usage.paths[queue]
        )

    def is_within_quota(self, reclaimer_queue: int) -> bool:
        """Say whether the reclaimer's queue, or one above it, would stay within its quota."""
        return self._within_quota[reclaimer_queue]

    def may_reclaim_from(self, queue: int) -> bool:
        """Say whether another queue than the reclaimer's may lose something.

        A reclaimer within its quota may reclaim from a queue above its quota in a requested
        resource, or not below it in any. Another one only from a queue above its allocatable share,
        and not at all where siblings reclaim no more than their quotas.
        """
        reclaimer_queue, victim_queue = self.compared_queues(queue)
        has, shares = self.usage.allocated[victim_queue], self.shares
        if not self.is_within_quota(reclaimer_queue):
            return not shares.is_quota_only(reclaimer_queue) and not _within(
                has, shares.allocatable_share[victim_queue]
            )
        quota, requested = shares.quota[victim_queue], self.reclaimer.amounts
        kinds = zip(has, quota, requested, strict=True)
        over = [one - most for one, most, more in kinds if more > 0 and most != math.inf]
        return not over or max(over) > 0 or min(over) == 0

    def surplus(self, victim_queue: int) -> list[float]:
        """Return by how much a compared queue has more than it may keep, by kind."""
        has = self.usage.allocated[victim_queue]
        may_keep = self.shares.allocatable_share[victim_queue]
        if self.is_within_quota(self.compared_queues(victim_queue)[0]):
            may_keep = [*map(min, may_keep, self.shares.quota[victim_queue])]
        return [max(one - most, 0) for one, most in zip(has, may_keep, strict=True)]

    def over_share_queues(self, queues: Iterable[int]) -> list[int]:
        """Return the queues with a compared queue that has more than it may keep, of any kind."""
        pairs = [(queue, self.compared_queues(queue)[1]) for queue in queues]
        over = {
            victim_queue: any(self.surplus(victim_queue))
            for victim_queue in {it for _, it in pairs}
        }
        return [queue for queue, victim_queue in pairs if over[victim_queue]]

    def quota_only_queues(self, queues: Iterable[int]) -> set[int]:
        """Return the parents that protect some of the queues only by their quota-only goal."""
        if not self.shares.has_quota_only:
            return set()
        return {
            self.shares.parent[self.compared_queues(q)[0]]
            for q in queues
            if q != self.reclaimer.queue and self._is_quota_only_barrier(q)
        }

    def unlimited_queues(
        self, queues: Iterable[int], lacking: Iterable[ResourceKind]
    ) -> set[tuple[int, ResourceKind]]:
        compared = {self.compared_queues(q)[1] for q in queues if q != self.reclaimer.queue}
        has, share = self.usage.allocated, self.shares.allocatable_share
        return {(q, k) for k in lacking for q in compared if has[q][k] and share[q][k] == math.inf}

    def compared_queues(self, queue: int) -> tuple[int, int]:
        """Return the reclaimer's and another queue, each just below their common ancestor."""
        if queue not in self._pairs:
            self._pairs[queue] = below_common_ancestor(
                self.usage.paths, self.reclaimer.queue, queue
            )
        return self._pairs[queue]

    def _is_quota_only_barrier(self, queue: int) -> bool:
        reclaimer_queue, victim_queue = self.compared_queues(queue)
        is_beyond = self.shares.is_quota_only(reclaimer_queue) and not self.is_within_quota(
            reclaimer_queue
        )
        return is_beyond and not _within(
            self.usage.allocated[victim_queue], self.shares.allocatable_share[victim_queue]
        )

    def _with_request(self, has: list[int]) -> Amounts:
        cpu, memory, gpu = self.reclaimer.amounts
        return has[0] + cpu, has[1] + memory, has[2] + gpu


class ReclaimState:
    def __init__(self, reclaimable: Reclaimable) -> None:
        self._reclaimable = reclaimable
        self._shares = reclaimable.shares
        self._before = reclaimable.usage.allocated
        self._remaining: dict[int, list[int]] = {}  # of queues that lost something

    def may_lose(self, queue: int) -> bool:
        """Say whether a queue may lose something more, however large it is.

        It may if the compared queue is still above its allocatable share, in any kind; or if the
        reclaimer is within its quota, and that queue is still above its own.
        """
        reclaimer_queue, victim_queue = self._reclaimable.compared_queues(queue)
        has, shares = self[victim_queue], self._shares
        if not _within(has, shares.allocatable_share[victim_queue]):
            return True
        return self._reclaimable.is_within_quota(reclaimer_queue) and not _within(
            has, shares.quota[victim_queue]
        )

    def subtract(self, queue: int, amounts: Amounts) -> None:
        cpu, memory, gpu = amounts
        for q in self._reclaimable.usage.paths[queue]:
            remaining = self._remaining.get(q)
            if remaining is None:
                remaining = self._remaining[q] = self._before[q].copy()
            remaining[0] -= cpu
            remaining[1] -= memory
            remaining[2] -= gpu

    def add(self, queue: int, amounts: Amounts) -> None:
        cpu, memory, gpu = amounts
        self.subtract(queue, (-cpu, -memory, -gpu))

    def could_allocate(self, queue: int, amounts: Amounts) -> bool:
        """Say whether a queue could have so much more: no limit from it up forbids it."""
        usage = self._reclaimable.usage
        return not any(
            bound != UNBOUND and more > 0 and has + more > bound
            for q in usage.paths[queue]
            for bound, has, more in zip(usage.limit[q], self[q], amounts, strict=True)
        )

    def is_fair(self) -> bool:
        """Say whether no queue that lost something is worse off than the reclaimer's, on any level.

        A queue above its fair share may not get there at the cost of one that has no larger part
        of its own.
        """
        for reclaimer_queue in self._reclaimable.usage.paths[self._reclaimable.reclaimer.queue]:
            above = self._shares.parent[reclaimer_queue]
            for victim_queue in self._remaining:
                is_sibling = (
                    victim_queue != reclaimer_queue and self._shares.parent[victim_queue] == above
                )
                if is_sibling and not self._is_fair_to_queue(victim_queue, reclaimer_queue):
                    return False
        return True

    def _is_fair_to_queue(self, victim_queue: int, reclaimer_queue: int) -> bool:
        now, before = self[victim_queue], self._before[victim_queue]
        fair_shares = self._shares.fair_share
        if now == before:
            return True
        requested = self._reclaimable.reclaimer.amounts
        columns = zip(
            now,
            before,
            fair_shares[victim_queue],
            requested,
            self[reclaimer_queue],
            fair_shares[reclaimer_queue],
            strict=True,
        )
        for has, had, victim_fair_share, more, would_have, own_fair_share in columns:
            if victim_fair_share <= 0 or (more <= 0 and has == had):
                continue
            share_ratio = _share_ratio(would_have + more, own_fair_share)
            if share_ratio > 1 and share_ratio >= has / victim_fair_share:
                return False
        return True

    def __getitem__(self, queue: int) -> list[int]:
        return self._remaining.get(queue, self._before[queue])


def _within(amounts: Sequence[float], shares: Sequence[float]) -> bool:
    (cpu, memory, gpu), (most_cpu, most_memory, most_gpu) = amounts, shares
    return cpu <= most_cpu and memory <= most_memory and gpu <= most_gpu


def _share_ratio(amount: float, fair_share: float) -> float:
    if fair_share > 0:
        return amount / fair_share
    return math.inf if amount > 0 else 0.0


def unevictable_usage(snapshot: Snapshot) -> dict[int, UnevictableUsage]:
    """Return by queue what counts as non-preemptible because it cannot be evicted."""
    rows = [*_unevictable_rows(snapshot.podgroups)]
    if not rows:
        return {}
    has, counts = allocated_by_podgroup(snapshot)
    by_queue: dict[int, UnevictableUsage] = {}
    for row in rows:
        queue = snapshot.podgroups[row].queue
        if not counts[row]:
            continue
        podgroups, (cpu, memory, gpu) = by_queue.get(queue, UnevictableUsage((), (0, 0, 0)))
        amounts = cpu + has[row][0], memory + has[row][1], gpu + has[row][2]
        by_queue[queue] = UnevictableUsage((*podgroups, row), amounts)
    return by_queue


def _unevictable_rows(podgroups: Sequence[PodGroupInfo]) -> Iterator[int]:
    """Yield the unevictable PodGroups; of a workload all, if one is. Relocating ones are none."""
    workloads: dict[str, list[int]] = {}
    for row, podgroup in enumerate(podgroups):
        if podgroup.workload:
            workloads.setdefault(podgroup.workload, []).append(row)
        elif (
            podgroup.non_evictable_reason
            and not podgroup.is_relocating
            and _is_charged_as_preemptible(podgroup)
        ):
            yield row
    for rows in workloads.values():
        some = [podgroups[row] for row in rows]
        is_torn = any(podgroup.queue != some[0].queue for podgroup in some)
        if any(podgroup.is_relocating for podgroup in some) or not (
            is_torn or not all(map(is_evictable, some))
        ):
            continue
        yield from (row for row in rows if _is_charged_as_preemptible(podgroups[row]))


def _is_charged_as_preemptible(podgroup: PodGroupInfo) -> bool:
    return podgroup.queue != NONE and podgroup.is_preemptible
