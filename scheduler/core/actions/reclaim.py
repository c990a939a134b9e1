"""The action reclaim: queues below their fair share take resources from queues above theirs."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from scheduler.core.eviction.execute import EvictionSession, UnitFilter
from scheduler.core.eviction.scenario import QueueHeadroom, ReclaimValidator
from scheduler.core.model.failures import (
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


class EarlierPending:
    """Who waits in each queue, and so has its turn before others of it."""

    def __init__(self, eviction_session: EvictionSession) -> None:
        """Look at all who wait now."""
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
        """Return what is asked for by those that have their turns before a unit, and by whom first.

        It is asked for those of a queue in their order.
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
            return why_kept(None)._replace(
                is_delayed=any(earlier.total for earlier in candidate_sets)
            )
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
