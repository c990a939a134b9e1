"""Room for somebody who waits, at the cost of others: searched, and taken with what it is for.

Nobody is evicted but together with the placement that it makes possible, and nobody who was not
needed for it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

from scheduler.core.allocate import Allocation
from scheduler.core.budgets import Disruptions
from scheduler.core.chunks import Runs
from scheduler.core.decision import (
    Action,
    Eviction,
    Kept,
    Move,
    NodeNumbers,
    QuotaNumbers,
    Rejection,
)
from scheduler.core.gone import Ask, Gone, Leave, Try
from scheduler.core.keepers import Keepers
from scheduler.core.line import Block, Line
from scheduler.core.model import NONE, Kind, Shape, Verdict
from scheduler.core.search import choose
from scheduler.core.seating import Seating
from scheduler.core.stock import Stock
from scheduler.core.sums import total
from scheduler.core.tenants import Member, Tenants
from scheduler.core.tenure import Tenure
from scheduler.core.usage import Amounts
from scheduler.core.vain import Vain
from scheduler.core.work import Work, in_order

__all__ = ["Displacement", "Headroom", "Keeps", "but"]

_MOST_SEATINGS: Final = 64  # each is as large as there are nodes

Keeps: TypeAlias = Callable[[int], bool] | None  # which blocks come into question; None is all
_Walk: TypeAlias = Callable[[Keeps], tuple[Iterator[int], int]]

_Ground: TypeAlias = tuple[int, int, Runs, bool, int, bool]


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
        self.stats: Final = {"searches": 0, "trials": 0, "sets": 0, "cut": 0, "withheld": 0}
        self.served: Final[set[int]] = set()  # who took what
        self.vain: Final = Vain(allocation)
        self.disruptions: Final = Disruptions(allocation.snapshot.budgets)
        self._losers: Final[set[int]] = set()
        self._withheld: Final[set[int]] = set()  # who claims nothing, for enough was taken
        # By what is asked for: pods by shape, and whether nobody else matters to any of them.
        self._wanted: Final[dict[Runs, tuple[dict[int, int], bool]]] = {}
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
        return sum([total(room[:, r].clip(min=0)) * axes.weights[r] for r in columns])

    def could_be_enough(self, amounts: Amounts, most: Callable[[Kind], int]) -> bool:
        """Say whether what may be lost at most, with what is free, could be enough."""
        kind = Kind.GPU if amounts[Kind.GPU] else Kind.CPU
        missing = amounts[kind] - most(kind)
        return missing <= 0 or missing <= self.free(kind)

    @cached_property
    def tenants(self) -> Tenants:
        """Return those who could lose something: nobody who has just been given something."""
        snapshot, key = self.allocation.snapshot, self.allocation.key
        return Tenants(snapshot, self.admitted, key, self.disruptions)

    @cached_property
    def tenure(self) -> Tenure:
        """Return who of them keeps what it needs for now."""
        allocation = self.allocation
        chosen = allocation.policies.min_runtime
        return Tenure(allocation.snapshot, self.tenants, allocation.usage.paths, chosen)

    @cached_property
    def _keepers(self) -> Keepers:
        units = self.allocation.snapshot.units
        return Keepers(units, self.vain.staying, self.tenants, self.tenure)

    @cached_property
    def line(self) -> Line:
        """Return the order in which they would lose it."""
        allocation = self.allocation
        return Line(allocation.snapshot.queues, allocation.keys, self.tenants.blocks)

    @cached_property
    def work(self) -> Work:
        """Return what work they would lose."""
        return Work(self.allocation.snapshot)

    def chosen(self, row: int, line: Iterator[int]) -> Iterator[int]:
        """Return those who stand in line in the order that the site has chosen for a unit."""
        order, asked = self.allocation.policies.victims, self.allocation.next[row].amounts
        if order is None:
            return line
        return in_order(line, order, self.tenants, self.work.lost, asked)

    def let_claim(
        self,
        pursue: Callable[[int], Kept | None],
        may_claim: Callable[[int], bool],
        *,
        by_priority: bool,
    ) -> None:
        """Let everybody claim, one chunk each; not who asks for what was just refused.

        Whether priority makes a difference depends on the action. Who has slots is like no other.
        *pursue* returns why nothing was taken.
        """
        hopeless: dict[_Ground, tuple[int, Kept]] = {}
        admissions, units = self.allocation.admissions, self.allocation.snapshot.units
        steps = self.allocation.next
        for row in self.claimants(may_claim):
            unit, step = units[row], steps[row]
            priority = unit.priority if by_priority else 0
            own = row if self.allocation.has_slots(row) else NONE
            patient = self.is_patient(row)
            claim = unit.queue, priority, step.shapes, unit.is_preemptible, own, patient
            made = len(admissions)
            known = hopeless.get(claim)
            if known is None or known[0] != made:
                kept = pursue(row)
                if kept is None:
                    continue
                known = hopeless[claim] = made, kept
            self.vain.keep(row, known[1])

    def claimants(self, may_claim: Callable[[int], bool] = lambda _: True) -> Iterator[int]:
        """Yield the units that could be helped by taking something from others, in their turns.

        Not those in whose way is what goes of their own queues: that is over soon.
        Where enough was taken for now, those are told so who *may claim* anything.
        """
        allocation, units = self.allocation, self.allocation.snapshot.units
        left = {row for row, one in allocation.rejections.items() if _is_curable(one)}
        left &= allocation.next.keys() - self._losers
        turns = allocation.turns(left)
        while (row := turns.pop()) is not None:
            if self._is_spent():
                self._withhold([*filter(may_claim, left)])
                return
            left.remove(row)
            if allocation.awaits_its_own(row):
                continue
            made = len(self.evictions)
            self.vain.search()
            yield row
            if len(self.evictions) == made:
                continue
            lost = {unit for one in self.evictions[made:] for unit in one.units}
            if left & lost:  # who loses something takes nothing
                left -= lost
                turns = allocation.turns(left)
            for queue in {units[unit].queue for unit in lost}:
                turns.touch(queue)

    def _withhold(self, claimants: Collection[int]) -> None:
        self._withheld.update(claimants)
        self.stats["withheld"] = len(self._withheld)
        for row in claimants:
            self.vain.keep(row, Kept(is_withheld=True))

    def _is_spent(self) -> bool:
        return self._evictable_gpus is not None and self._evictable_gpus <= 0

    def is_patient(self, row: int) -> bool:
        """Say whether a unit gives others time before it takes anything."""
        return self.allocation.snapshot.units[row].patient_until > self.allocation.snapshot.now

    def why_kept(self, row: int, action: Action, queues: Collection[int]) -> Kept:
        """Return why nobody of some queues loses anything for a unit that found nobody."""
        kept = self.vain.why(lambda: self._keepers.why(row, action, queues, self._is_over))
        return kept if self._keeps_budgets(action) else kept._replace(budgets=())

    def _keeps_budgets(self, action: Action) -> bool:
        """Say whether a budget always keeps pods from an action."""
        return action != Action.RECLAIM or self.allocation.policies.keeps_budgets

    def _is_over(self, unit: int) -> bool:
        return unit in self._losers or unit in self.admitted

    def who_may_go(
        self, ask: Ask, action: Action, queues: Iterable[int], of: Tenants | None = None
    ) -> Keeps:
        """Say who of some queues may, whatever budgets say.

        Blocks stay that the pods want to be near, or are spread beside, and that keep all for now.
        """
        if ask.is_unmoved and not self.vain.may_last:
            return None
        shapes, tenants = self.allocation.snapshot.shapes, of or self.tenants
        kept: Collection[int] = ()
        if self.vain.may_last and tenants is self.tenants:
            mine = self.allocation.snapshot.units[ask.unit].queue
            kept = self.tenure.kept(action, mine, queues)
        friends = _friends([shapes[shape] for shape in ask.wanted])
        if not friends and not kept:
            return None

        def may_go(block: int) -> bool:
            if block in kept:
                return False
            members = tenants.members[block]
            return all(friends.isdisjoint(shapes[it.shape].matches) for it in members)

        return may_go

    def tries(
        self, ask: Ask, action: Action, queues: Collection[int], walk: _Walk
    ) -> Iterator[Try]:
        """Yield who may go for a unit, first without units that are partly done, then with them.

        At last, where budgets are best effort, without budgets. What could not differ from the one
        before is left out; whether budgets refused a block is known when that one was tried.
        """
        may_go = self.who_may_go(ask, action, queues)
        barred, late = self.tenants.barred, self.tenants.partly_done
        out = barred.keys() | late if late else barred
        line, count = walk(but(may_go, out))
        yield Try(self.chosen(ask.unit, line), count, keeps_budgets=True)
        if late:
            before = count
            line, count = walk(but(may_go, barred))
            if count > before:
                chosen = self.chosen(ask.unit, line)
                last = sorted(chosen, key=lambda one: one in late)
                yield Try(iter(last), count, keeps_budgets=True)
        if self._keeps_budgets(action) or not self.disruptions.are_any:
            return
        before = count
        line, count = walk(may_go)
        if count > before or self.vain.refused_by:
            chosen = self.chosen(ask.unit, line)
            last = sorted(chosen, key=lambda one: (one in barred, one in late))
            yield Try(iter(last), count, keeps_budgets=False)

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
        self, ask: Ask, action: Action, tries: Iterable[Try], begin: Callable[[], Leave]
    ) -> bool:
        """Take from the first who will do what a unit needs; say whether it has it.

        Each try *begins* anew.
        """
        return any(self._make_room(ask, action, one, begin()) for one in tries)

    def _make_room(self, ask: Ask, action: Action, some: Try, leave: Leave) -> bool:
        for trusts in (True, False):
            placer = self.allocation.placer
            gone = Gone(ask, placer, self.tenants, some, leave, trusts=trusts)
            choice = choose(some.number, gone)
            self.vain.refused_by.update(gone.refused_by)
            self.stats["searches"] += 1
            self.stats["trials"] += gone.trials
            self.stats["sets"] += choice.tried
            self.vain.is_cut = choice.is_cut or gone.is_cut
            self.stats["cut"] += self.vain.is_cut
            if choice.ranks is None or gone.is_cut:  # cut: somebody might be spared
                return False
            blocks = [gone.blocks[rank] for rank in choice.ranks]
            if self._carry_out(ask.unit, action, blocks):
                return True
            some = some._replace(line=chain(gone.blocks, some.line))
        return False

    def let_go(self, units: tuple[int, ...], pods: tuple[int, ...], action: Action) -> None:
        """Take from units all they have, these pods, for nobody; who lost something is left."""
        if self._is_spent() or not self._losers.isdisjoint(units):
            return
        self.note(units, pods, action, NONE)

    def ask(self, row: int) -> Ask:
        """Return what a unit wants next."""
        allocation = self.allocation
        parts, _, shapes, _ = allocation.next[row]
        has_slots = allocation.has_slots(row)
        if shapes not in self._wanted:
            wanted = _counted(shapes)
            unmoved = all(allocation.placer.field(shape).is_unmoved for shape in wanted)
            self._wanted[shapes] = wanted, unmoved
        wanted, unmoved = self._wanted[shapes]
        return Ask(
            unit=row,
            parts=parts,
            progress=allocation.progress(row),
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
            members = tuple([it for it in tenants.members[block] if it not in seen])
            lost[block] = members
            seen.update(members)
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
        self.vain.forget(row)
        if "tenants" in self.__dict__:
            for block in self.tenants.spare(row):
                self.line.drop(block)

    def note(self, units: tuple[int, ...], pods: tuple[int, ...], action: Action, row: int) -> None:
        """Note that units lose all they have, these pods; *row* is the claimant, or NONE."""
        shapes, shape_of = self.allocation.snapshot.shapes, self.allocation.snapshot.pods.shape
        gpus = sum([shapes[shape_of[pod]].counted[Kind.GPU] for pod in pods])
        self.disruptions.lose(pods)
        lost = self.work.lost(pods) // 1000
        self._record(Eviction(units, pods, True, action, row, gpus, lost))  # noqa: FBT003

    def _note(self, block: int, members: tuple[Member, ...], action: Action, row: int) -> None:
        pods = tuple([member.pod for member in members if member.pod >= 0])
        gpus = self.tenants.amounts(block, members)[Kind.GPU]
        units, is_whole = self.tenants.units[block], self.tenants.is_whole[block]
        order = self.allocation.policies.victims
        lost, why = self.work.lost(pods) // 1000, order.why if order else ""
        budgets = self.disruptions.lose(pods)
        self._record(Eviction(units, pods, is_whole, action, row, gpus, lost, why, budgets))
        for gone in self.tenants.lose(block):
            self.line.drop(gone)

    def _record(self, one: Eviction) -> None:
        if self._evictable_gpus is not None:
            self._evictable_gpus -= one.gpus
        self.evictions.append(one)
        self._losers.update(one.units)


def but(may_go: Keeps, out: Collection[int]) -> Keeps:
    """Say who may go, but for some blocks."""
    if not out:
        return may_go
    return lambda block: block not in out and (may_go is None or may_go(block))


def _counted(shapes: Runs) -> dict[int, int]:
    """Return how many pods there are of each shape."""
    found: dict[int, int] = {}
    for shape, count in shapes:
        found[shape] = found.get(shape, 0) + count
    return found


def _friends(asked: Sequence[Shape]) -> set[int]:
    """Return the selectors of pods that some want to be near, or are spread beside."""
    near = {term.selector for one in asked for term in one.near}
    return near | {spread.selector for one in asked for spread in one.spread}


def _is_curable(rejection: Rejection) -> bool:
    if isinstance(rejection.numbers, QuotaNumbers):
        return rejection.verdict == Verdict.EXCEEDS_LIMIT and not rejection.numbers.ending
    return isinstance(rejection.numbers, NodeNumbers) and rejection.is_curable
