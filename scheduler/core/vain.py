"""Why units that may claim something take nothing, and what that makes of their verdicts."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Final

from scheduler.core.allocate import Session
from scheduler.core.decision import (
    FAIR_SHARE_EXCEEDED,
    NO_EVICTION_FAILURE,
    ConsolidationFailure,
    EarlierIneligibility,
    EvictionFailure,
    Rejection,
)
from scheduler.core.keepers import count_non_evictable, merged
from scheduler.core.model import UnschedulableReason
from scheduler.core.tenants import is_evictable

__all__ = ["EvictionFailures"]


class EvictionFailures:
    """By unit, as far as anybody claimed in vain."""

    def __init__(self, session: Session) -> None:
        self.refused_by: Final[set[int]] = set()  # budgets, in the last search,
        self.quota_only_queues: Final[set[int]] = (
            set()
        )  # and the queues whose goals forbade something,
        self.is_truncated = False  # and whether that ended at a limit
        self._session: Final = session
        self._failures: Final[dict[int, EvictionFailure]] = {}

    @cached_property
    def non_evictable(self) -> dict[int, Counter[tuple[int, str]]]:
        """Count the units that nobody may take from, by queue, priority and why."""
        return count_non_evictable(self._session.snapshot.podgroups)

    @cached_property
    def has_min_runtime(self) -> bool:
        """Say whether a minimum run time may keep a unit."""
        configured, queues = self._session.policies.min_runtime, self._session.snapshot.queues
        dump = (*queues.preempt_min_s, *queues.reclaim_min_s)
        return configured is not None and any(it > 0 for it in (*dump, *configured[:2]))

    def failure(self, request: Callable[[], EvictionFailure]) -> EvictionFailure:
        """Return why nobody loses anything for a unit, asked for if there can be a reason."""
        if not (self.non_evictable or self.has_min_runtime or self._session.snapshot.budgets.names):
            return EvictionFailure(
                quota_only_queues=tuple(sorted(self.quota_only_queues)),
                is_truncated=self.is_truncated,
            )
        failure = request()
        budgets = tuple(sorted({*failure.budgets, *self.refused_by}))
        return failure._replace(
            budgets=budgets,
            quota_only_queues=tuple(sorted(self.quota_only_queues)),
            is_truncated=self.is_truncated,
        )

    def begin_search(self) -> None:
        """Begin to look for somebody who could lose something."""
        self.refused_by.clear()
        self.quota_only_queues.clear()
        self.is_truncated = False

    def record(self, row: int, failure: EvictionFailure) -> None:
        """Take note of why a unit takes nothing."""
        if failure != NO_EVICTION_FAILURE:
            self._failures[row] = merged(self._failures.get(row, NO_EVICTION_FAILURE), failure)

    def forget(self, row: int) -> None:
        """Take note that a unit was given something."""
        self._failures.pop(row, None)

    def rejection_of(self, rejection: Rejection) -> Rejection:
        """Return why a unit waits, and why it takes nothing."""
        failure = self._failures.get(rejection.podgroup, NO_EVICTION_FAILURE)
        if failure == FAIR_SHARE_EXCEEDED:  # that tells only those behind something
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
        words = {"time": failure.is_delayed or failure.protected, "budgets": failure.budgets}
        retry_on = rejection.retry_on | {word for word, is_meant in words.items() if is_meant}
        return replace(rejection, reason=reason, retry_on=retry_on, eviction_failure=failure)

    def _consolidation_failure(self, row: int) -> ConsolidationFailure:
        """Return why nobody is moved for a unit."""
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
        """Say whether anybody is there whose place may become another."""
        podgroups = self._session.snapshot.podgroups
        failure = (
            it
            for it in podgroups
            if it.may_relocate and it.has_running and not it.is_partly_succeeded
        )
        return any(map(is_evictable, failure))

    def _ineligibility(self, row: int) -> EarlierIneligibility | None:
        """Return why a unit takes nothing itself, where that is known."""
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
