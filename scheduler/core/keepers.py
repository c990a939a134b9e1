"""Who comes into question for a claim that is in vain, and keeps what it has."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from scheduler.core.decision import NO_EVICTION_FAILURE, Action, EvictionFailure
from scheduler.core.model import NONE, PodGroupInfo, podsets_of
from scheduler.core.tenants import VictimPool
from scheduler.core.tenure import MinRuntimeGuard

__all__ = ["NonEvictable", "count_non_evictable", "merged"]

_NOT_ALLOWED: Final = "priority or preemptibility forbids it"
_PriorityAndReason: TypeAlias = tuple[int, str]  # a priority, and why those of it stay


class NonEvictable:
    """Units that stay, have not run for long, or are covered by a budget."""

    def __init__(
        self,
        podgroups: Sequence[PodGroupInfo],
        non_evictable: Mapping[int, Mapping[_PriorityAndReason, int]],
        victims: VictimPool,
        min_runtime_guard: MinRuntimeGuard,
    ) -> None:
        self._podgroups: Final = podgroups
        self._counts: Final = non_evictable
        self._pool: Final = victims
        self._min_runtime_guard: Final = min_runtime_guard

    def failure(
        self, row: int, action: Action, queues: Collection[int], over: Callable[[int], bool]
    ) -> EvictionFailure:
        """Return who of some queues keeps what it has; who is *over* has lost or got something."""
        preemptor = self._podgroups[row]

        def requests(priority: int) -> bool:
            return action != Action.PREEMPT or priority < preemptor.priority

        reasons = Counter[str]()
        for queue in queues:
            for (priority, reason), count in self._counts.get(queue, {}).items():
                reasons[reason] += count * requests(priority)
        ends = {}
        for eviction_unit, end in self._min_runtime_guard.protected(
            action, preemptor.queue, queues
        ).items():
            one = self._pool.podgroups[eviction_unit][0]
            if requests(self._podgroups[one].priority) and not over(one):
                ends[one] = end
        first = min(ends, key=lambda one: (ends[one], one), default=NONE)
        return EvictionFailure(
            non_evictable=tuple(sorted((+reasons).items())),
            protected=len(ends),
            first_unprotected=first,
            protected_until=ends.get(first, 0),
            budgets=tuple(sorted({*self._blocking_budgets(requests, queues)})),
        )

    def _blocking_budgets(
        self, requests: Callable[[int], bool], queues: Collection[int]
    ) -> Iterator[int]:
        for eviction_unit, budgets in self._pool.blocked.items():
            podgroup = self._podgroups[self._pool.podgroups[eviction_unit][0]]
            if podgroup.queue in queues and requests(podgroup.priority):
                yield from budgets


def count_non_evictable(
    podgroups: Iterable[PodGroupInfo],
) -> dict[int, Counter[_PriorityAndReason]]:
    """Count the units that have something, and that nobody may take from, by queue and why."""
    found: dict[int, Counter[_PriorityAndReason]] = {}
    for podgroup in podgroups:
        why = podgroup.non_evictable_reason if podgroup.is_preemptible else _NOT_ALLOWED
        if why and podgroup.queue != NONE and _has_victims(podgroup):
            found.setdefault(podgroup.queue, Counter())[podgroup.priority, why] += 1
    return found


def merged(one: EvictionFailure, other: EvictionFailure) -> EvictionFailure:
    """Return what keeps others from two actions: no unit comes into question for both."""
    if NO_EVICTION_FAILURE in (one, other):
        return one if other == NO_EVICTION_FAILURE else other
    earlier, later = sorted((one, other), key=lambda it: (not it.protected, it.protected_until))
    reasons = Counter(dict(one.non_evictable)) + Counter(dict(other.non_evictable))
    return EvictionFailure(
        is_delayed=one.is_delayed or other.is_delayed,
        non_evictable=tuple(sorted(reasons.items())),
        protected=one.protected + other.protected,
        first_unprotected=earlier.first_unprotected,
        protected_until=earlier.protected_until,
        budgets=tuple(sorted({*earlier.budgets, *later.budgets})),
        quota_only_queues=tuple(sorted({*one.quota_only_queues, *other.quota_only_queues})),
        unlimited_queues=tuple(sorted({*one.unlimited_queues, *other.unlimited_queues})),
        earlier_podgroup=one.earlier_podgroup or other.earlier_podgroup,
        order_conflict=one.order_conflict or other.order_conflict,
        is_truncated=one.is_truncated or other.is_truncated,
        is_rate_limited=one.is_rate_limited or other.is_rate_limited,
        exceeds_fair_share=one.exceeds_fair_share or other.exceeds_fair_share,
        shortfall=other.shortfall if one.shortfall is None else one.shortfall,
        over_share_queues=tuple(sorted({*one.over_share_queues, *other.over_share_queues})),
    )


def _has_victims(podgroup: PodGroupInfo) -> bool:
    return any(podset.running or podset.reserved_places for podset in podsets_of(podgroup.tree))
