"""The action allocate: room for units that wait, out of what nobody has.

Units have their turns in rounds. Who fails has another turn after the others, until a round passes
in which nobody gets anything: then nothing has changed since anybody's last turn, and what is told
of it is true of the end.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.core.chunks import (
    Chunk,
    Growth,
    Progress,
    Runs,
    beyond,
    can_be_satisfied,
    chunk,
    has_later,
    has_waiting,
    is_growth,
    is_satisfied,
    standing,
)
from scheduler.core.decision import (
    Admission,
    BarNumbers,
    MemberNumbers,
    Missing,
    NodeNumbers,
    Numbers,
    Rejection,
    Stats,
)
from scheduler.core.ending import Ending
from scheduler.core.held import Held, Wish
from scheduler.core.ledger import Ledger
from scheduler.core.model import Bar, Ints, Leaf, Snapshot, Unit, Verdict, leaves_of
from scheduler.core.numbers import node_numbers
from scheduler.core.order import QueueKeys, Turns, UnitKeyOf, by_queue
from scheduler.core.place import Failure, Placer
from scheduler.core.policy import Policies, Refusal
from scheduler.core.possible import Possible
from scheduler.core.promised import Promised
from scheduler.core.unevictable import unevictable
from scheduler.core.usage import Amounts, Usage, charged

__all__ = ["Allocation"]

_FRESH: Final = Progress()
_ROOM: Final = frozenset({"room", "nodes"})


class Step(NamedTuple):
    """What a unit takes at its turn."""

    parts: Chunk
    amounts: Amounts
    shapes: Runs
    key: UnitKeyOf


class Allocation:
    """What was decided so far, and how far each unit is."""

    def __init__(self, snapshot: Snapshot, policies: Policies, due: Ints) -> None:
        self.admissions: Final[list[Admission]] = []
        self._unbound = 0  # of them, the first so many are not carried out
        self.rejections: Final[dict[int, Rejection]] = {}
        self.snapshot: Final = snapshot
        self.policies: Final = policies
        self.due: Final = due
        self.usage: Final = Usage(snapshot.queues)
        self.usage.fix(unevictable(snapshot))
        self.keys: Final = QueueKeys(snapshot.queues, self.usage, due, snapshot.total)
        self.ledger: Final = Ledger(snapshot)
        self.placer: Final = Placer(self.ledger, policies)
        self._possible: Final = Possible(self.placer, self.usage)
        steps: Final[dict[int, Step]] = {}
        self.next: Final = steps
        self._asked: Final = lambda row: steps[row].amounts  # no method: that would be a circle
        self._promised: Final = Promised(snapshot, self.usage)
        self._held: Final = Held(snapshot, self.ledger, self.usage)
        self._ending: Final = Ending(snapshot, self.usage)
        self._progress: dict[int, Progress] = {}
        self._growth: dict[int, Growth] = {}
        self._waiting: dict[int, int] = {}  # pods of units that are not placed
        # Shapes for which there was no room, since the last admission; numbers if they are final.
        # For those who may have something that is set aside by what it is.
        self._hopeless: dict[tuple[Wish, Runs], NodeNumbers | None] = {}

    def run(self) -> None:
        """Give turns, round after round.

        In the first round is set aside what was promised; after it there may be more room.
        """
        rows = list(self._line_up())
        self._hold(rows)
        is_last = not self._held
        while rows:
            before = len(self.admissions)
            rows = self._round(rows)
            if is_last and len(self.admissions) == before:
                return
            is_last = True

    def look(self) -> None:
        """Give room as `run` does, and carry none of it out: for a plan that does not allocate.

        A unit that there is room for keeps it from others, is not bound, and takes nothing.
        """
        self.run()
        self._unbound = len(self.admissions)
        for one in self.admissions:
            self.rejections.pop(one.unit, None)

    @property
    def decided(self) -> Sequence[Admission]:
        """Return the admissions that are to be carried out."""
        return self.admissions[self._unbound :]

    def turns(
        self, rows: Iterable[int], lateness: Callable[[int, int], int] | None = None
    ) -> Turns:
        """Return the order in which some units have their turns, by the *lateness* of queues."""
        line = by_queue((self.snapshot.units[row].queue, self.next[row].key) for row in rows)
        return Turns(self.snapshot.queues, self.keys.key, self._asked, line, lateness)

    def key(self, row: int, at: int) -> UnitKeyOf:
        """Return the place in its queue of a unit that stands so."""
        unit = self.snapshot.units[row]
        return (*[of(unit, at) for of in self.policies.unit_order], row)

    def progress(self, row: int) -> Progress:
        """Return what was placed of a unit so far."""
        return self._progress.get(row, _FRESH)

    def has_slots(self, row: int) -> bool:
        """Say whether a unit would give up slots, which no other has."""
        for part in self.next[row].parts:
            if part.leaf.slots and self.progress(row).slots(part.leaf):
                return True
        return False

    def attempt(self, row: int, *, waits: bool) -> bool:
        """Give a unit what it takes next, and what it can have beyond, if there is room.

        If it *waits*, then for others to go, though there be room at once.
        """
        if not self.claim(row, waits=waits):
            return False
        self.grow(row)
        return True

    def claim(self, row: int, *, waits: bool) -> bool:
        """Give a unit what it takes next; what was told of it stands if there is no room."""
        told = self.rejections.get(row)
        if self._try(row, is_final=False, waits=waits):
            return True
        if told is not None:
            self.rejections[row] = told
        return False

    def awaits_its_own(self, row: int) -> bool:
        """Say whether what goes of its own queues is in the way of a unit."""
        return self._ending.refuses(row, self.next[row].amounts, self.refusal) is not None

    def grow(self, row: int) -> None:
        """Give a unit that was given something what it can have beyond."""
        while self._goes_on(row) and self._try(row, is_final=True):
            pass

    def retry(self) -> None:
        """Let everything be tried again: there is room that was not there."""
        self._hopeless.clear()

    def release(self, queue: int, amounts: Amounts) -> None:
        """Let a queue have less, whose pods were taken out of the ledger, and are going."""
        self.usage.give(queue, amounts, is_fixed=False)
        self._ending.lose(queue, amounts)
        self.retry()

    def refusal(self, usage: Usage, row: int, amounts: Amounts | None = None) -> Refusal | None:
        """Say which bound of a queue is in the way of a unit, if its queues have so much.

        Of what it takes next, unless other *amounts* are given.
        """
        more = self.next[row].amounts if amounts is None else amounts
        for quota in self.policies.quotas:
            refusal = quota(usage, self.snapshot.units[row], more)
            if refusal is not None:
                return refusal
        return None

    def stats(self) -> Stats:
        """Return what was done."""
        return Stats(len(self.decided), len(self.rejections))

    def _line_up(self) -> Iterator[int]:
        """Yield every unit that can be tried; say why others cannot."""
        for row, unit in enumerate(self.snapshot.units):
            if not _wants(unit):
                continue
            parts = chunk(unit.tree)
            bar = unit.bar or _bar_of_growth(unit, parts, _FRESH)
            if bar is not None and (parts or bar.verdict < Verdict.PODS_MISSING):
                self._reject(row, bar.verdict, BarNumbers(bar.message), bar.wakes_on)
                continue
            if not parts or _is_slots_alone(unit, parts):
                self._reject_for_members(row, unit)
                continue
            self.next[row] = self._step(row, parts, _FRESH, standing(unit.tree))
            self._waiting[row] = sum([len(leaf.waiting) for leaf in leaves_of(unit.tree)])
            yield row

    def _round(self, rows: list[int]) -> list[int]:
        """Give each unit a turn, and more to those that grow; return who failed."""
        failed = []
        first = len(self.admissions)
        turns = self.turns(rows, self._promised.lateness if self._expect(rows) else None)
        while (row := turns.pop()) is not None:
            self._promised.had_turn(row)
            if not self._try(row, is_final=len(self.admissions) == first):
                failed.append(row)
            elif self._goes_on(row):
                self._expect([row])
                self._hold([row])
                turns.push(self.next[row].key)
        return failed

    def _hold(self, rows: list[int]) -> None:
        """Set aside what was promised to units that have no slots to go to."""
        if self._promised:
            self._held.hold(
                (row, [self.next[row].shapes, *self._later_promises(row)])
                for row in rows
                if self._promised.holds(self.next[row].parts) and not self.has_slots(row)
            )

    def _later_promises(self, row: int) -> Iterator[Runs]:
        """Yield the shapes of pods of a unit that were promised something beyond its next chunk."""
        tree, parts = self.snapshot.units[row].tree, self.next[row].parts
        for pod in beyond(tree, parts, self.progress(row)):
            shape = int(self.snapshot.pods.shape[pod])
            if self._promised.is_one(shape):
                yield ((shape, 1),)

    def _expect(self, rows: list[int]) -> bool:
        """Take note of those who were promised something; say whether there are any."""
        promised = self._promised
        return bool(promised) and promised.expect(
            row for row in rows if promised.holds(self.next[row].parts)
        )

    def _try(self, row: int, *, is_final: bool, waits: bool = False) -> bool:
        placed = self._room(row, is_final=is_final, waits=waits)
        if placed is None:
            return False
        unit = self.snapshot.units[row]
        self.usage.take(unit.queue, self.next[row].amounts, is_fixed=not unit.is_preemptible)
        self._admit(row, unit, placed)
        return True

    def _room(self, row: int, *, is_final: bool, waits: bool = False) -> Admission | None:
        """Place what a unit takes next; None, and why is noted, if there is no room."""
        parts, amounts, shapes, _ = self.next[row]
        if self._held.let_go(row):
            self.retry()
        refusal = self.refusal(self.usage, row)
        if refusal is None and self._held:
            refusal = self._held.refuses(row, lambda: self.refusal(self.usage, row))
        if refusal is not None:
            self._reject_for_bounds(row, refusal)
            return None
        has_slots = self.has_slots(row)
        wish = self._held.whose(row), shapes
        own = self._ending.refuses(row, amounts, self.refusal)
        if not has_slots and self._is_known(wish, is_final=is_final):
            self._reject_for_nodes(row, self._hopeless[wish], own)
            return None
        waits = waits or self._ending.is_late(row, amounts, self.refusal)
        checkpoint = self.ledger.checkpoint
        placed = self._placed(row, parts, waits=waits)
        if isinstance(placed, Failure):
            numbers = self._numbers(placed, shapes, is_final=is_final)
            if not has_slots:
                self._hopeless[wish] = numbers
            self._reject_for_nodes(row, numbers, own)
        elif own is None:
            self._ending.wait(row, placed, with_slots=waits)
        elif not self._ending.may_wait(row, placed, amounts, self.refusal):
            self.ledger.roll_back(checkpoint)
            self._held.put_back()
            self._reject_for_bounds(row, own)
            return None
        self._held.put_back()
        return None if isinstance(placed, Failure) else placed

    def _placed(self, row: int, parts: Chunk, *, waits: bool) -> Admission | Failure:
        """Place a unit; if need be where others of its queue were promised room."""
        progress = self.progress(row)
        placed = self.placer.place(row, parts, progress, waits=waits)
        if isinstance(placed, Failure) and self._held.may_lift(row):
            self.ledger.roll_back(placed.checkpoint)
            self._held.lift(row)
            placed = self.placer.place(row, parts, progress, waits=waits)
        return placed

    def _is_known(self, wish: tuple[Wish, Runs], *, is_final: bool) -> bool:
        """Say whether these found no room, nothing has changed since, and why is known if asked."""
        return wish in self._hopeless and not (is_final and self._hopeless[wish] is None)

    def _numbers(self, failure: Failure, shapes: Runs, *, is_final: bool) -> NodeNumbers | None:
        """Return the numbers of a failure that may be the last; undo what was placed before it."""
        if is_final:
            field = self.placer.field(failure.shape)
            return node_numbers(self.ledger, field, failure, shapes)
        self.ledger.roll_back(failure.checkpoint)
        return None

    def _admit(self, row: int, unit: Unit, placed: Admission) -> None:
        is_first = row not in self._progress and not placed.nominations and placed.binds
        if is_first and not any(leaf.there for leaf in leaves_of(unit.tree)):
            placed = Admission(row, placed.binds, (), placed.reservations, is_start=True)
        self.admissions.append(placed)
        self.rejections.pop(row, None)
        self._hopeless.clear()

    def _goes_on(self, row: int) -> bool:
        """Say whether a unit that got some room wants more, and work out what."""
        parts = self.next[row].parts
        self._waiting[row] -= sum([len(part.pods) for part in parts])
        if not self._waiting[row]:
            return False
        unit = self.snapshot.units[row]
        progress = self._progress.setdefault(row, Progress())
        had_enough = row in self._growth
        progress.add(parts)
        growth = self._growth.setdefault(row, Growth(unit.tree))
        more = growth.next(progress)
        if not more:
            self._reject_for_members(row, unit)
            return False
        bar = _bar_of_growth(unit, more, progress)
        if bar is not None:
            self._reject(row, bar.verdict, BarNumbers(bar.message), bar.wakes_on)
            return False
        at = 1 if had_enough else standing(unit.tree, progress)  # what comes on top can be spared
        self.next[row] = self._step(row, more, progress, at)
        return True

    def _step(self, row: int, parts: Chunk, progress: Progress, at: int) -> Step:
        shapes = self.placer.shapes(parts)
        amounts = self._amounts(parts, shapes, progress)
        key = self.key(row, at)
        if self._promised:  # before others, but not before a larger priority
            first = min(1, len(key) - 1)
            key = (*key[:first], not self._promised.holds(parts), *key[first:])
        could = self._possible.could_have_room(self.snapshot.units[row].queue, amounts, shapes)
        return Step(parts, amounts, shapes, (not could, *key))

    def _amounts(self, parts: Chunk, asked: Runs, progress: Progress) -> Amounts:
        """Return what a chunk adds to what its queue has: slots that are given up come off."""
        shapes = self.snapshot.shapes
        cpu, memory, gpu = charged(shapes, asked)
        for leaf, pods, _ in parts:
            if leaf.slots:
                for slot in progress.slots(leaf)[: len(pods)]:
                    counted = shapes[slot.shape].counted
                    cpu, memory, gpu = cpu - counted[0], memory - counted[1], gpu - counted[2]
        return cpu, memory, gpu

    def _reject_for_bounds(self, row: int, refusal: Refusal) -> None:
        wakes_on = frozenset({f"queue:{refusal.numbers.queue}"})
        self._reject(row, refusal.verdict, refusal.numbers, wakes_on)

    def _reject_for_nodes(self, row: int, numbers: NodeNumbers | None, own: Refusal | None) -> None:
        """Say that there was no room, or before that that it waits for what goes of its queues."""
        if own is not None:
            self._reject_for_bounds(row, own)
        elif numbers is not None:
            self._reject(row, numbers.verdict, numbers, _ROOM)

    def _reject_for_members(self, row: int, unit: Unit) -> None:
        missing = tuple(
            Missing(leaf.name, _existing(leaf), leaf.minimum, leaf.gated)
            for leaf in leaves_of(unit.tree)
            if not can_be_satisfied(leaf)
        )
        self._reject(row, Verdict.PODS_MISSING, MemberNumbers(missing), frozenset({f"unit:{row}"}))

    def _reject(
        self,
        row: int,
        verdict: Verdict,
        numbers: Numbers,
        wakes_on: frozenset[str],
    ) -> None:
        is_curable = isinstance(numbers, NodeNumbers) and numbers.is_curable
        self.rejections[row] = Rejection(row, verdict, numbers, is_curable, wakes_on)


def _bar_of_growth(unit: Unit, parts: Chunk, progress: Progress) -> Bar | None:
    return unit.growth_bar if is_growth(unit.tree, parts, progress) else None


def _existing(leaf: Leaf) -> int:
    return leaf.there + leaf.succeeded + len(leaf.waiting) + leaf.gated


def _is_slots_alone(unit: Unit, parts: Chunk) -> bool:
    """Say whether a unit of which nothing is there would take slots that nothing holds."""
    return not unit.is_kept and not any(part.pods for part in parts)


def _wants(unit: Unit) -> bool:
    """Say whether a unit wants anything: pods wait, or it runs and slots of it are missing."""
    tree = unit.tree
    if isinstance(tree, Leaf) and not tree.waiting and not tree.later:
        return False  # it is so for most: there are whole clusters of them
    if has_waiting(tree):
        return True
    if not unit.is_kept or unit.bar is not None or not has_later(unit.tree):
        return False  # of pods that neither wait nor come no slot is missing
    return bool(chunk(unit.tree)) and not is_satisfied(unit.tree)
