"""The action preempt: PodGroups evict PodGroups of lower priority in the same queue."""

from collections.abc import Iterator
from functools import partial

from scheduler.core.actions.victim_search import (
    VictimSearch,
    is_delayed,
    preempt_for_each,
    use_free_resources,
)
from scheduler.core.eviction.victims import UnitFilter
from scheduler.core.model.rejections import EvictionFailure
from scheduler.core.model.result import Action
from scheduler.core.session import Session


def preempt(session: Session) -> None:
    """Try each pending PodGroup once, in order."""
    preempt_for_each(
        session, partial(_preempt_for, session), partial(_has_victims, session), by_priority=True
    )


def _has_victims(session: Session, row: int) -> bool:
    podgroup = session.snapshot.podgroups[row]
    return session.reclaimable_totals().has_below(podgroup.queue, podgroup.priority)


def _preempt_for(session: Session, row: int) -> EvictionFailure | None:
    """Evict victims for a PodGroup and place it; return why that failed."""
    podgroup, search = session.snapshot.podgroups[row], VictimSearch(session, row, Action.PREEMPT)
    queue, priority = podgroup.queue, podgroup.priority
    if use_free_resources(session, search.request):
        return None
    most = partial(session.reclaimable_totals().below, queue, priority)
    if not _has_victims(session, row) or not (
        is_delayed(session, row) or search.could_be_enough(most)
    ):
        failure = search.failure([queue])
        return failure if failure.non_evictable else failure.without_temporary_reasons()

    def ordered_victims(is_eligible: UnitFilter) -> tuple[Iterator[int], int]:
        return session.victims().order.below_priority(queue, priority, is_eligible)

    candidate_sets = search.candidate_sets([queue], ordered_victims)
    if is_delayed(session, row):
        return search.failure([queue])._replace(is_delayed=any(one.total for one in candidate_sets))
    return None if search.evict_and_place(candidate_sets) else search.failure([queue])
