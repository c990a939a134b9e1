"""Who keeps what it needs for now: units that have not run for as long as their queues promise."""

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.core.decision import Action
from scheduler.core.model import NONE, Snapshot
from scheduler.core.policy import MinRuntime
from scheduler.core.tenants import VictimPool
from scheduler.core.usage import below_common_ancestor

__all__ = ["MinRuntimeGuard"]


class MinRuntimeGuard:
    """By block: those that are all a unit has, for what is above its minimum may always go."""

    def __init__(
        self,
        snapshot: Snapshot,
        victims: VictimPool,
        paths: Sequence[Sequence[int]],
        configured: MinRuntime | None,
    ) -> None:
        """Look at when units began; of a bundle the last one counts."""
        is_needed, queues = configured is not None, snapshot.queues
        configured = configured or MinRuntime()
        self._configured: Final = {
            Action.PREEMPT: (queues.preempt_min_s, configured.preempt_s),
            Action.RECLAIM: (queues.reclaim_min_s, configured.reclaim_s),
        }
        self._resolves_at_leaf: Final = configured.resolves_at_leaf
        self._paths: Final = paths
        self._now: Final = snapshot.now
        self._running_since: Final[dict[int, dict[int, int]]] = {}  # by queue, by block
        self._known: Final[dict[tuple[int, int], dict[int, int]]] = {}
        for eviction_unit, rows in enumerate(victims.podgroups):
            running_since = max(snapshot.podgroups[row].running_since for row in rows)
            if is_needed and victims.is_whole[eviction_unit] and running_since:
                self._running_since.setdefault(snapshot.podgroups[rows[0]].queue, {})[
                    eviction_unit
                ] = running_since

    def protected(
        self, action: Action, reclaimer_queue: int, queues: Iterable[int]
    ) -> dict[int, int]:
        """Return which blocks of some queues may not go yet for *mine*, and until when."""
        found: dict[int, int] = {}
        for queue in queues:
            if queue in self._running_since:
                found.update(self._protected(queue, self._seconds(action, reclaimer_queue, queue)))
        return found

    def _protected(self, queue: int, seconds: int) -> dict[int, int]:
        ground = queue, seconds
        if ground not in self._known:
            ends = (
                (eviction_unit, running_since + seconds)
                for eviction_unit, running_since in self._running_since[queue].items()
            )
            self._known[ground] = {
                eviction_unit: end for eviction_unit, end in ends if end > self._now
            }
        return self._known[ground]

    def _seconds(self, action: Action, reclaimer_queue: int, queue: int) -> int:
        """Return for how long a queue promises it: what is said nearest above."""
        dump, default = self._configured[action]
        if action == Action.RECLAIM and not self._resolves_at_leaf:
            queue = below_common_ancestor(self._paths, reclaimer_queue, queue)[1]
        found = (dump[above] for above in self._paths[queue] if dump and dump[above] != NONE)
        return next(found, default)
