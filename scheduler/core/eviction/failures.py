"""Why preemptors found no victims: collected by PodGroup, and added to their rejections."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from scheduler.core.eviction.victim_order import Victims
from scheduler.core.eviction.victims import PriorityAndReason
from scheduler.core.model.podgroup import PodGroupInfo, is_evictable
from scheduler.core.model.rejections import (
    FAIR_SHARE_EXCEEDED,
    NO_EVICTION_FAILURE,
    ClusterEvent,
    ConsolidationFailure,
    EarlierIneligibility,
    EvictionFailure,
    Rejection,
)
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Policies
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action


class EvictionFailures:
    def __init__(self) -> None:
        self._failures: Final[dict[int, EvictionFailure]] = {}

    def record(self, row: int, failure: EvictionFailure) -> None:
        if failure != NO_EVICTION_FAILURE:
            self._failures[row] = merged(self.of(row), failure)

    def forget(self, row: int) -> None:
        """For a PodGroup that was placed."""
        self._failures.pop(row, None)

    def of(self, row: int) -> EvictionFailure:
        return self._failures.get(row, NO_EVICTION_FAILURE)


class Protection:
    """What keeps PodGroups from being evicted: a reason of their own, time, or a budget."""

    def __init__(
        self,
        podgroups: Sequence[PodGroupInfo],
        non_evictable: Mapping[int, Mapping[PriorityAndReason, int]],
        victims: Victims,
    ) -> None:
        self._podgroups: Final = podgroups
        self._non_evictable: Final = non_evictable
        self._pool: Final = victims.pool
        self._min_runtime: Final = victims.min_runtime

    def failure(
        self, row: int, action: Action, queues: Collection[int], is_settled: Callable[[int], bool]
    ) -> EvictionFailure:
        """PodGroups that are settled have lost or got pods in this plan: they count no more."""
        preemptor = self._podgroups[row]

        def may_evict(priority: int) -> bool:
            return action != Action.PREEMPT or priority < preemptor.priority

        reasons = Counter[str]()
        for queue in queues:
            for (priority, reason), count in self._non_evictable.get(queue, {}).items():
                reasons[reason] += count * may_evict(priority)
        ends = {}
        for eviction_unit, end in self._min_runtime.protected(
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


def explained(
    rejections: Mapping[int, Rejection],
    failures: EvictionFailures,
    podgroups: Sequence[PodGroupInfo],
    policies: Policies,
) -> Iterator[Rejection]:
    """Yield all rejections in the order of PodGroups, each with why it found no victims."""
    is_any_fragmented = any(
        it.reason == UnschedulableReason.FRAGMENTED for it in rejections.values()
    )
    may_relocate_any = is_any_fragmented and has_relocatable(podgroups)
    for row, rejection in sorted(rejections.items()):
        failure = failures.of(row)
        if failure == FAIR_SHARE_EXCEEDED:  # only PodGroups behind this one report it
            failure = NO_EVICTION_FAILURE
        if rejection.reason == UnschedulableReason.FRAGMENTED and not failure.is_delayed:
            consolidation_failure = _consolidation_failure(
                podgroups[row], policies, has_candidates=may_relocate_any
            )
            failure = failure._replace(consolidation_failure=consolidation_failure)
        if failure.earlier_podgroup is not None:
            earlier = failure.earlier_podgroup.podgroup
            ineligibility = _ineligibility(rejections.get(earlier), failures.of(earlier))
            earlier_podgroup = failure.earlier_podgroup._replace(ineligibility=ineligibility)
            failure = failure._replace(earlier_podgroup=earlier_podgroup)
        yield rejection if failure == NO_EVICTION_FAILURE else _with_failure(rejection, failure)


def has_relocatable(podgroups: Sequence[PodGroupInfo]) -> bool:
    relocatable = (
        it for it in podgroups if it.may_relocate and it.has_running and not it.is_partly_succeeded
    )
    return any(map(is_evictable, relocatable))


def _with_failure(rejection: Rejection, failure: EvictionFailure) -> Rejection:
    reason = UnschedulableReason.PREEMPTION_DELAY if failure.is_delayed else rejection.reason
    retry_on = rejection.retry_on
    if failure.is_delayed or failure.protected:
        retry_on |= ClusterEvent.TIME_PASSED
    if failure.budgets:
        retry_on |= ClusterEvent.BUDGET_CHANGED
    return replace(rejection, reason=reason, retry_on=retry_on, eviction_failure=failure)


def _consolidation_failure(
    podgroup: PodGroupInfo, policies: Policies, *, has_candidates: bool
) -> ConsolidationFailure:
    if not podgroup.is_preemptible:
        return ConsolidationFailure.NOT_PREEMPTIBLE
    if not policies.max_relocated or Action.CONSOLIDATION not in policies.actions:
        return ConsolidationFailure.DISABLED
    return (
        ConsolidationFailure.NO_SOLUTION if has_candidates else ConsolidationFailure.NO_CANDIDATES
    )


def _ineligibility(
    rejection: Rejection | None, failure: EvictionFailure
) -> EarlierIneligibility | None:
    """Return why a PodGroup that comes first cannot reclaim itself, where that is known."""
    if rejection is not None and rejection.reason == UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA:
        return EarlierIneligibility.QUOTA
    return EarlierIneligibility.SHARE if failure.exceeds_fair_share else None
