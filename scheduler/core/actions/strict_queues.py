"""Queues in strict order: no new start passes the head of its queue while that waits for room.

Replacements, expected pods and nominated PodGroups pass. A head that can never start is no head.
"""

from typing import Final

from scheduler.core.actions.targets import emptied_nodes, fits_at_once
from scheduler.core.gang import is_satisfied
from scheduler.core.model.rejections import BehindHead, ClusterEvent, FitErrors, Rejection
from scheduler.core.model.resources import UNBOUND
from scheduler.core.nodes.strategies.strategy import EVERYWHERE, RequestKey
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason

_WAITS_FOR_ROOM: Final = frozenset(
    {
        UnschedulableReason.EXCEEDS_LIMIT,
        UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA,
        UnschedulableReason.TOPOLOGY_UNFIT,
        UnschedulableReason.FRAGMENTED,
        UnschedulableReason.NO_CAPACITY,
    }
)


class StrictQueues:
    """The heads of one round: the PodGroups that failed, and that others must not pass."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._queues: Final = session.snapshot.queues.strict
        self._heads: Final = session.heads
        self._heads.clear()
        self._fits: Final[dict[RequestKey, bool]] = {}

    def has(self, row: int) -> bool:
        return self._session.snapshot.podgroups[row].queue in self._queues

    def place(self, row: int) -> bool:
        """Place the next attempt of a PodGroup of a strict queue; not if it would pass the head."""
        if self._holds_back(row):
            return False
        if self._session.place(row, is_final=True):  # the reason says whether it is a head
            return True
        if _lacks_members(self._session, row) and self._could_start(row):
            self._heads.setdefault(self._session.snapshot.podgroups[row].queue, row)
        return False

    def _holds_back(self, row: int) -> bool:
        """Reject a PodGroup that would pass the head of its queue; say whether it would."""
        session = self._session
        queue = session.snapshot.podgroups[row].queue
        head = self._heads.get(queue)
        if head is None or _may_pass(session, row):
            return False
        session.rejections[row] = Rejection(
            row,
            UnschedulableReason.WAITING_FOR_HEAD,
            BehindHead(queue, head, session.rejections[head].reason),
            is_resolvable=False,
            retry_on=session.rejections[head].retry_on | ClusterEvent.RESOURCES_FREED,
        )
        return True

    def _could_start(self, row: int) -> bool:
        rejection = self._session.rejections.get(row)
        if rejection is None or rejection.reason not in _WAITS_FOR_ROOM:
            return False
        details = rejection.details
        is_hopeless = isinstance(details, FitErrors) and not details.is_resolvable
        return not is_hopeless and could_start(self._session, row) and self._fits_at_once(row)

    def _fits_at_once(self, row: int) -> bool:
        """Say whether its pods fit together when no pods of ours are there, if that is known."""
        session, attempt = self._session, self._session.attempts[row]
        if attempt.strategy is not EVERYWHERE or not all(
            session.placer.ranking(it).has_no_relations and not session.nodes.devices.of[it]
            for it, _ in attempt.signatures
        ):
            return True
        if attempt.request_key not in self._fits:
            empty = emptied_nodes(session.snapshot)
            self._fits[attempt.request_key] = fits_at_once(session, attempt.signatures, empty)
        return self._fits[attempt.request_key]


def head_before(session: Session, row: int) -> BehindHead | None:
    """Return the head that a PodGroup which was not attempted would wait for; None if for none."""
    queue, attempts = session.snapshot.podgroups[row].queue, session.attempts
    head = session.heads.get(queue)
    if (
        head not in session.rejections  # also a head that was placed after the rounds is none
        or head is None
        or attempts[row].key <= attempts[head].key
        or _may_pass(session, row)
    ):
        return None
    return BehindHead(queue, head, session.rejections[head].reason)


def _may_pass(session: Session, row: int) -> bool:
    attempts, podgroup = session.attempts, session.snapshot.podgroups[row]
    return (
        (podgroup.has_running and _lacks_members(session, row))
        or (not podgroup.has_running and podgroup.workload in session.running_workloads)
        or attempts.has_reserved_places(row)
        or not attempts[row].fits_empty_cluster  # it does not start, and gets its own reason
        or session.nominated_podgroups.all_nominated(attempts[row].tasks)
    )


def _lacks_members(session: Session, row: int) -> bool:
    return not is_satisfied(session.snapshot.podgroups[row].tree, session.attempts.assigned(row))


def could_start(session: Session, row: int) -> bool:
    """Say whether a PodGroup fits on an empty cluster, alone in its queues."""
    attempt, podgroup = session.attempts[row], session.snapshot.podgroups[row]
    quota = session.usage.quota
    return attempt.fits_empty_cluster and (
        podgroup.is_preemptible
        or all(
            most == UNBOUND or amount <= most
            for queue in session.usage.paths[podgroup.queue]
            for amount, most in zip(attempt.least_amounts, quota[queue], strict=True)
        )
    )
