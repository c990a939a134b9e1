"""The action preempt: in a queue, who matters more may take the room of who matters less."""

from typing import Final

from scheduler.core.decision import NOTHING, Action, Kept
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

    def _pursue(self, row: int) -> Kept | None:
        """Let a unit take what it can; return why it did not."""
        made, units = self._made, self._allocation.snapshot.units
        unit, ask = units[row], made.ask(row)
        if made.use_what_is_left(ask):
            return None
        if unit.queue not in made.stock.all:
            return NOTHING
        may_go = made.who_may_go(ask, Action.PREEMPT, [unit.queue])

        def keeps(block: int) -> bool:
            return all(
                units[one].priority < unit.priority for one in made.tenants.units[block]
            ) and (may_go is None or may_go(block))

        line, count = made.candidates(row, [unit.queue], keeps)
        if made.is_patient(row):
            return Kept(is_patient=count > 0)
        leave = _Leave(Headroom(self._allocation, row))
        has_room = made.make_room(ask, Action.PREEMPT, line, count, leave)
        return None if has_room else NOTHING


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
