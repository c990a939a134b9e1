"""Who could have room if nobody else were there.

Whoever could not has its turn after all others of its queue: were it the first of them, it would be
in the way of what is due to the queue, for nothing.
"""

from collections import Counter
from typing import Final

from scheduler.core.chunks import Runs
from scheduler.core.model import UNBOUND
from scheduler.core.numbers import seats
from scheduler.core.place import Placer
from scheduler.core.usage import Amounts, Usage

__all__ = ["Possible"]


class Possible:
    """By what is asked for; other pods, and what they say of it, do not matter."""

    def __init__(self, placer: Placer, usage: Usage) -> None:
        self._placer: Final = placer
        self._snapshot: Final = placer.ledger.snapshot
        self._paths: Final = usage.paths
        self._limits: Final[list[list[float]]] = self._snapshot.queues.limit.tolist()
        self._known: Final[dict[Runs, bool]] = {}
        self._seats: Final[dict[tuple[tuple[int, ...], bytes], int]] = {}

    def could_have_room(self, queue: int, amounts: Amounts, shapes: Runs) -> bool:
        """Say whether pods of these shapes are within all limits, and have seats enough."""
        for of in self._paths[queue]:
            for asked, limit in zip(amounts, self._limits[of], strict=True):
                if asked > limit != UNBOUND:
                    return False
        if shapes not in self._known:
            self._known[shapes] = self._have_seats(shapes)
        return self._known[shapes]

    def _have_seats(self, shapes: Runs) -> bool:
        """Look together at pods that ask for the same and that the same nodes take."""
        wanted = Counter[tuple[tuple[int, ...], bytes]]()
        for row, number in shapes:
            shape, takes = self._snapshot.shapes[row], self._placer.field(row).fixed
            alike = shape.request, takes.tobytes()
            wanted[alike] += number
            if alike not in self._seats:
                self._seats[alike] = seats(self._snapshot.nodes.allocatable[takes], shape)
        return all(number <= self._seats[alike] for alike, number in wanted.items())
