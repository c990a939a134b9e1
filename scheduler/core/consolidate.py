"""The action consolidation: room that is there, but not in one place, is brought together.

Others are moved: they lose their places for somebody who waits, and get others in the same plan.
Nobody has less by it than before, so whom it belongs to is not asked.
"""

from collections import Counter
from functools import cached_property
from itertools import islice
from typing import Final

from scheduler.core.chunks import Chunk, Part, Runs
from scheduler.core.decision import Action, Move, Reservation
from scheduler.core.displace import Displacement, but
from scheduler.core.gone import Ask, Gone, Try
from scheduler.core.line import Block, Line
from scheduler.core.model import KINDS, NONE, Cause, Verdict
from scheduler.core.moving import Movers
from scheduler.core.place import Placer
from scheduler.core.search import choose
from scheduler.core.tenants import Tenants
from scheduler.core.usage import Amounts

__all__ = ["Consolidate"]

_HELPED: Final = (Verdict.FRAGMENTED, Verdict.NO_CAPACITY)


class Consolidate:
    """Whoever waits for room, and may be moved himself."""

    def __init__(self, displacement: Displacement) -> None:
        self._made: Final = displacement
        self._allocation: Final = displacement.allocation
        self._most: Final = displacement.allocation.policies.most_moved

    def run(self) -> None:
        """Let everybody take his turn, one chunk each."""
        allocation = self._allocation
        hopeless: dict[tuple[int, Runs, int], int] = {}
        if not (self._most and self._made.vain.is_offered):
            return
        for row in self._made.claimants(lambda one: self._may_claim(one) and self._is_there(one)):
            unit = allocation.snapshot.units[row]
            if not self._may_claim(row):
                continue
            own = row if unit.bundle or unit.is_kept else NONE
            ground = unit.queue, allocation.next[row].shapes, own
            made = len(allocation.admissions)
            if hopeless.get(ground) == made:
                continue
            if not self._pursue(row):
                hopeless[ground] = made

    def _may_claim(self, row: int) -> bool:
        if not self._allocation.snapshot.units[row].is_preemptible or self._made.is_patient(row):
            return False
        return self._allocation.rejections[row].verdict in _HELPED

    def _is_there(self, row: int) -> bool:
        """Say whether all nodes together have what a unit asks for."""
        amounts = self._allocation.next[row].amounts
        return all(amounts[kind] <= self._made.free(kind) for kind in KINDS if amounts[kind] > 0)

    @cached_property
    def _movers(self) -> Movers:
        return Movers(self._allocation.snapshot)

    @property
    def placer(self) -> Placer:
        """Return what places pods, on trial or not."""
        return self._allocation.placer

    @cached_property
    def tenants(self) -> Tenants:
        """Return those who could be moved, each in one block."""
        snapshot, movers = self._allocation.snapshot, self._movers
        spared = {row for row in range(len(snapshot.units)) if row not in movers.parts}
        key, budgets = self._allocation.key, self._made.disruptions
        return Tenants(snapshot, spared | self._made.admitted, key, budgets, shrink=False)

    @cached_property
    def _line(self) -> Line:
        allocation = self._allocation
        return Line(allocation.snapshot.queues, allocation.keys, self.tenants.blocks)

    def _pursue(self, row: int) -> bool:
        made, allocation = self._made, self._allocation
        if allocation.refusal(allocation.usage, row) is not None:
            return False
        ask = made.ask(row)
        if made.use_what_is_left(ask):
            self._keep(row)
            return True
        if not self._is_there(row):
            return False
        candidates = self._candidates(ask)
        stake = _Moving(ask, self, candidates)
        choice = choose(len(candidates), stake)
        made.stats["searches"] += 1
        made.stats["trials"] += stake.trials
        made.stats["sets"] += choice.tried
        made.stats["cut"] += choice.is_cut or stake.is_cut
        if choice.ranks is None or stake.is_cut:
            return False
        return self._carry_out(row, ask, [candidates[rank] for rank in choice.ranks])

    def _candidates(self, ask: Ask) -> list[int]:
        tenants, units = self.tenants, self._allocation.snapshot.units
        may_go = but(self._made.who_may_go(ask, Action.CONSOLIDATION, (), tenants), tenants.barred)
        bundle = units[ask.unit].bundle

        def keeps(block: int) -> bool:
            first = tenants.units[block][0]
            is_own = first == ask.unit or (bundle and units[first].bundle == bundle)
            return not is_own and (may_go is None or may_go(block))

        queues = range(len(self._allocation.snapshot.queues.names))
        line, count = self._line.walk(self._allocation.usage, queues, keeps)
        return list(islice(line, count if self._most < 0 else min(count, self._most)))

    def _carry_out(self, row: int, ask: Ask, blocks: list[int]) -> bool:
        """Evict, place who it is for, and hold room for those who move."""
        allocation, tenants = self._allocation, self.tenants
        placer, checkpoint = allocation.placer, allocation.ledger.checkpoint
        for block in blocks:
            for member in tenants.members[block]:
                allocation.ledger.evict(member.node, member.shape)
        allocation.retry()
        beside = self.beside(blocks)
        parts = tuple(part for _, part in beside)
        if placer.fits(ask.parts, ask.progress, parts) is None or not allocation.claim(
            row, waits=True
        ):
            allocation.ledger.roll_back(checkpoint)
            return False
        held = placer.hold(parts)
        assert held is not None  # it was tried just now
        slots: Counter[tuple[int, str, int]] = Counter()
        for at, node, count in held:
            slots[beside[at][0], beside[at][1].leaf.name, node] += count
        for block in blocks:
            self._note(block, row, slots)
        allocation.grow(row)
        self._keep(row)
        return True

    def beside(self, blocks: list[int]) -> list[tuple[int, Part]]:
        """Return what has to find room anew if blocks are gone."""
        return self._movers.order(row for block in blocks for row in self.tenants.units[block])

    def _note(self, block: int, row: int, slots: Counter[tuple[int, str, int]]) -> None:
        units = self.tenants.units[block]
        pods = tuple([member.pod for member in self.tenants.members[block]])
        self._made.note(units, pods, Action.CONSOLIDATION, row)
        for unit in units:
            held = [
                Reservation(leaf, node, number, Cause.MOVE)
                for (of, leaf, node), number in slots.items()
                if of == unit
            ]
            self._made.moves.append(Move(unit, tuple(held)))
            self._keep(unit)

    def _keep(self, row: int) -> None:
        """Let a unit stay where it is from now on."""
        self._made.keep(row)
        for block in self.tenants.spare(row):
            self._line.drop(block)


