"""The actions reclaim and preempt: both search victims for one pending PodGroup after another.

Reclaim takes from queues above their share for a queue below its own. Preempt takes from PodGroups
of lower priority in the same queue.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from scheduler.core.actions.victim_search import (
    VictimSearch,
    is_delayed,
    preempt_for_each,
    use_free_resources,
)
from scheduler.core.eviction.eviction_scenario import UnitMembers
from scheduler.core.eviction.victim_set_solver import Scenario
from scheduler.core.eviction.victims import UnitFilter
from scheduler.core.model.rejections import (
    FAIR_SHARE_EXCEEDED,
    NO_EVICTION_FAILURE,
    EarlierPodGroup,
    EvictionFailure,
    QueueOrderConflict,
    ReclaimShortfall,
)
from scheduler.core.model.resources import Amounts
from scheduler.core.queues.order import QueueOrder, keys_by_queue
from scheduler.core.queues.reclaimable import QueueShares, Reclaimable, Reclaimer, ReclaimState
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action

_MAX_OVER_SHARE: Final = 4  # queues that are collected: one more than a message names


def reclaim(session: Session) -> None:
    """Reclaim for each pending PodGroup with which its queue stays within its fair share."""
    _Reclaim(session).run()


class _Reclaim:
    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._shares: Final = QueueShares(session.snapshot.queues, session.fair_shares)
        self._earlier_pending: Final = EarlierPending(session)

    def run(self) -> None:
        preempt_for_each(
            self._session,
            self._reclaim_for,
            lambda row: self._reclaimable(row).may_reclaim,
            by_priority=False,
        )

    def _reclaimable(self, row: int) -> Reclaimable:
        podgroup = self._session.snapshot.podgroups[row]
        amounts = self._session.attempts[row].amounts
        reclaimer = Reclaimer(podgroup.queue, amounts, not podgroup.is_preemptible)
        return Reclaimable(self._shares, self._session.usage, reclaimer)

    def _reclaim_for(self, row: int) -> EvictionFailure | None:
        reclaimable, session = self._reclaimable(row), self._session
        reclaimer = reclaimable.reclaimer
        if not reclaimable.may_reclaim:
            return FAIR_SHARE_EXCEEDED
        search = VictimSearch(session, row, Action.RECLAIM)
        if use_free_resources(session, search.request):
            return None
        totals = session.reclaimable_totals()
        queues = [q for q in totals.all if q != reclaimer.queue and reclaimable.may_reclaim_from(q)]
        most = partial(totals.reclaimable_bound, reclaimable, queues)
        if not queues or not (is_delayed(session, row) or search.could_be_enough(most)):
            return self._failure(search, reclaimable, queues, is_enough=False)
        candidate_sets = search.candidate_sets(queues, partial(self._ordered_victims, queues))
        if is_delayed(session, row):
            failure = self._failure(search, reclaimable, queues, None)
            return failure._replace(is_delayed=any(one.total for one in candidate_sets))
        earlier_requests = self._earlier_pending.requests_before(row)
        checks: list[ReclaimCheck] = []

        def new_checks() -> list[ReclaimCheck]:
            checks.append(ReclaimCheck(reclaimable, session.queue_order, earlier_requests))
            return checks[-1:]

        if search.evict_and_place(candidate_sets, new_checks):
            return None
        last = checks[-1]  # with the most candidates
        return self._failure(search, reclaimable, queues, last.shortfall)._replace(
            earlier_podgroup=last.earlier_podgroup,
            order_conflict=None if last.earlier_podgroup else last.order_conflict,
        )

    def _failure(
        self,
        search: VictimSearch,
        reclaimable: Reclaimable,
        queues: Collection[int],
        shortfall: ReclaimShortfall | None = ReclaimShortfall.TOO_LITTLE,
        *,
        is_enough: bool = True,
    ) -> EvictionFailure:
        """If no victim is protected, name the *shortfall* and the queues above their shares."""
        totals, own_queue = self._session.reclaimable_totals(), reclaimable.reclaimer.queue
        others = totals.non_evictable.keys() - totals.all.keys() - {own_queue}
        others = {q for q in others if reclaimable.may_reclaim_from(q)}
        over_share = reclaimable.over_share_queues([*queues, *others])
        all_queues = totals.all.keys() | totals.non_evictable.keys()
        failure = search.failure(over_share)._replace(
            quota_only_queues=tuple(sorted(reclaimable.quota_only_queues(totals.all))),
            unlimited_queues=tuple(
                sorted(reclaimable.unlimited_queues(all_queues, search.lacking_kinds()))
            ),
        )
        if not is_enough and not failure.non_evictable:
            failure = failure.without_temporary_reasons()
        is_explained = failure != NO_EVICTION_FAILURE or not totals.all.keys() - {own_queue}
        if shortfall is None or is_explained:
            return failure
        return _shortfall_failure(reclaimable, queues, shortfall)

    def _ordered_victims(
        self, queues: Collection[int], is_eligible: UnitFilter
    ) -> tuple[Iterator[int], int]:
        order = self._session.victims().order
        return order.across_queues(self._session.usage, queues, is_eligible)


class ReclaimCheck(Scenario[UnitMembers]):
    """Queues lose no more than they may, and none of them would come before the reclaimer."""

    def __init__(
        self,
        reclaimable: Reclaimable,
        queue_order: QueueOrder,
        earlier_requests: dict[Amounts, int],
    ) -> None:
        self.earlier_podgroup: EarlierPodGroup | None = None
        self.order_conflict: QueueOrderConflict | None = None
        self._is_unfair = False
        self._reclaimable: Final = reclaimable
        self._state: Final = ReclaimState(reclaimable)
        self._queue_order: Final = queue_order.with_allocated(self._state)
        self._earlier_requests: Final = earlier_requests
        # What evicted PodGroups would request, whether as a workload; and how often.
        self._evicted_requests: Final[dict[tuple[int, Amounts, bool], int]] = {}

    def may_evict(self, candidate: UnitMembers) -> bool:
        return self._state.may_lose(candidate.unit.queue)

    def evict(self, candidate: UnitMembers) -> None:
        unit = candidate.unit
        self._state.subtract(unit.queue, candidate.amounts)
        for request in unit.first_requests:
            evicted_request = unit.queue, request, unit.is_workload
            self._evicted_requests[evicted_request] = (
                self._evicted_requests.get(evicted_request, 0) + 1
            )

    def restore(self, candidate: UnitMembers) -> None:
        unit = candidate.unit
        self._state.add(unit.queue, candidate.amounts)
        for request in unit.first_requests:
            self._evicted_requests[unit.queue, request, unit.is_workload] -= 1

    @property
    def shortfall(self) -> ReclaimShortfall | None:
        """None if a queue or PodGroup comes before the reclaimer: that is the reason then."""
        if self.earlier_podgroup or self.order_conflict:
            return None
        return ReclaimShortfall.UNFAIR if self._is_unfair else ReclaimShortfall.TOO_LITTLE

    def is_valid(self) -> bool:
        if not self._state.is_fair():
            self._is_unfair = True
            return False
        order_conflict = self._order_conflict(self._reclaimable.reclaimer.amounts)
        if order_conflict is not None:
            self.order_conflict = self.order_conflict or order_conflict
            return False
        for requested, podgroup in self._earlier_requests.items():
            if self._order_conflict(requested) is not None:
                self.earlier_podgroup = self.earlier_podgroup or EarlierPodGroup(
                    podgroup, requested
                )
                return False
        return True

    def _order_conflict(self, requested: Amounts) -> QueueOrderConflict | None:
        """Return the queue that lost resources and would come before the one that requests them.

        A workload does not count where the reclaimer stays within its quota: what it loses is
        reserved for the reclaimer (rule 10b), which then is not reclaimed from. Otherwise a queue
        could keep all that it uses over its quota in a workload, which cannot shrink, that first
        requests little.
        """
        is_own_request = requested == self._reclaimable.reclaimer.amounts
        for (queue, amounts, is_workload), count in self._evicted_requests.items():
            reclaimer_queue, victim_queue = self._reclaimable.compared_queues(queue)
            if (
                is_own_request
                and is_workload
                and self._reclaimable.is_within_quota(reclaimer_queue)
            ):
                continue
            if count and self._state.could_allocate(queue, amounts):
                key = self._queue_order.key(reclaimer_queue, requested)
                victim_key = self._queue_order.key(victim_queue, amounts)
                if key >= victim_key:
                    key_index = next(i for i, it in enumerate(key) if it != victim_key[i])
                    return QueueOrderConflict(victim_queue, reclaimer_queue, key_index)
        return None


class EarlierPending:
    """What the PodGroups request that are ahead of another one in its queue."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        rejections = session.rejections
        rows = [row for row in session.attempts if row in rejections]
        podgroups = session.snapshot.podgroups
        self._keys: Final = keys_by_queue(
            (podgroups[row].queue, session.attempts[row].key)
            for row in rows
            if rejections[row].reason.rank > UnschedulableReason.PODS_MISSING.rank
        )
        self._seen: Final = dict.fromkeys(self._keys, 0)
        self._requests: Final[dict[int, dict[Amounts, int]]] = {queue: {} for queue in self._keys}

    def requests_before(self, row: int) -> dict[Amounts, int]:
        """Return what the PodGroups before one in its queue request, each with the first of them.

        It must be called for the PodGroups of a queue in their order.
        """
        session = self._session
        queue, key = session.snapshot.podgroups[row].queue, session.attempts[row].key
        keys, seen = self._keys[queue], self._seen[queue]
        while seen < len(keys) and keys[seen] < key:
            earlier = keys[seen][-1]
            if earlier in session.rejections and earlier not in session.preemptors:
                self._requests[queue].setdefault(session.attempts[earlier].amounts, earlier)
            seen += 1
        self._seen[queue] = seen
        return self._requests[queue]


def _shortfall_failure(
    reclaimable: Reclaimable, queues: Iterable[int], shortfall: ReclaimShortfall
) -> EvictionFailure:
    victim_queues = sorted({reclaimable.compared_queues(queue)[1] for queue in queues})
    over = tuple(
        islice(
            (queue for queue in victim_queues if any(reclaimable.surplus(queue))), _MAX_OVER_SHARE
        )
    )
    return EvictionFailure(
        shortfall=shortfall if over else ReclaimShortfall.NO_QUEUE_OVER_SHARE,
        over_share_queues=over,
    )


def preempt(session: Session) -> None:
    """Evict, for each pending PodGroup, PodGroups of lower priority in its queue."""
    preempt_for_each(
        session, partial(_preempt_for, session), partial(_has_victims, session), by_priority=True
    )


def _has_victims(session: Session, row: int) -> bool:
    podgroup = session.snapshot.podgroups[row]
    return session.reclaimable_totals().has_below(podgroup.queue, podgroup.priority)


def _preempt_for(session: Session, row: int) -> EvictionFailure | None:
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
