"""Who would lose something first: the order of turns, backwards.

Of queues on one level the one loses first that would have its turn last, and of its units the last
one. Each place in the line is worked out with everybody before it gone, so that queues which lie
far above their shares come down together, and is worked out when it is asked for.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.core.model import Queues
from scheduler.core.order import QueueKeys, Turns, UnitKeyOf, by_queue
from scheduler.core.usage import Amounts, Usage

__all__ = ["Block", "Line"]


class Block(NamedTuple):
    """What somebody may lose at once."""

    queue: int
    key: UnitKeyOf  # the place of its unit among those of its queue that wait for a turn
    amounts: Amounts
    priority: int = 0  # the largest of its units
    asks: tuple[Amounts, ...] = ()  # what is asked for first of it, if it is to be had back
    is_bundle: bool = False  # it goes whole, and nothing less of it could


class Line:
    """All that may lose something; of one unit and key the last block is the first to go."""

    def __init__(self, queues: Queues, keys: QueueKeys, blocks: Sequence[Block]) -> None:
        self._queues: Final = queues
        self._keys: Final = keys
        self._blocks: Final = blocks
        self._place: Final = [(*[-it for it in one.key], -row) for row, one in enumerate(blocks)]
        queues_of = [one.queue for one in blocks]
        self._places: Final = by_queue(zip(queues_of, self._place, strict=True))
        self._is_ranked: Final[dict[int, bool]] = {}  # queues in whose line priority only grows

    def walk(
        self, usage: Usage, queues: Iterable[int], keeps: Callable[[int], bool] | None = None
    ) -> tuple[Iterator[int], int]:
        """Return who loses next, and how many there are: blocks of some queues, or some of those.

        What queues have is in *usage*.
        """
        places = {queue: self._places[queue] for queue in queues if queue in self._places}
        if keeps is not None:
            places = {queue: [it for it in of if keeps(-it[-1])] for queue, of in places.items()}
            places = {queue: of for queue, of in places.items() if of}
        count = sum([len(of) for of in places.values()])
        if len(places) == 1:
            (only,) = places.values()
            return (-place[-1] for place in only), count
        return self._by_turns(usage, {queue: of.copy() for queue, of in places.items()}), count

    def below(
        self, queue: int, priority: int, keeps: Callable[[int], bool] | None = None
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
            if keeps is None:
                return (-places[i][-1] for i in range(end)), end
            places = places[:end]
        rows = [-it[-1] for it in places if self._priority(it) < priority]
        rows = rows if keeps is None else [*filter(keeps, rows)]
        return iter(rows), len(rows)

    def _priority(self, place: UnitKeyOf) -> int:
        return self._blocks[-place[-1]].priority

    def _by_turns(self, usage: Usage, places: dict[int, list[UnitKeyOf]]) -> Iterator[int]:
        left = usage.copy()
        keys = self._keys.of(left.allocated)
        blocks = self._blocks
        turns = Turns(self._queues, keys.key_of_loser, lambda place: blocks[-place].amounts, places)
        while (place := turns.pop()) is not None:
            one = blocks[-place]
            left.give(one.queue, one.amounts, is_fixed=False)
            yield -place

    def drop(self, block: int) -> None:
        """Leave out a block from now on."""
        places = self._places[self._blocks[block].queue]
        del places[bisect_left(places, self._place[block])]
        if not places:
            del self._places[self._blocks[block].queue]
