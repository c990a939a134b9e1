"""The action reclaim: queues take back what is theirs from queues that have more than that."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from scheduler.core.decision import NOTHING, UNDUE, Action, HeldUp, Kept, Lack, Regain
from scheduler.core.displace import Displacement, Headroom, Keeps
from scheduler.core.line import Block
from scheduler.core.order import QueueKeys
from scheduler.core.rights import Bounds, Claim, Rights, Taking
from scheduler.core.usage import Amounts
from scheduler.core.waiting import Waiting

__all__ = ["Reclaim"]

_MOST_OVER: Final = 4  # queues that are looked for: one more than are told


class Reclaim:
    """Claims, one after another."""

    def __init__(self, displacement: Displacement) -> None:
        self._made: Final = displacement
        self._allocation: Final = displacement.allocation
        self._bounds: Final = Bounds(self._allocation.snapshot.queues, self._allocation.due)
        self._before: Final = Waiting(displacement)

    def run(self) -> None:
        """Let everybody claim what is due to it, one chunk each."""
        self._made.let_claim(
            self._pursue, lambda row: self._rights(row).has_claim, by_priority=False
        )

    def _rights(self, row: int) -> Rights:
        """Return what a unit may take."""
        unit, amounts = self._allocation.snapshot.units[row], self._allocation.next[row].amounts
        claim = Claim(unit.queue, amounts, not unit.is_preemptible)
        return Rights(self._bounds, self._allocation.usage, claim)

    def _pursue(self, row: int) -> Kept | None:
        """Let a unit take what it claims; return why it did not."""
        rights = self._rights(row)
        claim, amounts = rights.claim, rights.claim.amounts
        if not rights.has_claim:
            return UNDUE
        ask = self._made.ask(row)
        if self._made.use_what_is_left(ask):
            return None
        stock, is_patient = self._made.stock, self._made.is_patient(row)
        self._made.vain.goals.update(rights.goals(stock.all))
        queues = [q for q in stock.all if q != claim.queue and rights.concerns(q)]

        def why_kept(lack: Lack | None = Lack.ROOM, *, is_enough: bool = True) -> Kept:
            staying = self._made.vain.staying.keys() - stock.all.keys() - {claim.queue}
            others = [q for q in staying if rights.concerns(q)]
            unbounded = tuple(sorted(rights.unbounded(stock.all)))
            who = rights.lenders([*queues, *others])
            kept = self._made.why_kept(row, Action.RECLAIM, who)._replace(unbounded=unbounded)
            kept = kept if is_enough or kept.staying else kept.at_any_time()
            if lack is None or kept != NOTHING or not stock.all.keys() - {claim.queue}:
                return kept
            return _lacking(rights, queues, lack)

        most = partial(stock.most, rights, queues)
        if not queues or not (is_patient or self._made.could_be_enough(amounts, most)):
            return why_kept(is_enough=False)
        tries = self._made.tries(ask, Action.RECLAIM, queues, partial(self._walk, queues))
        if is_patient:
            return why_kept(None)._replace(is_patient=any(one.number for one in tries))
        before, leaves = self._before.asks(row), list[_Leave]()

        def begin() -> _Leave:
            headroom = Headroom(self._allocation, row)
            leaves.append(_Leave(rights, self._allocation.keys, before, headroom))
            return leaves[-1]

        if self._made.make_room(ask, Action.RECLAIM, tries, begin):
            return None
        leave = leaves[-1]  # of the widest try
        regain = None if leave.held_up else leave.regain  # it fails by itself, or it does not
        return why_kept(leave.lack)._replace(held_up=leave.held_up, regain=regain)

    def _walk(self, queues: Collection[int], keeps: Keeps) -> tuple[Iterator[int], int]:
        return self._made.line.walk(self._allocation.usage, queues, keeps)


def _lacking(rights: Rights, queues: Iterable[int], lack: Lack) -> Kept:
    """Return who has too much, in vain, of those that come into question: as many as are told."""
    theirs = sorted({rights.pair(queue)[1] for queue in queues})
    over = tuple(islice((queue for queue in theirs if any(rights.surplus(queue))), _MOST_OVER))
    return Kept(lack=lack if over else Lack.NOBODY, over=over)


class _Leave:
    """What one claim may take."""

    def __init__(
        self, rights: Rights, keys: QueueKeys, before: dict[Amounts, int], headroom: Headroom
    ) -> None:
        self.held_up: HeldUp | None = None
        self.regain: Regain | None = None
        self._is_unfair = False
        self._rights: Final = rights
        self._taking: Final = Taking(rights)
        self._keys: Final = keys.of(self._taking)
        self._before: Final = before
        self._headroom: Final = headroom
        # What would be asked for, also if of a bundle; and how often.
        self._lost: Final[dict[tuple[int, Amounts, bool], int]] = {}
        self.may_lose: Final = self._taking.may_lose
        self.is_within: Final = headroom.is_within

    def take(self, block: Block, amounts: Amounts) -> None:
        """Take a block."""
        self._taking.take(block.queue, amounts)
        self._headroom.take(block, amounts)
        for asks in block.asks:
            lost = block.queue, asks, block.is_bundle
            self._lost[lost] = self._lost.get(lost, 0) + 1

    def spare(self, block: Block, amounts: Amounts) -> None:
        """Give a block back."""
        self._taking.spare(block.queue, amounts)
        self._headroom.spare(block, amounts)
        for asks in block.asks:
            self._lost[block.queue, asks, block.is_bundle] -= 1

    @property
    def lack(self) -> Lack | None:
        """Return what those lacked who could go, if it is not that somebody has the turn before."""
        if self.held_up or self.regain:
            return None
        return Lack.FAIRNESS if self._is_unfair else Lack.ROOM

    def is_fair(self) -> bool:
        """Say whether nobody who lost is worse off, and nobody would have the next turn."""
        if not self._taking.is_fair():
            self._is_unfair = True
            return False
        regain = self._regain(self._rights.claim.amounts)
        if regain is not None:
            self.regain = self.regain or regain
            return False
        for asked, unit in self._before.items():
            if self._regain(asked) is not None:
                self.held_up = self.held_up or HeldUp(unit, asked)
                return False
        return True

    def _regain(self, asked: Amounts) -> Regain | None:
        """Return who lost room and would have its turn again before who asks for it.

        That is no matter of a bundle where the claim stays within a quota: its room is held for it
        (10b), and afterwards nothing is taken from it. Else a queue could keep all that it borrowed
        in a TrainJob, which cannot shrink, that first asks for little, which it may always have.
        """
        is_claim = asked == self._rights.claim.amounts
        for (queue, amounts, is_bundle), count in self._lost.items():
            mine, theirs = self._rights.pair(queue)
            if is_claim and is_bundle and self._rights.is_owed(mine):
                continue
            if count and self._taking.could_regain(queue, amounts):
                key, before = self._keys.key(mine, asked), self._keys.key(theirs, amounts)
                if key >= before:
                    place = next(i for i, it in enumerate(key) if it != before[i])
                    return Regain(theirs, mine, place)
        return None
