"""Why a preemptor found no victims: collected per PodGroup, and merged into its rejection."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeAlias

from scheduler.core.eviction.victims import MinRuntimeGuard, VictimPool
from scheduler.core.model.cluster_events import ClusterEvent
from scheduler.core.model.podgroup import PodGroupInfo, is_evictable, podsets_of
from scheduler.core.model.rejections import (
    FAIR_SHARE_EXCEEDED,
    NO_EVICTION_FAILURE,
    ConsolidationFailure,
    EarlierIneligibility,
    EvictionFailure,
    Rejection,
    UnschedulableReason,
)
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Action
from scheduler.core.session import Session

__all__ = [
    "EvictionFailures",
    "NonEvictable",
    "count_non_evictable",
    "merged",
]

_NOT_ALLOWED: Final = "non-preemptible pods are not evicted"
_PriorityAndReason: TypeAlias = tuple[
    int, str
]  # a priority, and why its PodGroups are non-evictable


class NonEvictable:
    """PodGroups that are non-evictable, within their minimum runtime, or covered by a budget."""

    def __init__(
        self,
        podgroups: Sequence[PodGroupInfo],
        non_evictable: Mapping[int, Mapping[_PriorityAndReason, int]],
        pool: VictimPool,
        min_runtime_guard: MinRuntimeGuard,
    ) -> None:
        self._podgroups: Final = podgroups
        self._counts: Final = non_evictable
        self._pool: Final = pool
        self._min_runtime_guard: Final = min_runtime_guard

    def failure(
        self, row: int, action: Action, queues: Collection[int], is_settled: Callable[[int], bool]
    ) -> EvictionFailure:
        """Return what protects PodGroups of some queues; settled ones have lost or got pods."""
        preemptor = self._podgroups[row]

        def may_evict(priority: int) -> bool:
            return action != Action.PREEMPT or priority < preemptor.priority

        reasons = Counter[str]()
        for queue in queues:
            for (priority, reason), count in self._counts.get(queue, {}).items():
                reasons[reason] += count * may_evict(priority)
        ends = {}
        for eviction_unit, end in self._min_runtime_guard.protected(
            action, preemptor.queue, queues
        ).items():
            one = self._pool.podgroups[eviction_unit][0]
            if may_evict(self._podgroups[one].priority) and not is_settled(one):
                ends[one] = end
        first = min(ends, key=lambda one: (ends[one], one), default=NONE)
        return EvictionFailure(
            non_evictable=tuple(sorted((+reasons).items())),
            protected=len(ends),
            first_unprotected=first,
            protected_until=ends.get(first, 0),
            budgets=tuple(sorted({*self._blocking_budgets(may_evict, queues)})),
        )

    def _blocking_budgets(
        self, may_evict: Callable[[int], bool], queues: Collection[int]
    ) -> Iterator[int]:
        for eviction_unit, budgets in self._pool.blocked.items():
            podgroup = self._podgroups[self._pool.podgroups[eviction_unit][0]]
            if podgroup.queue in queues and may_evict(podgroup.priority):
                yield from budgets


def count_non_evictable(
    podgroups: Iterable[PodGroupInfo],
) -> dict[int, Counter[_PriorityAndReason]]:
    """Count the PodGroups with victims that are non-evictable, by queue, priority and reason."""
    counts: dict[int, Counter[_PriorityAndReason]] = {}
    for podgroup in podgroups:
        why = podgroup.non_evictable_reason if podgroup.is_preemptible else _NOT_ALLOWED
        if why and podgroup.queue != NONE and _has_victims(podgroup):
            counts.setdefault(podgroup.queue, Counter())[podgroup.priority, why] += 1
    return counts


def merged(one: EvictionFailure, other: EvictionFailure) -> EvictionFailure:
    """Return the failure of two actions: no PodGroup is a candidate of both."""
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


class EvictionFailures:
    """Why preemptors found no victims, by PodGroup."""

    def __init__(self, session: Session) -> None:
        self.refused_by: Final[set[int]] = set()  # budgets, in the last search
        self.quota_only_queues: Final[set[int]] = set()  # in the last search, those that forbade it
        self.is_truncated = False  # whether the last search ended at a limit
        self._session: Final = session
        self._failures: Final[dict[int, EvictionFailure]] = {}

    @cached_property
    def non_evictable(self) -> dict[int, Counter[tuple[int, str]]]:
        """Count the non-evictable PodGroups, by queue, priority and reason."""
        return count_non_evictable(self._session.snapshot.podgroups)

    @cached_property
    def has_min_runtime(self) -> bool:
        """Say whether any minimum runtime may protect a PodGroup."""
        configured, queues = self._session.policies.min_runtime, self._session.snapshot.queues
        seconds = (*queues.preempt_min_s, *queues.reclaim_min_s)
        return configured is not None and any(it > 0 for it in (*seconds, *configured[:2]))

    def failure(self, find_reasons: Callable[[], EvictionFailure]) -> EvictionFailure:
        """Return why no victim was found; reasons are computed only if there can be any."""
        if not (self.non_evictable or self.has_min_runtime or self._session.snapshot.budgets.names):
            return EvictionFailure(
                quota_only_queues=tuple(sorted(self.quota_only_queues)),
                is_truncated=self.is_truncated,
            )
        failure = find_reasons()
        budgets = tuple(sorted({*failure.budgets, *self.refused_by}))
        return failure._replace(
            budgets=budgets,
            quota_only_queues=tuple(sorted(self.quota_only_queues)),
            is_truncated=self.is_truncated,
        )

    def begin_search(self) -> None:
        """Forget what the last search found."""
        self.refused_by.clear()
        self.quota_only_queues.clear()
        self.is_truncated = False

    def record(self, row: int, failure: EvictionFailure) -> None:
        """Add why a PodGroup found no victims."""
        if failure != NO_EVICTION_FAILURE:
            self._failures[row] = merged(self._failures.get(row, NO_EVICTION_FAILURE), failure)

    def forget(self, row: int) -> None:
        """Forget the failures of a PodGroup that was placed."""
        self._failures.pop(row, None)

    def rejection_of(self, rejection: Rejection) -> Rejection:
        """Return a rejection with why the PodGroup found no victims."""
        failure = self._failures.get(rejection.podgroup, NO_EVICTION_FAILURE)
        if failure == FAIR_SHARE_EXCEEDED:  # only PodGroups behind this one report it
            failure = NO_EVICTION_FAILURE
        if rejection.reason == UnschedulableReason.FRAGMENTED and not failure.is_delayed:
            failure = failure._replace(
                consolidation_failure=self._consolidation_failure(rejection.podgroup)
            )
        if failure == NO_EVICTION_FAILURE:
            return rejection
        if failure.earlier_podgroup is not None:
            earlier_podgroup = failure.earlier_podgroup._replace(
                ineligibility=self._ineligibility(failure.earlier_podgroup.podgroup)
            )
            failure = failure._replace(earlier_podgroup=earlier_podgroup)
        reason = UnschedulableReason.PREEMPTION_DELAY if failure.is_delayed else rejection.reason
        retry_on = rejection.retry_on
        if failure.is_delayed or failure.protected:
            retry_on |= ClusterEvent.TIME_PASSED
        if failure.budgets:
            retry_on |= ClusterEvent.BUDGET_CHANGED
        return replace(rejection, reason=reason, retry_on=retry_on, eviction_failure=failure)

    def _consolidation_failure(self, row: int) -> ConsolidationFailure:
        """Return why no PodGroup is relocated for a PodGroup."""
        if not self._session.snapshot.podgroups[row].is_preemptible:
            return ConsolidationFailure.NOT_PREEMPTIBLE
        policies = self._session.policies
        if not policies.max_relocated or "consolidation" not in policies.actions:
            return ConsolidationFailure.DISABLED
        return (
            ConsolidationFailure.NO_SOLUTION
            if self.has_relocatable
            else ConsolidationFailure.NO_CANDIDATES
        )

    @cached_property
    def has_relocatable(self) -> bool:
        """Say whether there are running PodGroups that may be relocated."""
        podgroups = self._session.snapshot.podgroups
        relocatable = (
            it
            for it in podgroups
            if it.may_relocate and it.has_running and not it.is_partly_succeeded
        )
        return any(map(is_evictable, relocatable))

    def _ineligibility(self, row: int) -> EarlierIneligibility | None:
        """Return why a PodGroup that comes first cannot reclaim itself, where that is known."""
        rejection = self._session.rejections.get(row)
        if (
            rejection is not None
            and rejection.reason == UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA
        ):
            return EarlierIneligibility.QUOTA
        return (
            EarlierIneligibility.SHARE
            if self._failures.get(row, NO_EVICTION_FAILURE).exceeds_fair_share
            else None
        )
