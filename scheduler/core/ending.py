"""What pods of queues that are going still have on nodes, and who of the queue waits for it.

A queue is not charged for them any more, and they are there until they are gone. Without this a
queue would have more on nodes than its limit, for as long as its users have their pods take.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.decision import Admission, QuotaNumbers
from scheduler.core.model import KINDS, UNBOUND, Snapshot, leaves_of
from scheduler.core.policy import Refusal
from scheduler.core.usage import Amounts, Usage

__all__ = ["Ending"]

Ask: TypeAlias = Callable[[Usage, int, Amounts], Refusal | None]  # of a unit, for so much
_Taken: TypeAlias = tuple[list[int], int, int]  # of what, which kind, and how much


class _Seat(NamedTuple):
    """Where something waits for room."""

    node: int
    amounts: Amounts
    is_promised: bool = False  # it was promised that node before


class Ending:
    """By queue, on all levels, and by node."""

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._usage: Final = usage
        self._is_bounded: Final = bool((snapshot.queues.limit != UNBOUND).any())
        self._left: Final = usage.empty()  # of what goes, that nobody of the queue waits for
        self._at: Final[dict[tuple[int, int], list[int]]] = {}  # of that, by queue and node
        self._lost: Final = usage.empty()  # what was taken in this plan
        going = snapshot.queues.going if self._is_bounded else ()
        self._is_any = bool(going)
        for queue, node, amounts in going:
            self._left.take(queue, amounts, is_fixed=False)
            for q in usage.paths[queue]:
                here = self._at.setdefault((q, node), [0, 0, 0])
                here[:] = [has + more for has, more in zip(here, amounts, strict=True)]

    def lose(self, queue: int, amounts: Amounts) -> None:
        """Take note that pods of a queue go in this plan; below zero that they stay."""
        if self._is_bounded:
            self._lost.take(queue, amounts, is_fixed=False)
            self._is_any = True

    def refuses(self, row: int, amounts: Amounts, ask: Ask) -> Refusal | None:
        """Ask for bounds as if a unit had so much beside what goes of its queues already.

        That must be in the way, and not only what is there.
        """
        refusal = self._is_any and self._asked(row, amounts, ask, self._left)
        if not refusal:
            return None  # it is asked for every unit, and mostly nothing goes
        numbers = [self._told(it) for it in (refusal.numbers, *refusal.numbers.others)]
        numbers = [it for it in numbers if it.ending]
        if not numbers:
            return None
        return refusal._replace(numbers=numbers[0]._replace(others=tuple(numbers[1:])))

    def is_late(self, row: int, amounts: Amounts, ask: Ask) -> bool:
        """Say whether bounds would be passed if a unit were there before all that goes is gone."""
        return self._is_any and bool(self._asked(row, amounts, ask, self._left, self._lost))

    def may_wait(self, row: int, placed: Admission, amounts: Amounts, ask: Ask) -> bool:
        """Say whether a unit may wait for so much where it was placed; if so take note of it.

        It is asked beside what nobody waits for then. A resource of which all that it takes is
        what goes of its own queues is not looked at.
        """
        taken: list[_Taken] = []
        waits = self._wait(row, self._seats(row, placed, with_slots=True), taken)
        more = [
            0 if most >= amount else amount for amount, most in zip(amounts, waits, strict=True)
        ]
        if self._asked(row, (more[0], more[1], more[2]), ask, self._left) is None:
            return True
        for of, kind, amount in taken:
            of[kind] += amount
        return False

    def wait(self, row: int, placed: Admission, *, with_slots: bool) -> None:
        """Take note of what of a unit waits for room, its slots as well if all of it does."""
        if self._is_any:
            self._wait(row, self._seats(row, placed, with_slots=with_slots), [])

    def _asked(self, row: int, amounts: Amounts, ask: Ask, *beside: Usage) -> Refusal | None:
        """Ask for bounds as if queues had so much beside; None if there is nothing."""
        path = self._usage.paths[self._snapshot.units[row].queue]
        some = [one for one in beside if any(any(one.allocated[q]) for q in path)]
        for one in some:
            self._usage.add(path, one, 1)
        refusal = ask(self._usage, row, amounts) if some else None
        for one in some:
            self._usage.add(path, one, -1)
        return refusal

    def _told(self, numbers: QuotaNumbers) -> QuotaNumbers:
        """Tell what is going apart from what is there."""
        ending = self._left.allocated[numbers.queue][numbers.kind]
        return numbers._replace(allocated=numbers.allocated - ending, ending=ending)

    def _seats(self, row: int, placed: Admission, *, with_slots: bool) -> list[_Seat]:
        """Return the pods of a unit that are nominated, and then its new slots."""
        snapshot = self._snapshot
        seats = []
        for pod, node in placed.nominations:
            shape = snapshot.shapes[snapshot.pods.shape[pod]]
            seats.append(_Seat(node, shape.counted, shape.nominated == node))
        if with_slots and placed.reservations:
            later = {leaf.name: leaf.later_shape for leaf in leaves_of(snapshot.units[row].tree)}
            for leaf, node, number, _ in placed.reservations:
                seats += [_Seat(node, snapshot.shapes[later[leaf]].counted)] * number
        return seats

    def _wait(self, row: int, seats: list[_Seat], taken: list[_Taken]) -> list[int]:
        """Let seats wait for what goes, and note what that takes; return the least of any queue."""
        least: list[list[int]] = []
        for q in self._usage.paths[self._snapshot.units[row].queue]:
            left, found = self._left.allocated[q], [0, 0, 0]
            for node, amounts, is_promised in seats:
                here = self._at.get((q, node), [0, 0, 0])
                for kind in KINDS:
                    most = left[kind] if is_promised else min(left[kind], here[kind])
                    amount = min(amounts[kind], most)
                    found[kind] += amount
                    for of, less in ((left, amount), (here, min(amount, here[kind]))):
                        of[kind] -= less
                        taken.append((of, kind, less))
            least.append(found)
        return [min(of) for of in zip(*least, strict=True)]
