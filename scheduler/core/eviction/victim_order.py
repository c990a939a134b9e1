"""The order of victims: the queue order reversed, or by the work that would be lost.

Of the queues on one level the one that would be attempted last loses first, and of its PodGroups
the last one. The order of two victims is computed as if all victims before them were evicted, so
that queues far above their shares lose resources in turn; and only as far as it is used. Lost work
is GPUs times the seconds since a PodGroup began to run, or last saved a checkpoint.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from scheduler.core.eviction.victims import EvictionUnit, MinRuntimeGuard, VictimPool
from scheduler.core.model.resources import Amounts, ResourceKind
from scheduler.core.model.result import VictimOrderPlugin
from scheduler.core.model.snapshot import Snapshot, SnapshotQueues
from scheduler.core.model.usage import Usage
from scheduler.core.queues.order import JobsOrderByQueues, PodGroupKey, QueueOrder, keys_by_queue


class VictimOrder:
    """All eviction units in order; of one PodGroup and key the last unit is evicted first."""

    def __init__(
        self,
        queues: SnapshotQueues,
        queue_order: QueueOrder,
        eviction_units: Sequence[EvictionUnit],
    ) -> None:
        self._queues: Final = queues
        self._keys: Final = queue_order
        self._units: Final = eviction_units
        self._place: Final = [
            (*[-it for it in unit.key], -row) for row, unit in enumerate(eviction_units)
        ]
        unit_queues = [unit.queue for unit in eviction_units]
        self._places: Final = keys_by_queue(zip(unit_queues, self._place, strict=True))
        self._is_ranked: Final[dict[int, bool]] = {}  # by queue: priority never falls in its order

    def across_queues(
        self, usage: Usage, queues: Iterable[int], is_eligible: Callable[[int], bool] | None = None
    ) -> tuple[Iterator[int], int]:
        """Return the victims of some queues in order, and their number.

        *usage* holds what the queues have allocated.
        """
        places = {queue: self._places[queue] for queue in queues if queue in self._places}
        if is_eligible is not None:
            places = {
                queue: [it for it in of if is_eligible(-it[-1])] for queue, of in places.items()
            }
            places = {queue: of for queue, of in places.items() if of}
        count = sum([len(of) for of in places.values()])
        if len(places) == 1:
            (only,) = places.values()
            return (-place[-1] for place in only), count
        return self._by_queue_order(
            usage, {queue: of.copy() for queue, of in places.items()}
        ), count

    def below_priority(
        self, queue: int, priority: int, is_eligible: Callable[[int], bool] | None = None
    ) -> tuple[Iterator[int], int]:
        """Return the victims of a queue with smaller priority in order, and their number.

        Where PodGroups are ordered by priority these are the first of the order.
        """
        places = self._places.get(queue, [])
        if queue not in self._is_ranked:
            ranks = [*map(self._priority, places)]
            self._is_ranked[queue] = ranks == sorted(ranks)
        if self._is_ranked[queue]:
            end = bisect_left(places, priority, key=self._priority)
            if is_eligible is None:
                return (-places[i][-1] for i in range(end)), end
            places = places[:end]
        rows = [-it[-1] for it in places if self._priority(it) < priority]
        rows = rows if is_eligible is None else [*filter(is_eligible, rows)]
        return iter(rows), len(rows)

    def _priority(self, place: PodGroupKey) -> int:
        return self._units[-place[-1]].priority

    def _by_queue_order(self, usage: Usage, places: dict[int, list[PodGroupKey]]) -> Iterator[int]:
        left = usage.copy()
        queue_order = self._keys.with_allocated(left.allocated)
        eviction_units = self._units
        jobs_order = JobsOrderByQueues(
            self._queues,
            queue_order.victim_key,
            lambda place: eviction_units[-place].amounts,
            places,
        )
        while (place := jobs_order.pop()) is not None:
            unit = eviction_units[-place]
            left.refund(unit.queue, unit.amounts, is_non_preemptible=False)
            yield -place

    def drop(self, eviction_unit: int) -> None:
        places = self._places[self._units[eviction_unit].queue]
        del places[bisect_left(places, self._place[eviction_unit])]
        if not places:
            del self._places[self._units[eviction_unit].queue]


class Victims:
    """The eviction units of a pool, which of them have not run for long enough, and their order."""

    def __init__(
        self,
        pool: VictimPool,
        min_runtime: MinRuntimeGuard,
        queues: SnapshotQueues,
        queue_order: QueueOrder,
    ) -> None:
        self.pool: Final = pool
        self.min_runtime: Final = min_runtime
        self.order: Final = VictimOrder(queues, queue_order, pool.eviction_units)

    def remove_podgroup(self, podgroup: int) -> None:
        for eviction_unit in self.pool.remove_podgroup(podgroup):
            self.order.drop(eviction_unit)

    def remove_unit(self, eviction_unit: int) -> None:
        """Remove a unit that was evicted, and its members from other units."""
        for removed in self.pool.remove_unit(eviction_unit):
            self.order.drop(removed)


@dataclass
class LostWork:
    """The work that is lost with pods; none with a pod that does not exist."""

    snapshot: Snapshot

    @cached_property
    def _columns(self) -> tuple[list[int], list[int], list[int], list[int]]:
        snapshot = self.snapshot
        gpus = [signature.queue_request[ResourceKind.GPU] for signature in snapshot.signatures]
        seconds = [
            lost_seconds(it.running_since, it.checkpoint_at, snapshot.now)
            for it in snapshot.podgroups
        ]
        return snapshot.pods.signature.tolist(), snapshot.pods.podgroup.tolist(), gpus, seconds

    def of_pods(self, pods: Iterable[int]) -> int:
        """Return thousandths of a GPU times seconds."""
        signature, podgroup, gpus, seconds = self._columns
        return sum([gpus[signature[pod]] * seconds[podgroup[pod]] for pod in pods if pod >= 0])


def lost_seconds(running_since: int, checkpoint_at: int, now: int) -> int:
    """Return 0 if the start is not known."""
    last = max(running_since, checkpoint_at)
    return max(now - last, 0) if last else 0


def by_plugin(
    victim_order: Iterable[int],
    order: VictimOrderPlugin,
    pool: VictimPool,
    lost_work: Callable[[Iterable[int]], int],
    requested: Amounts,
) -> Iterator[int]:
    """Yield units by the order that a site has chosen; those of one PodGroup keep theirs."""
    least: dict[int, int] = {}  # by PodGroup: the rank of its units before
    ranks: dict[int, int] = {}
    for eviction_unit in victim_order:
        podgroup, members = pool.podgroups[eviction_unit][0], pool.victims[eviction_unit]
        rank = order.rank(
            pool.amounts(eviction_unit, members),
            lost_work(member.pod for member in members),
            requested,
        )
        ranks[eviction_unit] = least[podgroup] = max(rank, least.get(podgroup, rank))
    yield from sorted(ranks, key=ranks.__getitem__)
