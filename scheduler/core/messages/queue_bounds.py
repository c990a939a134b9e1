"""Messages about limits and quotas: what a queue uses, what is requested, and what would help."""

from scheduler.core.messages.amounts import amount_of_kind, at_least, first_listed, joined_by_or
from scheduler.core.model.rejections import QueueBoundExceeded, UnschedulableReason
from scheduler.core.model.snapshot import Snapshot

__all__ = ["exceeded_bounds", "queue_bound_message"]


def queue_bound_message(
    snapshot: Snapshot, reason: UnschedulableReason, details: QueueBoundExceeded
) -> str:
    """Return which limits or quotas would be exceeded, by how much, and what would help."""
    if details.unevictable:
        return _unevictable_over_quota(snapshot, details)
    is_limit = reason != UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA
    names, bounds = snapshot.queues.names, (details, *details.others)
    never = [it for it in bounds if it.requested > it.bound]
    when = "It can never start unless" if never else "It can start when"
    change = first_listed(
        (_remedy(names, it, is_limit=is_limit) for it in never or bounds), ", and "
    )
    ways = [
        *["the PodGroup requests less"] * bool(never),
        *["the PodGroup becomes preemptible"] * (not is_limit),
    ]
    exceeded = exceeded_bounds(snapshot, reason, details)
    return f"{exceeded}. {when} {joined_by_or([change, *ways])}"


def exceeded_bounds(
    snapshot: Snapshot, reason: UnschedulableReason, details: QueueBoundExceeded
) -> str:
    """Return which limits or quotas would be exceeded, and by how much."""
    is_limit = reason != UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA
    bounds = (details, *details.others)
    uses = first_listed(_usage(snapshot.queues.names, it, is_limit=is_limit) for it in bounds)
    return f"{_capitalized(uses)}; {_request(bounds)}"


def _request(bounds: tuple[QueueBoundExceeded, ...]) -> str:
    requested = {it.kind: it.requested for it in bounds}
    needs = ", ".join(at_least(kind, number) for kind, number in requested.items())
    return f"the PodGroup requests {needs} more"


def _unevictable_over_quota(snapshot: Snapshot, details: QueueBoundExceeded) -> str:
    """Return that a queue goes no further over its quota, because its usage is unevictable."""
    bounds, podgroups = (details, *details.others), details.unevictable
    uses = ", ".join(amount_of_kind(it.kind, it.allocated) for it in bounds)
    quota = ", ".join(amount_of_kind(it.kind, it.bound) for it in bounds)
    over = ", ".join(amount_of_kind(it.kind, it.allocated - it.bound) for it in bounds)
    queue, many = snapshot.queues.names[details.queue], "s" if len(podgroups) > 1 else ""
    names = first_listed(snapshot.podgroups[row].name for row in podgroups)
    because = f"because {len(podgroups)} PodGroup{many} cannot be evicted ({names})"
    usage = f"Queue {queue} has a quota of {quota} and uses {uses} that cannot be reclaimed"
    change = f"{over} of this can be reclaimed, or its quota is raised to {uses}"
    return f"{usage}, {because}; {_request(bounds)}. It can start when {change}"


def _usage(names: tuple[str, ...], it: QueueBoundExceeded, *, is_limit: bool) -> str:
    queue, bound = f"queue {names[it.queue]}", amount_of_kind(it.kind, it.bound)
    uses = amount_of_kind(it.kind, it.allocated)
    if not is_limit:
        return f"{queue} has a quota of {bound}, of which its non-preemptible pods use {uses}"
    text = f"{queue} has a limit of {bound} and uses {uses}"
    if it.releasing:
        text += f", and its terminating pods use {amount_of_kind(it.kind, it.releasing)}"
    return text


def _remedy(names: tuple[str, ...], it: QueueBoundExceeded, *, is_limit: bool) -> str:
    """Return what would make it fit: a higher bound, or resources that are released."""
    word, queue = "limit" if is_limit else "quota", names[it.queue]
    whole = it.allocated + it.releasing + it.requested
    if it.requested > it.bound:
        used, more = it.allocated + it.releasing, at_least(it.kind, whole)
        uses = amount_of_kind(it.kind, used)
        meanwhile = f" ({more} while the queue uses {uses})" if used else ""
        least = at_least(it.kind, it.requested)
        return f"the {word} of queue {queue} is raised to {least}{meanwhile}"
    pods = "terminating pods" if it.releasing else "pods" if is_limit else "non-preemptible pods"
    released = f"{pods} of queue {queue} release {at_least(it.kind, whole - it.bound)}"
    return f"{released} or its {word} is raised to {at_least(it.kind, whole)}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
