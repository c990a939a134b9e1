"""The action reclaim: queues below their fair share take resources from queues above theirs."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from scheduler.core.eviction.execute import EvictionSession, UnitFilter
from scheduler.core.eviction.scenario import QueueHeadroom, ReclaimValidator
from scheduler.core.model.rejections import (
    FAIR_SHARE_EXCEEDED,
    NO_EVICTION_FAILURE,
    EvictionFailure,
    ReclaimShortfall,
    UnschedulableReason,
)
from scheduler.core.model.resources import Amounts
from scheduler.core.model.result import Action
from scheduler.core.queues.order import keys_by_queue
from scheduler.core.queues.reclaimable import QueueShares, Reclaimable, Reclaimer

__all__ = [
    "EarlierPending",
    "ReclaimAction",
]


_MAX_OVER_SHARE: Final = 4  # queues that are collected: one more than a message names


class ReclaimAction:
    """Reclaim by pending PodGroups whose queues stay within their fair shares."""

    def __init__(self, eviction_session: EvictionSession) -> None:
        self._eviction_session: Final = eviction_session
        self._session: Final = eviction_session.session
        self._shares: Final = QueueShares(self._session.snapshot.queues, self._session.fair_shares)
        self._earlier_pending: Final = EarlierPending(eviction_session)

    def run(self) -> None:
        """Try each pending PodGroup once, in order."""
        self._eviction_session.preempt_for_each(
            self._reclaim_for, lambda row: self._reclaimable(row).may_reclaim, by_priority=False
        )

    def _reclaimable(self, row: int) -> Reclaimable:
        """Return what may be reclaimed for a PodGroup."""
        podgroup = self._session.snapshot.podgroups[row]
        amounts = self._session.attempts[row].amounts
        reclaimer = Reclaimer(podgroup.queue, amounts, not podgroup.is_preemptible)
        return Reclaimable(self._shares, self._session.usage, reclaimer)

    def _reclaim_for(self, row: int) -> EvictionFailure | None:
        """Evict victims for a PodGroup and place it; return why that failed."""
        reclaimable, session = self._reclaimable(row), self._eviction_session
        reclaimer = reclaimable.reclaimer
        if not reclaimable.may_reclaim:
            return FAIR_SHARE_EXCEEDED
        request = session.request(row)
        if session.use_free_resources(request):
            return None
        totals, is_delayed = session.reclaimable_totals, session.is_delayed(row)
        session.failures.quota_only_queues.update(reclaimable.quota_only_queues(totals.all))
        queues = [q for q in totals.all if q != reclaimer.queue and reclaimable.may_reclaim_from(q)]
        most = partial(totals.reclaimable_bound, reclaimable, queues)
        if not queues or not (is_delayed or session.could_be_enough(reclaimer.amounts, most)):
            return self._failure(row, reclaimable, queues, is_enough=False)
        candidate_sets = session.candidate_sets(
            request, Action.RECLAIM, queues, partial(self._ordered_victims, queues)
        )
        if is_delayed:
            failure = self._failure(row, reclaimable, queues, None)
            return failure._replace(is_delayed=any(one.total for one in candidate_sets))
        earlier_requests = self._earlier_pending.requests_before(row)
        validators: list[ReclaimValidator] = []

        def new_validator() -> ReclaimValidator:
            headroom = QueueHeadroom(self._session, row)
            validators.append(
                ReclaimValidator(reclaimable, self._session.queue_order, earlier_requests, headroom)
            )
            return validators[-1]

        if session.make_room(request, Action.RECLAIM, candidate_sets, new_validator):
            return None
        last = validators[-1]  # with the most candidates
        return self._failure(row, reclaimable, queues, last.shortfall)._replace(
            earlier_podgroup=last.earlier_podgroup,
            order_conflict=None if last.earlier_podgroup else last.order_conflict,
        )

    def _failure(
        self,
        row: int,
        reclaimable: Reclaimable,
        queues: Collection[int],
        shortfall: ReclaimShortfall | None = ReclaimShortfall.TOO_LITTLE,
        *,
        is_enough: bool = True,
    ) -> EvictionFailure:
        """Return why nothing was reclaimed from queues for a PodGroup.

        If no victim is protected, name the *shortfall* and the queues above their shares.
        """
        session, own_queue = self._eviction_session, reclaimable.reclaimer.queue
        reclaimable_queues = session.reclaimable_totals.all.keys()
        others = session.failures.non_evictable.keys() - reclaimable_queues - {own_queue}
        others = {q for q in others if reclaimable.may_reclaim_from(q)}
        over_share = reclaimable.over_share_queues([*queues, *others])
        failure = session.failure(row, Action.RECLAIM, over_share)._replace(
            unlimited_queues=tuple(sorted(reclaimable.unlimited_queues(reclaimable_queues)))
        )
        if not is_enough and not failure.non_evictable:
            failure = failure.without_temporary_reasons()
        is_explained = failure != NO_EVICTION_FAILURE or not reclaimable_queues - {own_queue}
        if shortfall is None or is_explained:
            return failure
        return _shortfall_failure(reclaimable, queues, shortfall)

    def _ordered_victims(
        self, queues: Collection[int], is_eligible: UnitFilter
    ) -> tuple[Iterator[int], int]:
        return self._eviction_session.victim_order.across_queues(
            self._session.usage, queues, is_eligible
        )


class EarlierPending:
    """The pending PodGroups of each queue, which come before others of it."""

    def __init__(self, eviction_session: EvictionSession) -> None:
        """Take all PodGroups that are pending now."""
        self._eviction_session: Final = eviction_session
        self._session: Final = eviction_session.session
        session = eviction_session.session
        rejections = session.rejections
        rows = [row for row in session.attempts if row in rejections]
        podgroups = session.snapshot.podgroups
        self._keys: Final = keys_by_queue(
            (podgroups[row].queue, session.attempts[row].key)
            for row in rows
            if rejections[row].reason > UnschedulableReason.PODS_MISSING
        )
        self._seen: Final = dict.fromkeys(self._keys, 0)
        self._requests: Final[dict[int, dict[Amounts, int]]] = {queue: {} for queue in self._keys}

    def requests_before(self, row: int) -> dict[Amounts, int]:
        """Return what the PodGroups before one in its queue request, each with the first of them.

        It must be called for the PodGroups of a queue in their order.
        """
        queue = self._session.snapshot.podgroups[row].queue
        key = self._session.attempts[row].key
        keys, seen = self._keys[queue], self._seen[queue]
        while seen < len(keys) and keys[seen] < key:
            earlier = keys[seen][-1]
            if (
                earlier in self._session.rejections
                and earlier not in self._eviction_session.preemptors
            ):
                self._requests[queue].setdefault(self._session.attempts[earlier].amounts, earlier)
            seen += 1
        self._seen[queue] = seen
        return self._requests[queue]


def _shortfall_failure(
    reclaimable: Reclaimable, queues: Iterable[int], shortfall: ReclaimShortfall
) -> EvictionFailure:
    """Return a shortfall with the queues that are above their shares, as far as needed."""
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
