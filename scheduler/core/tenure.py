"""Who keeps what it needs for now: units that have not run for as long as their queues promise."""

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.core.decision import Action
from scheduler.core.model import NONE, Snapshot
from scheduler.core.policy import MinRuntime
from scheduler.core.tenants import Tenants
from scheduler.core.usage import parting

__all__ = ["Tenure"]


class Tenure:
    """By block: those that are all a unit has, for what is above its minimum may always go."""

    def __init__(
        self,
        snapshot: Snapshot,
        tenants: Tenants,
        paths: Sequence[Sequence[int]],
        chosen: MinRuntime | None,
    ) -> None:
        """Look at when units began; of a bundle the last one counts."""
        is_asked, queues = chosen is not None, snapshot.queues
        chosen = chosen or MinRuntime()
        self._said: Final = {
            Action.PREEMPT: (queues.preempt_min_s, chosen.preempt_s),
            Action.RECLAIM: (queues.reclaim_min_s, chosen.reclaim_s),
        }
        self._is_asked_at_leaf: Final = chosen.is_asked_at_leaf
        self._paths: Final = paths
        self._now: Final = snapshot.now
        self._since: Final[dict[int, dict[int, int]]] = {}  # by queue, by block
        self._known: Final[dict[tuple[int, int], dict[int, int]]] = {}
        for block, rows in enumerate(tenants.units):
            since = max(snapshot.units[row].since for row in rows)
            if is_asked and tenants.is_whole[block] and since:
                self._since.setdefault(snapshot.units[rows[0]].queue, {})[block] = since

    def kept(self, action: Action, mine: int, queues: Iterable[int]) -> dict[int, int]:
        """Return which blocks of some queues may not go yet for *mine*, and until when."""
        found: dict[int, int] = {}
        for queue in queues:
            if queue in self._since:
                found.update(self._kept(queue, self._seconds(action, mine, queue)))
        return found

    def _kept(self, queue: int, seconds: int) -> dict[int, int]:
        ground = queue, seconds
        if ground not in self._known:
            ends = ((block, since + seconds) for block, since in self._since[queue].items())
            self._known[ground] = {block: end for block, end in ends if end > self._now}
        return self._known[ground]

    def _seconds(self, action: Action, mine: int, queue: int) -> int:
        """Return for how long a queue promises it: what is said nearest above."""
        said, default = self._said[action]
        if action == Action.RECLAIM and not self._is_asked_at_leaf:
            queue = parting(self._paths, mine, queue)[1]
        found = (said[above] for above in self._paths[queue] if said and said[above] != NONE)
        return next(found, default)
