"""What a PodGroup needs beside its remedy: one attempt with the bound lifted that its reason names.

The attempts are made on the session at the end of a plan, and rolled back exactly, so they change
no decision. Of equal pods that need only room it is counted what an attempt would find. A plan
makes a few of them: for new and changed reasons, and again for some of those that are known for
longest. What an earlier plan has found counts as long as the bound has the same numbers.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.actions.strict_queues import head_before
from scheduler.core.gang import tasks_to_allocate
from scheduler.core.messages.node_messages import needed_room
from scheduler.core.messages.rejection_messages import what_would_help
from scheduler.core.model.rejections import (
    CheckedRemedy,
    PreFilterCause,
    PreFilterFailure,
    QueueBoundExceeded,
    Rejection,
)
from scheduler.core.model.resources import NONE, UNBOUND
from scheduler.core.model.result import QuotaRefusal
from scheduler.core.nodes.nominated import NominationAccess
from scheduler.core.nodes.strategies.strategy import RequestKey
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason

# What an owner of the queue can lift; the PodGroup stays as it is.
_LIFTABLE: Final = frozenset(
    {
        PreFilterCause.QUEUE_HELD,
        PreFilterCause.QUEUE_CLOSED,
        PreFilterCause.QUEUE_ACCESS_PENDING,
        PreFilterCause.QUEUE_ACCESS_UNKNOWN,
    }
)


_MOST_REPEATED: Final = 4  # of the attempts of a plan
_Key: TypeAlias = tuple[NominationAccess, bool, RequestKey]


class _Lifted(NamedTuple):
    row: list[int]  # limits or quotas of a queue
    kind: int
    bound: int


def checked_remedies(
    session: Session, known: Mapping[int, CheckedRemedy], most: int
) -> dict[int, CheckedRemedy]:
    """Return what PodGroups need beside the lifted bound: of at most *most* by an attempt.

    Of the others what is *known*, by PodGroup, the longest known first; these come first here.
    """
    bounds = {
        row: _bound(session, it)
        for row, it in session.rejections.items()
        if _is_liftable(session, it)
    }
    if not bounds:
        return {}
    kept = {row: it for row, it in known.items() if bounds.get(row) == it.bound}
    new, repeated = sorted(bounds.keys() - kept.keys()), [*kept][:_MOST_REPEATED]
    order = [*new, *repeated][:most]
    check = _RemedyCheck(session)
    made = {row: CheckedRemedy(bounds[row], check.also_needed(row)) for row in order}
    return {row: it for row, it in kept.items() if row not in made} | made


def _is_liftable(session: Session, rejection: Rejection) -> bool:
    details = rejection.details
    if isinstance(details, QueueBoundExceeded):
        return True
    if not isinstance(details, PreFilterFailure) or details.queue_label is not None:
        return False
    podgroup = session.snapshot.podgroups[rejection.podgroup]
    return (
        details.cause in _LIFTABLE
        and details.is_only
        and podgroup.queue != NONE
        and podgroup.prefilter_failure == details
        and bool(tasks_to_allocate(podgroup.tree))
    )


def _bound(session: Session, rejection: Rejection) -> tuple[object, ...]:
    details, names = rejection.details, session.snapshot.queues.names
    if not isinstance(details, QueueBoundExceeded):
        assert isinstance(details, PreFilterFailure)
        return details.cause, *details.values
    bounds = (
        (names[it.queue], it.kind, it.bound, it.allocated, it.releasing, it.requested)
        for it in (details, *details.others)
    )
    return rejection.reason, *bounds


class _RemedyCheck:
    def __init__(self, session: Session) -> None:
        self._session: Final = session
        # Nothing is placed between the attempts, so equal requests have equal results.
        self._missing: Final[dict[_Key, str]] = {}

    def also_needed(self, row: int) -> str:
        """Say what is in the way when the bound is lifted.

        All bounds before the head of a strict queue, and that before the nodes.
        """
        session = self._session
        if row not in session.attempts:
            session.attempts.add(row, tasks_to_allocate(session.snapshot.podgroups[row].tree))
        if session.kept.is_held and session.may_take_kept(row):
            with session.kept.lifted():
                return self._also_needed(row)
        return self._also_needed(row)

    def _also_needed(self, row: int) -> str:
        session = self._session
        details, reason = session.rejections[row].details, session.rejections[row].reason
        lifted: list[_Lifted] = []
        if isinstance(details, QueueBoundExceeded):
            self._lift(QuotaRefusal(reason, details), lifted)
        needs = [*self._other_bounds(row, lifted)]
        if (head := head_before(session, row)) is not None:
            reason = UnschedulableReason.WAITING_FOR_HEAD
            needs.append(what_would_help(session.snapshot, reason, head))
        missing = self._missing_on_nodes(row)
        for it in reversed(lifted):
            it.row[it.kind] = it.bound
        if missing:
            needs.append(missing)
        return ", and when ".join(needs)

    def _other_bounds(self, row: int, lifted: list[_Lifted]) -> Iterator[str]:
        while (refusal := self._session.next_refusal(row)) is not None:
            yield what_would_help(self._session.snapshot, *refusal)
            self._lift(refusal, lifted)

    def _lift(self, refusal: QuotaRefusal, lifted: list[_Lifted]) -> None:
        usage = self._session.usage
        is_limit = refusal.reason == UnschedulableReason.EXCEEDS_LIMIT
        for it in (refusal.details, *refusal.details.others):
            row = (usage.limit if is_limit else usage.quota)[it.queue]
            lifted.append(_Lifted(row, it.kind, row[it.kind]))
            row[it.kind] = UNBOUND

    def _missing_on_nodes(self, row: int) -> str:
        session = self._session
        if session.attempts.has_reserved_places(row):
            return self._tried(row)
        access = session.nominated_capacity.access(row)
        key = access, session.kept.is_held, session.attempts[row].request_key
        if key not in self._missing:
            room = session.missing_room(row)
            text = self._tried(row) if room is None else needed_room(session.snapshot, room)
            self._missing[key] = text
        return self._missing[key]

    def _tried(self, row: int) -> str:
        failure = self._session.failed_placement(row)
        if failure is None:
            return ""
        return what_would_help(self._session.snapshot, failure.reason, failure)