class _Moving(Gone):
    """Those who are moved, by their ranks: there is room if there is for them as well."""

    def __init__(self, ask: Ask, action: Consolidate, candidates: list[int]) -> None:
        placer, tenants = action.placer, action.tenants
        asked = ask._replace(is_counted=False)
        some = Try(iter(candidates), len(candidates), keeps_budgets=True)
        super().__init__(asked, placer, tenants, some, _Leave(), trusts=False)
        self._action: Final = action
        self._candidates: Final = candidates
        self._out: Final[set[int]] = set()

    def take(self, candidate: int) -> None:
        """Have it moved."""
        super().take(candidate)
        self._out.add(candidate)

    def spare(self, candidate: int) -> None:
        """Let it stay."""
        super().spare(candidate)
        self._out.discard(candidate)

    def beside(self) -> Chunk:
        """Return what those who are moved need anew."""
        blocks = [self._candidates[rank] for rank in sorted(self._out)]
        return tuple([part for _, part in self._action.beside(blocks)])


class _Leave:
    """Nobody has less of his queue by it, and so nobody is asked."""

    def may_lose(self, _queue: int) -> bool:
        """Say yes."""
        return True

    def take(self, _block: Block, _amounts: Amounts) -> None:
        """Let what the queue has be as it is."""

    def spare(self, _block: Block, _amounts: Amounts) -> None:
        """Let what the queue has be as it is."""

    def is_within(self) -> bool:
        """Say yes: it was asked before."""
        return True

    def is_fair(self) -> bool:
        """Say yes."""
        return True
