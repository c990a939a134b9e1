"""Why nobody loses anything for a unit that may claim it, in sentences."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from scheduler.core.decision import (
    ConsolidationFailure,
    EvictionFailure,
    QueueOrderConflict,
    ReclaimShortfall,
    Rejection,
)
from scheduler.core.model import Snapshot

__all__ = ["eviction_failure_sentences"]

_MAX_REASONS: Final = 3  # of reasons and budgets
_SHORTFALLS: Final = {
    ReclaimShortfall.NO_QUEUE_OVER_SHARE: "It can take nothing back: no queue beside it has more than it may count on",
    ReclaimShortfall.TOO_LITTLE: "{}, but giving back no more than that would not make the room",
    ReclaimShortfall.UNFAIR: "{}, but who gave the room would be no better off then than who claims it",
}
# Why a queue has the turn before another one, by the places of their keys.
_ORDER_CONFLICTS: Final = (
    "the other one has more than its fair share of everything",
    "it would stay within its quota",
    "its priority is larger, {} against {}",
    "nothing is due to the other one of something that it has or would have",
    "it would have the smaller part of what is due to it",
    "it has the smaller part of what is due to it",
    "their parts are alike, and it is smaller or older",
)
_CONSOLIDATION_FAILURES: Final = {
    ConsolidationFailure.DISABLED: "the action consolidation is off",
    ConsolidationFailure.NO_CANDIDATES: "only preemptible TrainJobs that nobody else admits are, of a queue that"
    ' offers it (trainer-kai.dev/consolidation: "on")',
    ConsolidationFailure.NOT_PREEMPTIBLE: "that is done only for who is preemptible",
    ConsolidationFailure.NO_SOLUTION: "no way was found with those who may be",
}
_LAST_SECOND: Final = 253_402_300_799  # the last second that a date has a name for


def eviction_failure_sentences(snapshot: Snapshot, rejection: Rejection) -> Iterator[str]:
    """Yield what keeps others from losing anything, as far as anything does."""
    failure = rejection.eviction_failure
    if failure.non_evictable:
        more = ", …" if failure.non_evictable[_MAX_REASONS:] else ""
        report = "; ".join(
            f"{count} because {why}" for why, count in failure.non_evictable[:_MAX_REASONS]
        )
        yield f"Others stay: {report}{more}"
    if failure.protected:
        have = "1 has" if failure.protected == 1 else f"{failure.protected} have"
        name = snapshot.podgroups[failure.first_unprotected].name
        yield f"{have} not run for long enough: {name} may go from {_timestamp(failure.protected_until)} on"
    if failure.budgets:
        names = [snapshot.budgets.names[it] for it in failure.budgets]
        more = ", …" if names[_MAX_REASONS:] else ""
        yield f"Too few pods may go by PodDisruptionBudget {', '.join(names[:_MAX_REASONS])}{more}"
    for queue in failure.quota_only_queues[:_MAX_REASONS]:
        name = snapshot.queues.names[queue]
        goal = "its reclaim-goal is quota-only"
        yield f"Below queue {name} nothing is taken back beyond quotas: {goal}"
    for queue in failure.unlimited_queues[:_MAX_REASONS]:
        name = snapshot.queues.names[queue]
        yield f"Queue {name} owes nothing back: its quota has no bound"
    yield from _shortfall_sentences(snapshot, failure)
    if failure.is_truncated:
        yield "Not all that others could give back was looked at: that ended at a limit"
    if failure.is_rate_limited:
        yield "Nobody claims anything for now: enough was taken from others within a minute"
    if failure.is_delayed:
        podgroup = snapshot.podgroups[rejection.podgroup]
        words = f" of {podgroup.preemption_delay}" if podgroup.preemption_delay else ""
        until = _timestamp(podgroup.preemption_delay_until)
        when = f"before {until}, when its preemptionDelay{words} is over"
        yield f"It takes nothing from others {when}"


def _shortfall_sentences(snapshot: Snapshot, failure: EvictionFailure) -> Iterator[str]:
    if failure.shortfall is not None:
        yield _SHORTFALLS[failure.shortfall].format(
            _over_share(snapshot, failure.over_share_queues)
        )
    if failure.order_conflict is not None:
        yield _order_conflict(snapshot, failure.order_conflict)
    if failure.consolidation_failure is not None:
        yield f"Nobody is moved to bring it together: {_CONSOLIDATION_FAILURES[failure.consolidation_failure]}"


def _order_conflict(snapshot: Snapshot, order_conflict: QueueOrderConflict) -> str:
    names, priority = snapshot.queues.names, snapshot.queues.priority
    queue, before, place = order_conflict
    why = _ORDER_CONFLICTS[min(place, len(_ORDER_CONFLICTS) - 1)].format(
        priority[queue], priority[before]
    )
    report = (
        f"Nothing is taken from queue {names[queue]}, for its turn would come again before that of"
    )
    return f"{report} queue {names[before]}: {why}"


def _over_share(snapshot: Snapshot, queues: Sequence[int]) -> str:
    names = [snapshot.queues.names[it] for it in queues]
    report = ", ".join(names[:_MAX_REASONS]) + (", …" if names[_MAX_REASONS:] else "")
    one, many = f"Queue {report} has more than it", f"Queues {report} have more than they"
    return f"{one if len(names) == 1 else many} may count on"


def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
