"""The action preempt: in a queue, who matters more may take the room of who matters less."""

from typing import Final

from scheduler.core.decision import Action
from scheduler.core.displace import Displacement, Headroom

__all__ = ["Preempt"]


class Preempt:
    """Whoever has not got what he needs, against those of smaller priority in his queue."""

    def __init__(self, displacement: Displacement) -> None:
        self._made: Final = displacement
        self._allocation: Final = displacement.allocation

    def run(self) -> None:
        """Let everybody take his turn, one chunk each."""
        self._made.let_claim(self._pursue, by_priority=True)

    def _pursue(self, row: int) -> bool:
        made, unit = self._made, self._allocation.snapshot.units[row]
        ask = made.ask(row)
        if made.use_what_is_left(ask):
            return True
        queue, priority, stock = unit.queue, unit.priority, made.stock
        amounts = self._allocation.next[row].amounts
        if not stock.has_below(queue, priority):
            return False
        if not made.could_be_enough(amounts, lambda kind: stock.below(queue, priority, kind)):
            return False
        line, count = made.line.below(queue, priority, made.who_may_go(ask))
        leave = _Leave(Headroom(self._allocation, row))
        return made.make_room(ask, Action.PREEMPT, line, count, leave)


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
