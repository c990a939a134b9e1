"""The action preempt: PodGroups evict PodGroups of lower priority in the same queue."""

from collections.abc import Iterator
from typing import Final

from scheduler.core.eviction.execute import EvictionSession, UnitFilter
from scheduler.core.eviction.scenario import PreemptValidator, QueueHeadroom
from scheduler.core.model.rejections import EvictionFailure
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.result import Action

__all__ = [
    "PreemptAction",
]


class PreemptAction:
    """Preemption by pending PodGroups of PodGroups with smaller priority in their queue."""

    def __init__(self, eviction_session: EvictionSession) -> None:
        self._eviction_session: Final = eviction_session
        self._session: Final = eviction_session.session

    def run(self) -> None:
        """Try each pending PodGroup once, in order."""
        self._eviction_session.preempt_for_each(
            self._preempt_for, self._may_preempt, by_priority=True
        )

    def _may_preempt(self, row: int) -> bool:
        podgroup = self._session.snapshot.podgroups[row]
        return self._eviction_session.reclaimable_totals.has_below(
            podgroup.queue, podgroup.priority
        )

    def _preempt_for(self, row: int) -> EvictionFailure | None:
        """Evict victims for a PodGroup and place it; return why that failed."""
        eviction_session, podgroup = self._eviction_session, self._session.snapshot.podgroups[row]
        queue, priority, request = podgroup.queue, podgroup.priority, eviction_session.request(row)
        if eviction_session.use_free_resources(request):
            return None
        amounts, is_delayed = self._session.attempts[row].amounts, eviction_session.is_delayed(row)

        def most(kind: ResourceKind) -> int:
            return eviction_session.reclaimable_totals.below(queue, priority, kind)

        if not eviction_session.reclaimable_totals.has_below(queue, priority) or not (
            is_delayed or eviction_session.could_be_enough(amounts, most)
        ):
            failure = eviction_session.failure(row, Action.PREEMPT, [queue])
            return failure if failure.non_evictable else failure.without_temporary_reasons()

        def ordered_victims(is_eligible: UnitFilter) -> tuple[Iterator[int], int]:
            return eviction_session.victim_order.below_priority(queue, priority, is_eligible)

        def new_validator() -> PreemptValidator:
            return PreemptValidator(QueueHeadroom(self._session, row))

        candidate_sets = eviction_session.candidate_sets(
            request, Action.PREEMPT, [queue], ordered_victims
        )
        if is_delayed:
            failure = eviction_session.failure(row, Action.PREEMPT, [queue])
            return failure._replace(is_delayed=any(one.total for one in candidate_sets))
        if eviction_session.make_room(request, Action.PREEMPT, candidate_sets, new_validator):
            return None
        return eviction_session.failure(row, Action.PREEMPT, [queue])
