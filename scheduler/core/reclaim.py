"""The action reclaim: queues take back what is theirs from queues that have more than that."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from scheduler.core.decision import (
    FAIR_SHARE_EXCEEDED,
    NO_EVICTION_FAILURE,
    Action,
    EarlierPodGroup,
    EvictionFailure,
    QueueOrderConflict,
    ReclaimShortfall,
)
from scheduler.core.displace import EvictionSession, QueueHeadroom, UnitFilter
from scheduler.core.line import EvictionUnit
from scheduler.core.order import QueueOrder
from scheduler.core.rights import QueueShares, Reclaimable, Reclaimer, ReclaimState
from scheduler.core.usage import Amounts
from scheduler.core.waiting import EarlierPending

__all__ = ["ReclaimAction"]

_MAX_OVER_SHARE: Final = 4  # queues that are looked for: one more than are told


class ReclaimAction:
    """Claims, one after another."""

    def __init__(self, eviction_session: EvictionSession) -> None:
        self._eviction_session: Final = eviction_session
        self._session: Final = eviction_session.session
        self._shares: Final = QueueShares(self._session.snapshot.queues, self._session.fair_shares)
        self._earlier_pending: Final = EarlierPending(eviction_session)

    def run(self) -> None:
        """Let everybody claim what is due to it, one chunk each."""
        self._eviction_session.preempt_for_each(
            self._reclaim_for, lambda row: self._reclaimable(row).may_reclaim, by_priority=False
        )

    def _reclaimable(self, row: int) -> Reclaimable:
        """Return what a unit may take."""
        podgroup, amounts = (
            self._session.snapshot.podgroups[row],
            self._session.attempts[row].amounts,
        )
        reclaimer = Reclaimer(podgroup.queue, amounts, not podgroup.is_preemptible)
        return Reclaimable(self._shares, self._session.usage, reclaimer)

    def _reclaim_for(self, row: int) -> EvictionFailure | None:
        """Let a unit take what it claims; return why it did not."""
        reclaimable = self._reclaimable(row)
        reclaimer, amounts = reclaimable.reclaimer, reclaimable.reclaimer.amounts
        if not reclaimable.may_reclaim:
            return FAIR_SHARE_EXCEEDED
        request = self._eviction_session.request(row)
        if self._eviction_session.use_free_resources(request):
            return None
        totals, is_delayed = (
            self._eviction_session.reclaimable_totals,
            self._eviction_session.is_delayed(row),
        )
        self._eviction_session.failures.quota_only_queues.update(
            reclaimable.quota_only_queues(totals.all)
        )
        queues = [q for q in totals.all if q != reclaimer.queue and reclaimable.may_reclaim_from(q)]

        def why_kept(
            shortfall: ReclaimShortfall | None = ReclaimShortfall.TOO_LITTLE,
            *,
            is_enough: bool = True,
        ) -> EvictionFailure:
            non_evictable = (
                self._eviction_session.failures.non_evictable.keys()
                - totals.all.keys()
                - {reclaimer.queue}
            )
            others = [q for q in non_evictable if reclaimable.may_reclaim_from(q)]
            unbounded = tuple(sorted(reclaimable.unlimited_queues(totals.all)))
            subject = reclaimable.over_share_queues([*queues, *others])
            failure = self._eviction_session.failure(row, Action.RECLAIM, subject)._replace(
                unlimited_queues=unbounded
            )
            failure = (
                failure
                if is_enough or failure.non_evictable
                else failure.without_temporary_reasons()
            )
            if (
                shortfall is None
                or failure != NO_EVICTION_FAILURE
                or not totals.all.keys() - {reclaimer.queue}
            ):
                return failure
            return _shortfall(reclaimable, queues, shortfall)

        most = partial(totals.reclaimable_bound, reclaimable, queues)
        if not queues or not (is_delayed or self._eviction_session.could_be_enough(amounts, most)):
            return why_kept(is_enough=False)
        candidate_sets = self._eviction_session.candidate_sets(
            request, Action.RECLAIM, queues, partial(self._ordered_victims, queues)
        )
        if is_delayed:
            return why_kept(None)._replace(is_delayed=any(one.total for one in candidate_sets))
        before, podsets = self._earlier_pending.requests_before(row), list[ReclaimValidator]()

        def new_validator() -> ReclaimValidator:
            headroom = QueueHeadroom(self._session, row)
            podsets.append(
                ReclaimValidator(reclaimable, self._session.queue_order, before, headroom)
            )
            return podsets[-1]

        if self._eviction_session.make_room(request, Action.RECLAIM, candidate_sets, new_validator):
            return None
        validator = podsets[-1]  # of the widest try
        order_conflict = (
            None if validator.earlier_podgroup else validator.order_conflict
        )  # it fails by itself, or it does not
        return why_kept(validator.shortfall)._replace(
            earlier_podgroup=validator.earlier_podgroup, order_conflict=order_conflict
        )

    def _ordered_victims(
        self, queues: Collection[int], is_eligible: UnitFilter
    ) -> tuple[Iterator[int], int]:
        return self._eviction_session.victim_order.across_queues(
            self._session.usage, queues, is_eligible
        )


def _shortfall(
    reclaimable: Reclaimable, queues: Iterable[int], shortfall: ReclaimShortfall
) -> EvictionFailure:
    """Return who has too much, in vain, of those that come into question: as many as are told."""
    victim_queue = sorted({reclaimable.compared_queues(queue)[1] for queue in queues})
    over = tuple(
        islice(
            (queue for queue in victim_queue if any(reclaimable.surplus(queue))), _MAX_OVER_SHARE
        )
    )
    return EvictionFailure(
        shortfall=shortfall if over else ReclaimShortfall.NO_QUEUE_OVER_SHARE,
        over_share_queues=over,
    )


class ReclaimValidator:
    """What one claim may take."""

    def __init__(
        self,
        reclaimable: Reclaimable,
        keys: QueueOrder,
        before: dict[Amounts, int],
        headroom: QueueHeadroom,
    ) -> None:
        self.earlier_podgroup: EarlierPodGroup | None = None
        self.order_conflict: QueueOrderConflict | None = None
        self._is_unfair = False
        self._reclaimable: Final = reclaimable
        self._state: Final = ReclaimState(reclaimable)
        self._queue_order: Final = keys.with_allocated(self._state)
        self._earlier_requests: Final = before
        self._headroom: Final = headroom
        # What would be asked for, also if of a bundle; and how often.
        self._evicted_requests: Final[dict[tuple[int, Amounts, bool], int]] = {}
        self.may_evict: Final = self._state.may_evict
        self.is_within_bounds: Final = headroom.is_within_bounds

    def evict(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Take a block."""
        self._state.evict(eviction_unit.queue, amounts)
        self._headroom.evict(eviction_unit, amounts)
        for requests in eviction_unit.first_requests:
            evicted = eviction_unit.queue, requests, eviction_unit.is_jobset
            self._evicted_requests[evicted] = self._evicted_requests.get(evicted, 0) + 1

    def restore(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Give a block back."""
        self._state.restore(eviction_unit.queue, amounts)
        self._headroom.restore(eviction_unit, amounts)
        for requests in eviction_unit.first_requests:
            self._evicted_requests[eviction_unit.queue, requests, eviction_unit.is_jobset] -= 1

    @property
    def shortfall(self) -> ReclaimShortfall | None:
        """Return what those lacked who could go, if it is not that somebody has the turn before."""
        if self.earlier_podgroup or self.order_conflict:
            return None
        return ReclaimShortfall.UNFAIR if self._is_unfair else ReclaimShortfall.TOO_LITTLE

    def is_valid(self) -> bool:
        """Say whether nobody who lost is worse off, and nobody would have the next turn."""
        if not self._state.is_valid():
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
        """Return who lost room and would have its turn again before who asks for it.

        That is no matter of a bundle where the claim stays within a quota: its room is held for it
        (10b), and afterwards nothing is taken from it. Else a queue could keep all that it borrowed
        in a TrainJob, which cannot shrink, that first asks for little, which it may always have.
        """
        is_own_request = requested == self._reclaimable.reclaimer.amounts
        for (queue, amounts, is_jobset), count in self._evicted_requests.items():
            reclaimer_queue, victim_queue = self._reclaimable.compared_queues(queue)
            if is_own_request and is_jobset and self._reclaimable.is_within_quota(reclaimer_queue):
                continue
            if count and self._state.could_allocate(queue, amounts):
                key, before = (
                    self._queue_order.key(reclaimer_queue, requested),
                    self._queue_order.key(victim_queue, amounts),
                )
                if key >= before:
                    place = next(i for i, it in enumerate(key) if it != before[i])
                    return QueueOrderConflict(victim_queue, reclaimer_queue, place)
        return None
