"""The one question, and the one answer: who gets which room now, and why the others wait."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.core.chunks import Chunk, Progress, can_be_satisfied, chunk, is_satisfied, standing
from scheduler.core.decision import (
    Admission,
    BarNumbers,
    MemberNumbers,
    NodeNumbers,
    Numbers,
    Plan,
    Rejection,
    Stats,
)
from scheduler.core.ledger import Ledger
from scheduler.core.model import Snapshot, Unit, Verdict, leaves_of
from scheduler.core.numbers import node_numbers
from scheduler.core.order import QueueKeys, Turns, UnitKeyOf
from scheduler.core.place import Failure, Placer
from scheduler.core.policy import Policies, Refusal
from scheduler.core.share import fair_share
from scheduler.core.usage import Amounts, Usage

__all__ = ["Limits", "plan"]

_NOTHING: Final[Amounts] = (0, 0, 0)
_FRESH: Final = Progress()
_ROOM: Final = frozenset({"room", "nodes"})


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one plan may do: counts, never seconds, so that slow machines decide the same."""

    max_units: int | None = None  # to try


def plan(snapshot: Snapshot, policies: Policies, limits: Limits = Limits()) -> Plan:
    """Answer for a snapshot; the same one always has the same answer."""
    due = fair_share(snapshot.queues, snapshot.total, policies.past_use)
    allocation = _Allocation(snapshot, policies)
    if "allocate" in policies.actions:
        usage = allocation.usage
        keys = QueueKeys(snapshot.queues, usage, due, snapshot.total)
        turns = Turns(snapshot.queues, keys, allocation.asked, allocation.line_up())
        allocation.run(turns, limits)
    return Plan(
        decisions=tuple(allocation.admissions),
        rejections=tuple(sorted(allocation.rejections.values(), key=lambda it: it.unit)),
        fair_share=due,
        stats=allocation.stats(),
    )


class _Step(NamedTuple):
    """What a unit takes at its turn."""

    parts: Chunk
    amounts: Amounts
    shapes: tuple[int, ...]


