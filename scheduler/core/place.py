"""Room for a chunk of a unit: for all of it, or for nothing."""

from typing import Final, NamedTuple

from scheduler.core.chunks import Chunk, Part, Progress, is_satisfied
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
    slots: tuple[Slot | None, ...] = ()  # what each pod of the chunk gives up


class _Seat(NamedTuple):
    part: int
    pod: int  # or NONE: it does not exist yet
    node: int
    shape: int
    is_now: bool


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

    def shapes(self, parts: Chunk) -> tuple[int, ...]:
        """Return the shapes of a chunk, in the order in which they are placed."""
        found: list[int] = []
        for leaf, pods, later in parts:
            found += [self._shape_of[pod] for pod in pods]
            found += [leaf.later_shape] * later
        return tuple(found)

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
    ) -> list[tuple[int, int]] | None:
        """Return node and shape of each pod if all of a chunk has room; nothing is taken.

        So must what is placed *beside*, after the chunk, which waits then.
        """
        checkpoint = self.ledger.checkpoint
        seats = self._seated(parts, progress)
        if beside and not isinstance(seats, Failure):
            seats = [self._postponed(seat) for seat in seats]
            others = self._seated(beside, Progress())
            seats = others if isinstance(others, Failure) else [*seats, *others]
        self.ledger.roll_back(checkpoint)
        return None if isinstance(seats, Failure) else [(it.node, it.shape) for it in seats]

    def hold(self, parts: Chunk) -> list[tuple[int, int]] | None:
        """Take room for pods that do not exist; return part and node of each, if all have room."""
        seats = self._seated(parts, Progress())
        return None if isinstance(seats, Failure) else [(it.part, it.node) for it in seats]

    def _seated(self, parts: Chunk, progress: Progress) -> list[_Seat] | Failure:
        checkpoint = self.ledger.checkpoint
        seats: list[_Seat] = []
        for i, part in enumerate(parts):
            slots = progress.slots(part.leaf) if part.leaf.slots else ()
            for j, pod in enumerate((*part.pods, *(NONE,) * part.later)):
                shape = part.leaf.later_shape if pod == NONE else self._shape_of[pod]
                slot = slots[j] if pod != NONE and j < len(slots) else None
                node = self._node_for(shape, slot)
                if node == NONE:
                    return Failure(shape, len(seats), checkpoint, _slots(parts, progress))
                is_now = self.ledger.fits_idle(node, shape)
                self.ledger.take(node, shape, is_now=is_now)
                seats.append(_Seat(i, pod, node, shape, is_now))
        return seats

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
        self.ledger.postpone(seat.node, seat.shape)
        return seat._replace(is_now=False)


def _slots(parts: Chunk, progress: Progress) -> tuple[Slot | None, ...]:
    """Return for each pod of a chunk, those to come included, the slot that it gives up."""
    found: list[Slot | None] = []
    for part in parts:
        taken = progress.slots(part.leaf)[: len(part.pods)]
        found += [*taken, *[None] * (len(part.pods) + part.later - len(taken))]
    return tuple(found)


def _with_those_now(progress: Progress, parts: Chunk, seats: list[_Seat]) -> Progress:
    """Return a progress with what need not wait for room."""
    now = Progress(dict(progress.pods), dict(progress.later))
    for i, part in enumerate(parts):
        here = [seat for seat in seats if seat.part == i and seat.is_now]
        pods = tuple(seat.pod for seat in here if seat.pod != NONE)
        now.add((Part(part.leaf, pods, len(here) - len(pods)),))
    return now


def _admission(unit: int, parts: Chunk, seats: list[_Seat]) -> Admission:
    binds: list[Placing] = []
    nominations: list[Placing] = []
    held: dict[tuple[str, int], int] = {}
    for part, pod, node, _, is_now in seats:
        if pod == NONE:
            key = (parts[part].leaf.name, node)
            held[key] = held.get(key, 0) + 1
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
