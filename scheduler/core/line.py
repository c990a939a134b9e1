"""Who would lose something first: the order of turns, backwards.

Of queues on one level the one loses first that would have its turn last, and of its units the last
one. Each place in the line is worked out with everybody before it gone, so that queues which lie
far above their shares come down together, and is worked out when it is asked for.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.core.model import SnapshotQueues
from scheduler.core.order import JobsOrderByQueues, PodGroupKey, QueueOrder, keys_by_queue
from scheduler.core.usage import Amounts, Usage

__all__ = ["EvictionUnit", "VictimOrder"]


class EvictionUnit(NamedTuple):
    """What somebody may lose at once."""

    queue: int
    key: PodGroupKey  # the place of its unit among those of its queue that wait for a turn
    amounts: Amounts
    priority: int = 0  # the largest of its units
    first_requests: tuple[
        Amounts, ...
    ] = ()  # what is asked for first of it, if it is to be had back
    is_jobset: bool = False  # it goes whole, and nothing less of it could


class VictimOrder:
    """All that may lose something; of one unit and key the last block is the first to go."""

    def __init__(
        self, queues: SnapshotQueues, keys: QueueOrder, eviction_units: Sequence[EvictionUnit]
    ) -> None:
        self._queues: Final = queues
        self._keys: Final = keys
        self._units: Final = eviction_units
        self._place: Final = [
            (*[-it for it in one.key], -row) for row, one in enumerate(eviction_units)
        ]
        unit_queues = [one.queue for one in eviction_units]
        self._places: Final = keys_by_queue(zip(unit_queues, self._place, strict=True))
        self._is_ranked: Final[dict[int, bool]] = {}  # queues in whose line priority only grows

    def across_queues(
        self, usage: Usage, queues: Iterable[int], is_eligible: Callable[[int], bool] | None = None
    ) -> tuple[Iterator[int], int]:
        """Return who loses next, and how many there are: blocks of some queues, or some of those.

        What queues have is in *usage*.
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
        """Return who of a queue loses next, and how many there are: blocks of smaller priority.

        Where units take their turns by priority these are the first of the line.
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
        keys = self._keys.with_allocated(left.allocated)
        eviction_units = self._units
        jobs_order = JobsOrderByQueues(
            self._queues, keys.victim_key, lambda place: eviction_units[-place].amounts, places
        )
        while (place := jobs_order.pop()) is not None:
            one = eviction_units[-place]
            left.refund(one.queue, one.amounts, is_non_preemptible=False)
            yield -place

    def drop(self, eviction_unit: int) -> None:
        """Leave out a block from now on."""
        places = self._places[self._units[eviction_unit].queue]
        del places[bisect_left(places, self._place[eviction_unit])]
        if not places:
            del self._places[self._units[eviction_unit].queue]