class _Allocation:
    """The action: room for units that wait, out of what nobody has."""

    def __init__(self, snapshot: Snapshot, policies: Policies) -> None:
        self.usage: Final = Usage(snapshot.queues)
        self.admissions: Final[list[Admission]] = []
        self.rejections: Final[dict[int, Rejection]] = {}
        self._snapshot = snapshot
        self._policies = policies
        self._ledger = Ledger(snapshot)
        self._placer = Placer(self._ledger, policies)
        self._progress: dict[int, Progress] = {}
        self._next: dict[int, _Step] = {}  # what units take at their turn
        self._waiting: dict[int, int] = {}  # pods of units that are not placed
        self._hopeless: dict[
            tuple[int, ...], NodeNumbers
        ] = {}  # shapes for which there was no room
        self._attempts = 0
        self._untried = 0

    def line_up(self) -> Iterator[tuple[int, UnitKeyOf]]:
        """Yield queue and key of every unit that can be tried; say why others cannot."""
        for row, unit in enumerate(self._snapshot.units):
            if not _wants(unit):
                continue
            bar, parts = unit.bar, chunk(unit.tree)
            if bar is not None and (parts or bar.verdict < Verdict.PODS_MISSING):
                self._reject(row, bar.verdict, BarNumbers(bar.message), bar.wakes_on)
                continue
            if not parts:
                self._reject_for_members(row, unit)
                continue
            self._next[row] = self._step(parts, _FRESH)
            self._waiting[row] = sum([len(leaf.waiting) for leaf in leaves_of(unit.tree)])
            yield unit.queue, self._key(row, _FRESH)

    def asked(self, row: int) -> Amounts:
        """Return what a unit asks for at its next turn."""
        return self._next[row].amounts

    def run(self, turns: Turns, limits: Limits) -> None:
        """Give turn after turn."""
        while (row := turns.pop()) is not None:
            if limits.max_units is not None and self._attempts >= limits.max_units:
                self._untried += 1
                continue
            self._attempts += 1
            if self._try(row) and self._goes_on(row):
                turns.push(self._key(row, self._progress[row]))

    def stats(self) -> Stats:
        """Return what was done."""
        return Stats(self._attempts, len(self.admissions), len(self.rejections), self._untried)

    def _try(self, row: int) -> bool:
        unit = self._snapshot.units[row]
        parts, amounts, shapes = self._next[row]
        refusal = self._refusal(unit, amounts)
        if refusal is not None:
            wakes_on = frozenset({f"queue:{refusal.numbers.queue}"})
            self._reject(row, refusal.verdict, refusal.numbers, wakes_on)
            return False
        progress = self._progress.get(row, _FRESH)
        has_slots = any(progress.slots(part.leaf) for part in parts if part.leaf.slots)
        known = None if has_slots else self._hopeless.get(shapes)
        if known is not None:
            self._reject_for_nodes(row, known)
            return False
        placed = self._placer.place(row, parts, progress)
        if isinstance(placed, Failure):
            self._fail(row, shapes, placed)
            return False
        self.usage.take(unit.queue, amounts, is_fixed=not unit.is_preemptible)
        self._admit(row, unit, placed)
        return True

    def _refusal(self, unit: Unit, amounts: Amounts) -> Refusal | None:
        for quota in self._policies.quotas:
            refusal = quota(self.usage, unit, amounts)
            if refusal is not None:
                return refusal
        return None

    def _admit(self, row: int, unit: Unit, placed: Admission) -> None:
        is_first = row not in self._progress and not placed.nominations
        has_begun = any(leaf.there for leaf in leaves_of(unit.tree))
        if is_first and placed.binds and not has_begun:
            placed = Admission(row, placed.binds, (), placed.reservations, is_start=True)
        self.admissions.append(placed)

    def _goes_on(self, row: int) -> bool:
        """Say whether a unit that got some room wants more, and work out what."""
        parts = self._next[row].parts
        if any(part.leaf.slots for part in parts):
            self._hopeless.clear()  # slots were given up, and with them perhaps more than was taken
        self._waiting[row] -= sum([len(part.pods) for part in parts])
        if not self._waiting[row]:
            return False
        unit = self._snapshot.units[row]
        progress = self._progress.setdefault(row, Progress())
        progress.add(parts)
        more = chunk(unit.tree, progress)
        if not more:
            self._reject_for_members(row, unit)
            return False
        self._next[row] = self._step(more, progress)
        return True

    def _step(self, parts: Chunk, progress: Progress) -> _Step:
        shapes = self._placer.shapes(parts)
        return _Step(parts, self._amounts(parts, shapes, progress), shapes)

    def _key(self, row: int, progress: Progress) -> UnitKeyOf:
        unit = self._snapshot.units[row]
        at = standing(unit.tree, progress)
        return (*[of(unit, at) for of in self._policies.unit_order], row)

    def _amounts(self, parts: Chunk, asked: tuple[int, ...], progress: Progress) -> Amounts:
        """Return what a chunk adds to what its queue has: slots that are given up come off."""
        shapes = self._snapshot.shapes
        cpu = memory = gpu = 0
        for shape in asked:
            counted = shapes[shape].counted
            cpu, memory, gpu = cpu + counted[0], memory + counted[1], gpu + counted[2]
        for leaf, pods, _ in parts:
            if leaf.slots:
                for slot in progress.slots(leaf)[: len(pods)]:
                    counted = shapes[slot.shape].counted
                    cpu, memory, gpu = cpu - counted[0], memory - counted[1], gpu - counted[2]
        return cpu, memory, gpu

    def _fail(self, row: int, shapes: tuple[int, ...], failure: Failure) -> None:
        field = self._placer.field(failure.shape)
        numbers = node_numbers(self._ledger, field, failure, shapes)
        if all(self._placer.field(shape).is_unmoved for shape in set(shapes[: failure.placed + 1])):
            self._hopeless[shapes] = numbers
        self._reject_for_nodes(row, numbers)

    def _reject_for_nodes(self, row: int, numbers: NodeNumbers) -> None:
        self._reject(row, numbers.verdict, numbers, _ROOM)

    def _reject_for_members(self, row: int, unit: Unit) -> None:
        missing = tuple(
            (leaf.name, leaf.there + leaf.succeeded + len(leaf.waiting), leaf.minimum)
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


def _wants(unit: Unit) -> bool:
    """Say whether a unit wants anything: pods wait, or it runs and slots of it are missing."""
    if any(leaf.waiting for leaf in leaves_of(unit.tree)):
        return True
    return (
        unit.is_kept and unit.bar is None and bool(chunk(unit.tree)) and not is_satisfied(unit.tree)
    )
