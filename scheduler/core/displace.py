"""Room for somebody who waits, at the cost of others: searched, and taken with what it is for.

Nobody is evicted but together with the placement that it makes possible, and nobody who was not
needed for it.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np

from scheduler.core.allocate import Allocation
from scheduler.core.decision import Action, Eviction, Move, NodeNumbers, QuotaNumbers, Rejection
from scheduler.core.gone import Ask, Gone, Leave
from scheduler.core.line import Block, Line
from scheduler.core.model import NONE, Kind, Verdict
from scheduler.core.order import UnitKeyOf
from scheduler.core.search import choose
from scheduler.core.seating import Seating
from scheduler.core.stock import Stock
from scheduler.core.tenants import Member, Tenants
from scheduler.core.usage import Amounts

__all__ = ["Displacement", "Headroom"]

_MOST_SEATINGS: Final = 64  # each is as large as there are nodes


class Headroom:
    """Whether the bounds of queues leave a unit enough when others have less."""

    def __init__(self, allocation: Allocation, row: int) -> None:
        self._allocation: Final = allocation
        self._row: Final = row
        is_refused = allocation.refusal(allocation.usage, row) is not None
        self._usage: Final = allocation.usage.copy() if is_refused else None

    def take(self, block: Block, amounts: Amounts) -> None:
        """Let a queue have less."""
        if self._usage is not None:
            self._usage.give(block.queue, amounts, is_fixed=False)

    def spare(self, block: Block, amounts: Amounts) -> None:
        """Let it have that again."""
        if self._usage is not None:
            self._usage.take(block.queue, amounts, is_fixed=False)

    def is_within(self) -> bool:
        """Say whether nothing is in the way."""
        return self._usage is None or self._allocation.refusal(self._usage, self._row) is None


class Displacement:
    """What was taken from whom so far."""

    def __init__(self, allocation: Allocation, evictable_gpus: int | None) -> None:
        self.allocation: Final = allocation
        self._evictable_gpus = evictable_gpus
        self.evictions: Final[list[Eviction]] = []
        self.moves: Final[list[Move]] = []
        self.stats: Final = {"searches": 0, "trials": 0, "sets": 0, "cut": 0}
        self.served: Final[set[int]] = set()  # who took what
        self._losers: Final[set[int]] = set()
        self._seatings: Final[dict[int, Seating]] = {}

    @cached_property
    def admitted(self) -> set[int]:
        """Return who was given something in this plan; it is added to."""
        return {one.unit for one in self.allocation.admissions}

    @cached_property
    def stock(self) -> Stock:
        """Return what queues could lose at most."""
        return Stock(self.allocation.snapshot, self.admitted)

    def free(self, kind: Kind) -> int:
        """Return what of a kind there is room for on all nodes."""
        axes, room = self.allocation.snapshot.axes, self.allocation.ledger.room
        columns = [r for r, of in enumerate(axes.kinds) if of == kind]
        weights = np.array([axes.weights[r] for r in columns], dtype=np.int64)
        return int((room[:, columns].clip(min=0) * weights).sum())

    @cached_property
    def tenants(self) -> Tenants:
        """Return those who could lose something: nobody who has just been given something."""
        return Tenants(self.allocation.snapshot, self.admitted, self.key)

    @cached_property
    def line(self) -> Line:
        """Return the order in which they would lose it."""
        allocation = self.allocation
        return Line(allocation.snapshot.queues, allocation.keys, self.tenants.blocks)

    def claimants(self) -> Iterator[int]:
        """Yield the units that could be helped by taking something from others, in their turns."""
        if self._is_spent:
            return
        allocation, units = self.allocation, self.allocation.snapshot.units
        left = {row for row, one in allocation.rejections.items() if _is_curable(one)}
        left &= allocation.next.keys() - self._losers
        turns = allocation.turns(left)
        while not self._is_spent and (row := turns.pop()) is not None:
            left.remove(row)
            made = len(self.evictions)
            if units[row].patient_until <= allocation.snapshot.now:
                yield row
            lost = {unit for one in self.evictions[made:] for unit in one.units}
            if left & lost:  # who loses something takes nothing
                left -= lost
                turns = allocation.turns(left)
            for queue in {units[unit].queue for unit in lost}:
                turns.touch(queue)

    @property
    def _is_spent(self) -> bool:
        return self._evictable_gpus is not None and self._evictable_gpus <= 0

    def who_may_go(self, ask: Ask, of: Tenants | None = None) -> Callable[[int], bool] | None:
        """Say who may: nobody whom the pods want to be near, or are spread beside; None is all."""
        tenants = of or self.tenants
        shapes = self.allocation.snapshot.shapes
        asked = [shapes[shape] for shape in ask.wanted]
        friends = {term.selector for one in asked for term in one.near}
        friends |= {spread.selector for one in asked for spread in one.spread}
        if not friends:
            return None

        def may_go(block: int) -> bool:
            members = tenants.members[block]
            return all(friends.isdisjoint(shapes[it.shape].matches) for it in members)

        return may_go

    def use_what_is_left(self, ask: Ask) -> bool:
        """Give a unit what was taken for others and was more than they needed, if it is enough."""
        if not self.evictions:
            return False
        for shape, seating in ask.seatings.items():
            seating.settle()
            if seating.total < ask.wanted[shape]:
                return False
        return self._attempt(ask.unit, waits=False)

    def make_room(
        self, ask: Ask, action: Action, line: Iterator[int], count: int, leave: Leave
    ) -> bool:
        """Take from so many blocks that stand in line what a unit needs; say whether it has it."""
        for trusts in (True, False):
            placer = self.allocation.placer
            gone = Gone(ask, placer, self.tenants, line, leave, trusts=trusts)
            choice = choose(count, gone)
            self.stats["searches"] += 1
            self.stats["trials"] += gone.trials
            self.stats["sets"] += choice.tried
            self.stats["cut"] += choice.is_cut or gone.is_cut
            if choice.ranks is None or gone.is_cut:  # cut: somebody might be spared
                return False
            blocks = [gone.blocks[rank] for rank in choice.ranks]
            if self._carry_out(ask.unit, action, blocks):
                return True
            line = chain(gone.blocks, line)
        return False

    def let_go(self, units: tuple[int, ...], pods: tuple[int, ...], action: Action) -> None:
        """Take from units all they have, these pods, for nobody; who lost something is left."""
        if self._is_spent or not self._losers.isdisjoint(units):
            return
        self.note(units, pods, action, NONE)

    def has_slots(self, row: int) -> bool:
        """Say whether a unit would give up slots, which no other has."""
        progress = self.allocation.progress(row)
        parts = self.allocation.next[row].parts
        return any(progress.slots(part.leaf) for part in parts if part.leaf.slots)

    def ask(self, row: int) -> Ask:
        """Return what a unit wants next."""
        allocation = self.allocation
        parts, _, shapes, _ = allocation.next[row]
        progress = allocation.progress(row)
        has_slots = self.has_slots(row)
        wanted = {shape: shapes.count(shape) for shape in {*shapes}}
        unmoved = all(allocation.placer.field(shape).is_unmoved for shape in wanted)
        return Ask(
            unit=row,
            parts=parts,
            progress=progress,
            wanted=wanted,
            seatings={} if has_slots else {shape: self._seating(shape) for shape in wanted},
            is_counted=unmoved and len(wanted) == 1 and not has_slots,
            is_unmoved=unmoved,
        )

    def _seating(self, shape: int) -> Seating:
        seating = self._seatings.get(shape)
        if seating is None:
            if len(self._seatings) >= _MOST_SEATINGS:  # the one that was made first goes
                del self._seatings[next(iter(self._seatings))]
            placer = self.allocation.placer
            seating = self._seatings[shape] = Seating(placer.ledger, placer.field(shape))
        return seating

    def _carry_out(self, row: int, action: Action, blocks: list[int]) -> bool:
        """Evict, and place what it is for; if that fails, let everything be as it was."""
        allocation, tenants = self.allocation, self.tenants
        checkpoint = allocation.ledger.checkpoint
        lost: dict[int, tuple[Member, ...]] = {}
        seen: set[Member] = set()
        for block in sorted(blocks, key=lambda one: -len(tenants.members[one])):
            lost[block] = tuple([it for it in tenants.members[block] if it not in seen])
            seen.update(lost[block])
        for block, members in lost.items():
            for member in members:
                if member.node != NONE:
                    allocation.ledger.evict(member.node, member.shape)
            amounts = tenants.amounts(block, members)
            allocation.release(tenants.blocks[block].queue, amounts)
        if not self._attempt(row, waits=True):
            allocation.ledger.roll_back(checkpoint)
            for block, members in lost.items():
                cpu, memory, gpu = tenants.amounts(block, members)
                allocation.release(tenants.blocks[block].queue, (-cpu, -memory, -gpu))
            return False
        for block, members in lost.items():
            self._note(block, members, action, row)
        return True

    def _attempt(self, row: int, *, waits: bool) -> bool:
        """Place a unit; who has just been given something loses nothing."""
        if not self.allocation.attempt(row, waits=waits):
            return False
        self.keep(row)
        return True

    def keep(self, row: int) -> None:
        """Let a unit that was given something lose nothing."""
        self.admitted.add(row)
        self.served.add(row)
        if "tenants" in self.__dict__:
            for block in self.tenants.spare(row):
                self.line.drop(block)

    def note(self, units: tuple[int, ...], pods: tuple[int, ...], action: Action, row: int) -> None:
        """Note that units lose all they have, these pods; *row* is the claimant, or NONE."""
        shapes, shape_of = self.allocation.snapshot.shapes, self.allocation.snapshot.pods.shape
        self._pay(sum([shapes[shape_of[pod]].counted[Kind.GPU] for pod in pods]))
        self.evictions.append(Eviction(units, pods, is_whole=True, action=action, claimant=row))
        self._losers.update(units)

    def _note(self, block: int, members: tuple[Member, ...], action: Action, row: int) -> None:
        pods = tuple([member.pod for member in members if member.pod >= 0])
        is_whole = self.tenants.is_whole[block]
        self._pay(self.tenants.amounts(block, members)[Kind.GPU])
        self.evictions.append(Eviction(self.tenants.units[block], pods, is_whole, action, row))
        self._losers.update(self.tenants.units[block])
        for gone in self.tenants.lose(block):
            self.line.drop(gone)

    def _pay(self, gpus: int) -> None:
        if self._evictable_gpus is not None:
            self._evictable_gpus -= gpus

    def key(self, row: int, at: int) -> UnitKeyOf:
        """Return the place of a unit that stands so among those of its queue."""
        unit = self.allocation.snapshot.units[row]
        return (*[of(unit, at) for of in self.allocation.policies.unit_order], row)


def _is_curable(rejection: Rejection) -> bool:
    if isinstance(rejection.numbers, QuotaNumbers):
        return rejection.verdict == Verdict.EXCEEDS_LIMIT
    return isinstance(rejection.numbers, NodeNumbers) and rejection.is_curable
