"""The action preempt: in a queue, who matters more may take the room of who matters less."""

from collections.abc import Iterator
from typing import Final

from scheduler.core.decision import Action, Kept
from scheduler.core.displace import Displacement, Headroom, Keeps
from scheduler.core.model import Kind

__all__ = ["Preempt"]


class Preempt:
    """Whoever has not got what he needs, against those of smaller priority in his queue."""

    def __init__(self, displacement: Displacement) -> None:
        self._made: Final = displacement
        self._allocation: Final = displacement.allocation

    def run(self) -> None:
        """Let everybody take his turn, one chunk each."""
        self._made.let_claim(self._pursue, self._may_claim, by_priority=True)

    def _may_claim(self, row: int) -> bool:
        unit = self._allocation.snapshot.units[row]
        return self._made.stock.has_below(unit.queue, unit.priority)

    def _pursue(self, row: int) -> Kept | None:
        """Let a unit take what it can; return why it did not."""
        made, unit = self._made, self._allocation.snapshot.units[row]
        queue, priority, ask = unit.queue, unit.priority, made.ask(row)
        if made.use_what_is_left(ask):
            return None
        amounts, is_patient = self._allocation.next[row].amounts, made.is_patient(row)

        def most(kind: Kind) -> int:
            return made.stock.below(queue, priority, kind)

        if not made.stock.has_below(queue, priority) or not (
            is_patient or made.could_be_enough(amounts, most)
        ):
            kept = made.why_kept(row, Action.PREEMPT, [queue])
            return kept if kept.staying else kept.at_any_time()

        def walk(keeps: Keeps) -> tuple[Iterator[int], int]:
            return made.line.below(queue, priority, keeps)

        def begin() -> _Leave:
            return _Leave(Headroom(self._allocation, row))

        tries = made.tries(ask, Action.PREEMPT, [queue], walk)
        if is_patient:
            kept = made.why_kept(row, Action.PREEMPT, [queue])
            return kept._replace(is_patient=any(one.number for one in tries))
        if made.make_room(ask, Action.PREEMPT, tries, begin):
            return None
        return made.why_kept(row, Action.PREEMPT, [queue])


class _Leave:
    """Whoever comes into question may be taken."""

    def __init__(self, headroom: Headroom) -> None:
        self.take: Final = headroom.take
        self.spare: Final = headroom.spare
        self.is_within: Final = headroom.is_within

    def may_lose(self, _queue: int) -> bool:
        """Say yes."""
        return True

    def is_fair(self) -> bool:
        """Say yes."""
        return True
