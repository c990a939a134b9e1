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


class Line:
    """All that may lose something; of one unit and key the last block is the first to go."""

    def __init__(self, queues: Queues, keys: QueueKeys, blocks: Sequence[Block]) -> None:
        self._queues: Final = queues
        self._keys: Final = keys
        self._blocks: Final = blocks
        self._places: Final = by_queue(
            (one.queue, _place(one, row)) for row, one in enumerate(blocks)
        )

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
        del places[bisect_left(places, _place(self._blocks[block], block))]
        if not places:
            del self._places[self._blocks[block].queue]


def _place(one: Block, row: int) -> UnitKeyOf:
    return (*[-it for it in one.key], -row)
