"""Quota checks: what a PodGroup may use of its queue and of all queues above.

Limits and quotas are checked from the queue up, and every bound that would be exceeded is reported.
A resource that is not requested is not checked, so that a queue above its limit can still start
PodGroups that need other resources.
"""

from typing import Final

from scheduler.core.model.plugins import QuotaRefusal
from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.rejections import QueueBoundExceeded, UnschedulableReason
from scheduler.core.model.resources import RESOURCE_KINDS, UNBOUND, Amounts
from scheduler.core.model.usage import Usage

_UNBOUND: Final = [UNBOUND] * len(RESOURCE_KINDS)


def within_limit(usage: Usage, podgroup: PodGroupInfo, requested: Amounts) -> QuotaRefusal | None:
    """Refuse what would exceed a limit."""
    path = usage.paths[podgroup.queue]
    details = _exceeded(path, usage.limit, usage.allocated, requested)
    return QuotaRefusal(UnschedulableReason.EXCEEDS_LIMIT, details) if details else None


def within_quota(usage: Usage, podgroup: PodGroupInfo, requested: Amounts) -> QuotaRefusal | None:
    """Refuse a non-preemptible PodGroup what would exceed a quota."""
    if podgroup.is_preemptible:
        return None
    details = _exceeded(usage.paths[podgroup.queue], usage.quota, usage.non_preemptible, requested)
    return (
        QuotaRefusal(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, details) if details else None
    )


def may_borrow(usage: Usage, podgroup: PodGroupInfo, requested: Amounts) -> QuotaRefusal | None:
    """Refuse more of a resource of which a queue has unevictable usage above its quota.

    A queue with unevictable PodGroups could otherwise borrow everything, PodGroup by PodGroup.
    """
    queue = podgroup.queue
    unevictable = usage.unevictable.get(queue)
    if unevictable is None:
        return None
    columns = zip(
        RESOURCE_KINDS,
        usage.quota[queue],
        usage.non_preemptible[queue],
        requested,
        unevictable.amounts,
        strict=True,
    )
    details = [
        QueueBoundExceeded(queue, kind, quota, fixed, more, unevictable=unevictable.podgroups)
        for kind, quota, fixed, more, unevictable_amount in columns
        if quota != UNBOUND and more > 0 and unevictable_amount and fixed > quota
    ]
    if not details:
        return None
    first = details[0]._replace(others=tuple(details[1:]))
    return QuotaRefusal(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, first)


def _exceeded(
    path: tuple[int, ...], bounds: list[list[int]], has: list[list[int]], requested: Amounts
) -> QueueBoundExceeded | None:
    """Return the first bound that would be exceeded, from the queue up, with the others."""
    passed: list[QueueBoundExceeded] = []
    for q in path:
        if bounds[q] == _UNBOUND:
            continue  # called for every PodGroup, and most queues have no bound
        for kind, bound, before, more in zip(
            RESOURCE_KINDS, bounds[q], has[q], requested, strict=True
        ):
            if bound != UNBOUND and more > 0 and before + more > bound:
                passed.append(QueueBoundExceeded(q, kind, bound, before, more))
    return passed[0]._replace(others=tuple(passed[1:])) if passed else None
