"""The action reclaim: queues take back what is theirs from queues that have more than that."""

from typing import Final

from scheduler.core.decision import NOTHING, Action, Kept
from scheduler.core.displace import Displacement, Headroom
from scheduler.core.line import Block
from scheduler.core.model import Kind
from scheduler.core.order import QueueKeys
from scheduler.core.rights import Bounds, Claim, Rights, Taking
from scheduler.core.usage import Amounts
from scheduler.core.waiting import Waiting

__all__ = ["Reclaim"]


class Reclaim:
    """Claims, one after another."""

    def __init__(self, displacement: Displacement) -> None:
        self._made: Final = displacement
        self._allocation: Final = displacement.allocation
        self._bounds: Final = Bounds(self._allocation.snapshot.queues, self._allocation.due)
        self._before: Final = Waiting(displacement)

    def run(self) -> None:
        """Let everybody claim what is due to it, one chunk each."""
        self._made.let_claim(self._pursue, by_priority=False)

    def _pursue(self, row: int) -> Kept | None:
        """Let a unit take what it claims; return why it did not."""
        unit = self._allocation.snapshot.units[row]
        amounts = self._allocation.next[row].amounts
        claim = Claim(unit.queue, amounts, not unit.is_preemptible)
        rights = Rights(self._bounds, self._allocation.usage, claim)
        if not rights.has_claim:
            return NOTHING
        ask = self._made.ask(row)
        if self._made.use_what_is_left(ask):
            return None
        queues = [q for q in self._made.stock.all if q != claim.queue and rights.concerns(q)]
        is_patient = self._made.is_patient(row)
        if not queues or not (is_patient or self._is_possible(rights, queues)):
            return NOTHING
        keeps = self._made.who_may_go(ask, Action.RECLAIM, queues)
        line, count = self._made.candidates(row, queues, keeps)
        if is_patient:
            return Kept(is_patient=count > 0)
        asks = self._before.asks(row)
        leave = _Leave(rights, self._allocation.keys, asks, Headroom(self._allocation, row))
        has_room = self._made.make_room(ask, Action.RECLAIM, line, count, leave)
        return None if has_room else NOTHING

    def _is_possible(self, rights: Rights, queues: list[int]) -> bool:
        """Say whether what may be lost, with what is free, could be enough."""
        kind = Kind.GPU if rights.claim.amounts[Kind.GPU] else Kind.CPU
        missing = rights.claim.amounts[kind] - self._made.stock.most(rights, queues, kind)
        return missing <= 0 or missing <= self._made.free(kind)


class _Leave:
    """What one claim may take."""

    def __init__(
        self, rights: Rights, keys: QueueKeys, asks: set[Amounts], headroom: Headroom
    ) -> None:
        self._rights: Final = rights
        self._taking: Final = Taking(rights)
        self._keys: Final = keys.of(self._taking)
        self._asks: Final = asks
        self._headroom: Final = headroom
        self._lost: Final[dict[tuple[int, Amounts], int]] = {}  # how many such blocks
        self.may_lose: Final = self._taking.may_lose
        self.is_within: Final = headroom.is_within

    def take(self, block: Block, amounts: Amounts) -> None:
        """Take a block."""
        self._taking.take(block.queue, amounts)
        self._headroom.take(block, amounts)
        asks = block.queue, block.amounts
        self._lost[asks] = self._lost.get(asks, 0) + 1

    def spare(self, block: Block, amounts: Amounts) -> None:
        """Give a block back."""
        self._taking.spare(block.queue, amounts)
        self._headroom.spare(block, amounts)
        self._lost[block.queue, block.amounts] -= 1

    def is_fair(self) -> bool:
        """Say whether nobody who lost is worse off, and nobody would have the next turn."""
        return self._taking.is_fair() and all(
            self._comes_before(queue, amounts)
            for (queue, amounts), count in self._lost.items()
            if count
        )

    def _comes_before(self, queue: int, amounts: Amounts) -> bool:
        """Say whether, dealt out anew, the room would go to the claimant before who lost it."""
        mine, theirs = self._rights.pair(queue)
        last = self._keys.key(theirs, amounts)
        return all(self._keys.key(mine, asked) < last for asked in self._asks)
