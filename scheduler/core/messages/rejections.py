"""Messages: why a PodGroup waits, with numbers, and what would help. The entrance of this folder.

The other modules have the templates, one a reason; all are made from data when they are read.
"""

from typing import Final

from scheduler.core.messages.eviction_failures import (
    earlier_podgroup_message,
    eviction_failure_sentences,
)
from scheduler.core.messages.fit_errors import fit_errors_message, kai_fit_errors_message
from scheduler.core.messages.prefilter import prefilter_message
from scheduler.core.messages.queue_bounds import exceeded_bounds, queue_bound_message
from scheduler.core.model.rejections import (
    FitErrors,
    IncompletePodSet,
    MissingPods,
    QueueBoundExceeded,
    Rejection,
    UnschedulableReason,
)
from scheduler.core.model.snapshot import Snapshot

_FLAT: Final = "default"  # the PodSet of a PodGroup without sub-groups


def rejection_message(snapshot: Snapshot, rejection: Rejection) -> str:
    """Return the message of the reason, and the sentences on why no victims were evicted."""
    sentences = [_details(snapshot, rejection)]
    if rejection.queue_rejection is not None:
        bound, reason = rejection.queue_rejection.details, rejection.queue_rejection.reason
        if isinstance(bound, QueueBoundExceeded):
            sentences.append(f"Also: {exceeded_bounds(snapshot, reason, bound)}")
    sentences += eviction_failure_sentences(snapshot, rejection)
    earlier_podgroup = rejection.eviction_failure.earlier_podgroup
    if earlier_podgroup is not None:
        sentences.append(earlier_podgroup_message(snapshot, earlier_podgroup))
    return ". ".join(sentences)


def kai_condition(snapshot: Snapshot, rejection: Rejection) -> tuple[str, str]:
    """Return reason and message as KAI writes them into conditions, for tools that read those."""
    details = rejection.details
    if rejection.reason == UnschedulableReason.PREEMPTION_DELAY:
        return "PreemptionDelayNotElapsed", rejection_message(snapshot, rejection)
    if isinstance(details, QueueBoundExceeded):
        is_limit = rejection.reason == UnschedulableReason.EXCEEDS_LIMIT
        return ("OverLimit" if is_limit else "NonPreemptibleOverQuota"), rejection_message(
            snapshot, rejection
        )
    if rejection.reason == UnschedulableReason.QUEUE_MISSING:
        return "QueueDoesNotExist", rejection_message(snapshot, rejection)
    if isinstance(details, FitErrors):
        return "PodSchedulingErrors", kai_fit_errors_message(snapshot, details)
    return rejection.reason.title, rejection_message(snapshot, rejection)


def no_pods_message(needed: int) -> str:
    """Return that no pod of a PodGroup exists."""
    return _missing_pods(MissingPods((IncompletePodSet(_FLAT, 0, needed),)))


def _details(snapshot: Snapshot, rejection: Rejection) -> str:
    details = rejection.details
    if isinstance(details, QueueBoundExceeded):
        return queue_bound_message(snapshot, rejection.reason, details)
    if isinstance(details, FitErrors):
        return fit_errors_message(snapshot, details)
    if isinstance(details, MissingPods):
        return _missing_pods(details)
    return prefilter_message(details)


def _missing_pods(details: MissingPods) -> str:
    missing = details.podsets
    if not missing:
        return "Pods are missing: no sub-group that is incomplete can reach its minimum"
    until = []
    if any(it.existing < it.needed for it in missing):
        until.append("the missing pods exist")
    if any(it.gated for it in missing):
        until.append("the scheduling gates are removed")
    is_flat = [it.podset for it in missing] == [_FLAT]
    listed = "; ".join(_incomplete_podset(it, is_flat=is_flat) for it in missing)
    return f"Pods are missing: {listed}. It can start when {' and '.join(until)}"


def _incomplete_podset(it: IncompletePodSet, *, is_flat: bool) -> str:
    exist = f"{it.existing} of {it.needed} exist{'' if is_flat else f' in sub-group {it.podset}'}"
    gated = f", {it.gated} of which {'has' if it.gated == 1 else 'have'} scheduling gates"
    return f"{exist}{gated}" if it.gated else exist
