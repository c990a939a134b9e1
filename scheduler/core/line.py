"""Who would lose something first: the order of turns, backwards.

Of queues on one level the one loses first that would have its turn last, and of its units the last
one. Each place in the line is worked out with everybody before it gone, so that queues which lie
far above their shares come down together, and is worked out when it is asked for.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scheduler.core.model import Floats, Queues
from scheduler.core.order import QueueKeys, Turns, UnitKeyOf
from scheduler.core.usage import Amounts, Usage

__all__ = ["Block", "line_up"]


class Block(NamedTuple):
    """What somebody may lose at once."""

    queue: int
    key: UnitKeyOf  # the place of its unit among those of its queue that wait for a turn
    amounts: Amounts


def line_up(
    queues: Queues,
    usage: Usage,
    due: Floats,
    total: tuple[int, int, int],
    blocks: Sequence[Block],
) -> Iterator[int]:
    """Yield which block is next to be lost; of one unit and key the last one is the first."""
    left = usage.copy()
    keys = QueueKeys(queues, left, due, total)
    waiting = [(one.queue, (*[-it for it in one.key], -i)) for i, one in enumerate(blocks)]
    turns = Turns(queues, keys.key_of_loser, lambda place: blocks[-place].amounts, waiting)
    while (place := turns.pop()) is not None:
        one = blocks[-place]
        left.give(one.queue, one.amounts, is_fixed=False)
        yield -place
