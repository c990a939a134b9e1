"""Room for a chunk of a unit: for all of it, or for nothing."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from scheduler.core.chunks import Chunk, Part, Progress, Runs, is_satisfied
from scheduler.core.decision import Admission, Placing, Reservation
from scheduler.core.field import Field, Ground
from scheduler.core.ledger import Ledger
from scheduler.core.model import NONE, Cause, Slot, Tree, leaves_of
from scheduler.core.policy import Policies

__all__ = ["Failure", "Placer"]


_MOST_FIELDS: Final = 512  # each is as large as there are nodes


class Failure(NamedTuple):
    """A pod for which there is no node; the ledger still has those that were placed before it."""

    shape: int
    placed: int
    checkpoint: int  # to which the ledger must be rolled back
    slots: tuple[tuple[int, Slot], ...] = ()  # what pods of the chunk give up, by their places


class _Seat(NamedTuple):
    part: int
    pod: int  # or NONE: pods that do not exist yet, so many in a row
    node: int
    shape: int
    is_now: bool
    number: int = 1


class Placer:
    """Places chunks, one after another."""

    def __init__(self, ledger: Ledger, policies: Policies) -> None:
        self.ledger: Final = ledger
        self._policies = policies
        self._fields: dict[int, Field] = {}
        self._grounds = {it: Ground(ledger.snapshot, has_gpu=it) for it in (False, True)}
        self._now: dict[int, Progress] = {}  # of units that wait for room: what has it already
        self._shape_of: Final[list[int]] = ledger.snapshot.pods.shape.tolist()

    def field(self, shape: int) -> Field:
        """Return the nodes for a shape."""
        field = self._fields.get(shape)
        if field is None:
            if len(self._fields) >= _MOST_FIELDS:  # the one that was made first goes
                del self._fields[next(iter(self._fields))]
            ground = self._grounds[self.ledger.snapshot.shapes[shape].has_gpu]
            field = self._fields[shape] = Field(self.ledger, self._policies, shape, ground)
        return field

    def shapes(self, parts: Chunk) -> Runs:
        """Return the shapes of a chunk, in the order in which they are placed."""
        found: list[tuple[int, int]] = []
        last, count = NONE, 0
        for leaf, pods, later in parts:
            for pod in pods:
                shape = self._shape_of[pod]
                if shape != last:
                    found.append((last, count))
                    last, count = shape, 0
                count += 1
            if later:
                if leaf.later_shape != last:
                    found.append((last, count))
                    last, count = leaf.later_shape, 0
                count += later
        found.append((last, count))
        return tuple([run for run in found if run[1]])

    def place(
        self, unit: int, parts: Chunk, progress: Progress, *, waits: bool = False
    ) -> Admission | Failure:
        """Place all of a chunk, or say for which pod there is no node.

        If it *waits*, nothing of it is placed at once, though there be room.
        """
        seats = self._seated(parts, progress)
        if isinstance(seats, Failure):
            return seats
        if waits:
            seats = [self._postponed(seat) for seat in seats]
        return _admission(unit, parts, self._together(unit, parts, progress, seats))

    def fits(
        self, parts: Chunk, progress: Progress, beside: Chunk = ()
    ) -> list[tuple[int, int, int]] | None:
        """Return nodes, shapes and numbers of pods if all of a chunk has room; nothing is taken.

        So must what is placed *beside*, after the chunk, which waits then.
        """
        checkpoint = self.ledger.checkpoint
        seats = self._seated(parts, progress)
        if beside and not isinstance(seats, Failure):
            seats = [self._postponed(seat) for seat in seats]
            others = self._seated(beside, Progress())
            seats = others if isinstance(others, Failure) else [*seats, *others]
        self.ledger.roll_back(checkpoint)
        return (
            None if isinstance(seats, Failure) else [(it.node, it.shape, it.number) for it in seats]
        )

    def hold(self, parts: Chunk) -> list[tuple[int, int, int]] | None:
        """Take room for pods that do not exist; return parts, nodes and numbers, if all have it."""
        seats = self._seated(parts, Progress())
        return (
            None if isinstance(seats, Failure) else [(it.part, it.node, it.number) for it in seats]
        )

    def _seated(self, parts: Chunk, progress: Progress) -> list[_Seat] | Failure:
        checkpoint = self.ledger.checkpoint
        seats: list[_Seat] = []

        def failed(shape: int) -> Failure:
            placed = sum([it.number for it in seats])
            return Failure(shape, placed, checkpoint, tuple(_slots(parts, progress)))

        for i, part in enumerate(parts):
            slots = progress.slots(part.leaf) if part.leaf.slots else ()
            for j, pod in enumerate(part.pods):
                shape = self._shape_of[pod]
                node = self._node_for(shape, slots[j] if j < len(slots) else None)
                if node == NONE:
                    return failed(shape)
                is_now = self.ledger.fits_idle(node, shape)
                self.ledger.take(node, shape, is_now=is_now)
                seats.append(_Seat(i, pod, node, shape, is_now))
            if part.later and not self._seat_later(i, part, seats):
                return failed(part.leaf.later_shape)
        return seats

    def _seat_later(self, number: int, part: Part, seats: list[_Seat]) -> bool:
        """Seat the later pods of a part, many in a row on one node; say if all have room."""
        shape, left = part.leaf.later_shape, part.later
        field = self.field(shape)
        while left:
            node = field.best()
            if node == NONE:
                return False
            count = field.in_a_row(node, left)
            is_now = self.ledger.fits_idle(node, shape)
            self.ledger.take(node, shape, is_now=is_now, count=count)
            seats.append(_Seat(number, NONE, node, shape, is_now, count))
            left -= count
        return True

    def _together(
        self, unit: int, parts: Chunk, progress: Progress, seats: list[_Seat]
    ) -> list[_Seat]:
        """Let all wait if one does, unless the unit has what it needs without those who wait."""
        tree = self.ledger.snapshot.units[unit].tree
        if unit not in self._now:
            is_kept = self.ledger.snapshot.units[unit].is_kept  # else it has no slots
            unbacked = self._unbacked(tree) if is_kept else {}
            if not unbacked and all(seat.is_now for seat in seats):
                return seats
            later = {name: progress.later.get(name, 0) - n for name, n in unbacked.items()}
            self._now[unit] = Progress(dict(progress.pods), {**progress.later, **later})
        before = self._now[unit]
        if not any(seat.is_now for seat in seats):
            return seats
        now = _with_those_now(before, parts, seats)
        if not is_satisfied(tree, now):
            now = before
            seats = [self._postponed(seat) for seat in seats]
        self._now[unit] = Progress(dict(now.pods), dict(now.later))
        return seats

    def _unbacked(self, tree: Tree) -> dict[str, int]:
        """Return how many slots of each leaf wait themselves for what is being released."""
        idle = self.ledger.snapshot.nodes.idle
        found: dict[str, int] = {}
        for leaf in leaves_of(tree):
            for slot in leaf.slots:
                request = self.ledger.snapshot.shapes[slot.shape].request
                short = any(n and has < 0 for n, has in zip(request, idle[slot.node], strict=True))
                if short:
                    found[leaf.name] = found.get(leaf.name, 0) + 1
        return found

    def _node_for(self, shape: int, slot: Slot | None) -> int:
        field = self.field(shape)
        if slot is not None:
            self.ledger.give(slot.node, slot.shape)
            if field.takes(slot.node):
                return slot.node
        return field.best()

    def _postponed(self, seat: _Seat) -> _Seat:
        if not seat.is_now:
            return seat
        self.ledger.postpone(seat.node, seat.shape, seat.number)
        return seat._replace(is_now=False)


def _slots(parts: Chunk, progress: Progress) -> Iterator[tuple[int, Slot]]:
    """Yield the slots that pods of a chunk give up, by the places of these, later pods counted."""
    first = 0
    for part in parts:
        for at, slot in enumerate(progress.slots(part.leaf)[: len(part.pods)]):
            yield first + at, slot
        first += len(part.pods) + part.later


def _with_those_now(progress: Progress, parts: Chunk, seats: list[_Seat]) -> Progress:
    """Return a progress with what need not wait for room."""
    now = Progress(dict(progress.pods), dict(progress.later))
    for i, part in enumerate(parts):
        here = [seat for seat in seats if seat.part == i and seat.is_now]
        pods = tuple(seat.pod for seat in here if seat.pod != NONE)
        now.add((Part(part.leaf, pods, sum(seat.number for seat in here) - len(pods)),))
    return now


def _admission(unit: int, parts: Chunk, seats: list[_Seat]) -> Admission:
    binds: list[Placing] = []
    nominations: list[Placing] = []
    held: dict[tuple[str, int], int] = {}
    for part, pod, node, _, is_now, count in seats:
        if pod == NONE:
            key = (parts[part].leaf.name, node)
            held[key] = held.get(key, 0) + count
        else:
            (binds if is_now else nominations).append(Placing(pod, node))
    return Admission(
        unit=unit,
        binds=tuple(binds),
        nominations=tuple(nominations),
        reservations=tuple(
            [Reservation(leaf, node, n, Cause.ANTICIPATED) for (leaf, node), n in held.items()]
        ),
    )
