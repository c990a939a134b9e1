"""Messages about limits and quotas: what a queue uses, what is requested, and what would help.

The unit of a field of a Queue is part of the message where it differs from the unit of the text:
`spec.resources.cpu` is in millicores, `spec.resources.memory` in megabytes.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from scheduler.core.messages.amounts import amount_of_kind, at_least
from scheduler.core.model.rejections import BehindHead, QueueBoundExceeded
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.snapshot import Snapshot
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.text import capitalized, counted, first_listed, joined_by_or

_Bounds: TypeAlias = Sequence[QueueBoundExceeded]

_LIMIT: Final = "limit"
_QUOTA: Final = "quota"
_UNITS: Final = {ResourceKind.CPU: (1, "millicores"), ResourceKind.MEMORY: (10**6, "megabytes")}
_LOOKS_LIKE_OTHER_UNIT: Final = 1000  # a smaller number was probably meant as cores, or as GiB


def queue_bound_message(
    snapshot: Snapshot, reason: UnschedulableReason, details: QueueBoundExceeded
) -> str:
    if details.unevictable:
        return _unevictable_over_quota(snapshot, details)
    field, names = _field(reason), snapshot.queues.names
    bounds = (details, *details.others)
    never = [it for it in bounds if it.requested > it.bound]
    change = first_listed(
        (_remedy(names[queue], it, field) for queue, it in _by_queue(never or bounds)),
        between=", and ",
    )
    ways = ["the PodGroup requests less"] if never else []
    if field == _QUOTA:
        preemptible = (
            "the PodGroup becomes preemptible (label kai.scheduler/preemptibility: preemptible)"
        )
        ways = [preemptible, "it names another queue with enough quota", *ways]
    when = "It can never start unless" if never else "It can start when"
    exceeded = exceeded_bounds(snapshot, reason, details)
    ordered = [*ways, change] if field == _QUOTA else [change, *ways]
    return f"{exceeded}. {when} {joined_by_or(ordered)}"


def behind_head_message(snapshot: Snapshot, details: BehindHead) -> str:
    queue, head = snapshot.queues.names[details.queue], snapshot.podgroups[details.head].name
    order = f"Queue {queue} starts its PodGroups in strict order"
    return (
        f"{order}, and {head}, which comes before it, waits ({details.head_reason}). "
        f"It can start when {head} has started"
    )


def exceeded_bounds(
    snapshot: Snapshot, reason: UnschedulableReason, details: QueueBoundExceeded
) -> str:
    field, bounds = _field(reason), (details, *details.others)
    uses = first_listed((_usage(snapshot, it, field) for _, it in _by_queue(bounds)), between="; ")
    return f"{capitalized(uses)}; {_request(bounds, is_fixed=field == _QUOTA)}"


def _field(reason: UnschedulableReason) -> str:
    return _QUOTA if reason == UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA else _LIMIT


def _by_queue(bounds: _Bounds) -> Iterable[tuple[int, _Bounds]]:
    """They are ordered by queue."""
    for queue, found in groupby(bounds, key=lambda it: it.queue):
        yield queue, [*found]


def _request(bounds: _Bounds, *, is_fixed: bool) -> str:
    requested = {it.kind: it.requested for it in bounds}
    needs = ", ".join(at_least(kind, number) for kind, number in requested.items())
    return f"the PodGroup {'is non-preemptible and ' * is_fixed}requests {needs} more"


def _unevictable_over_quota(snapshot: Snapshot, details: QueueBoundExceeded) -> str:
    """Return that a queue goes no further over its quota, because its usage is unevictable."""
    bounds, podgroups = (details, *details.others), details.unevictable
    uses = _amounts((it.kind, it.allocated) for it in bounds)
    quota = ", ".join(_bound(snapshot, it, _QUOTA) for it in bounds)
    over = _amounts((it.kind, it.allocated - it.bound) for it in bounds)
    raised = ", ".join(_new_bound(it.kind, it.allocated, _QUOTA) for it in bounds)
    queue = snapshot.queues.names[details.queue]
    names = first_listed(snapshot.podgroups[row].name for row in podgroups)
    because = f"because {counted(len(podgroups), 'PodGroup')} cannot be evicted ({names})"
    usage = f"Queue {queue} has a quota of {quota} and uses {uses} that cannot be reclaimed"
    change = f"{over} of this can be reclaimed, or its quota is raised to {raised}"
    request = _request(bounds, is_fixed=False)
    return f"{usage}, {because}; {request}. It can start when {change}"


def _usage(snapshot: Snapshot, bounds: _Bounds, field: str) -> str:
    queue = snapshot.queues.names[bounds[0].queue]
    most = ", ".join(_bound(snapshot, it, field) for it in bounds)
    uses = _amounts((it.kind, it.allocated) for it in bounds)
    if field == _QUOTA:
        return f"queue {queue} has a quota of {most}, of which its non-preemptible pods use {uses}"
    text = f"queue {queue} has a limit of {most} and uses {uses}"
    releasing = _amounts((it.kind, it.releasing) for it in bounds if it.releasing)
    return f"{text}, and its terminating pods use {releasing}" if releasing else text


def _remedy(queue: str, bounds: _Bounds, field: str) -> str:
    """Higher bounds, or resources that are released."""
    if all(it.requested > it.bound for it in bounds):
        least = ", ".join(_new_bound(it.kind, it.requested, field) for it in bounds)
        text = f"the {field} of queue {queue} is raised to {least}"
        used = [it for it in bounds if it.allocated + it.releasing]
        more = ", ".join(_new_bound(it.kind, _whole(it), field) for it in used)
        uses = _amounts((it.kind, it.allocated + it.releasing) for it in used)
        return f"{text}, or to {more} while it uses {uses}" if used else text
    pods = "non-preemptible pods" if field == _QUOTA else "pods"
    if all(it.releasing for it in bounds):
        pods = "terminating pods"
    released = ", ".join(at_least(it.kind, _whole(it) - it.bound) for it in bounds)
    more = ", ".join(_new_bound(it.kind, _whole(it), field) for it in bounds)
    return f"{pods} of queue {queue} release {released} or its {field} is raised to {more}"


def _whole(it: QueueBoundExceeded) -> int:
    return it.allocated + it.releasing + it.requested


def _bound(snapshot: Snapshot, it: QueueBoundExceeded, field: str) -> str:
    """Return a bound, with a note if it is 0 by default, or if the unit may be mistaken."""
    amount, path = amount_of_kind(it.kind, it.bound), _path(it.kind, field)
    if (it.queue, it.kind) in snapshot.queues.absent:
        return f"{amount} ({path.removesuffix(f'.{field}')} is absent)"
    if not it.bound:
        return f"{amount} ({path} is absent or 0)" if field == _LIMIT else amount
    scale, unit = _UNITS.get(it.kind, (0, ""))
    if not unit or it.bound >= _LOOKS_LIKE_OTHER_UNIT * scale:
        return amount
    return f"{amount} ({path}: {it.bound / scale:g} is in {unit})"


def _new_bound(kind: ResourceKind, number: int, field: str) -> str:
    """Return a sufficient bound, and what to write into the field if its unit differs."""
    amount = at_least(kind, number)
    if kind not in _UNITS:
        return amount
    return f"{amount} ({_path(kind, field)}: {-(-number // _UNITS[kind][0])})"


def _path(kind: ResourceKind, field: str) -> str:
    return f"spec.resources.{kind.name.lower()}.{field}"


def _amounts(amounts: Iterable[tuple[ResourceKind, int]]) -> str:
    return ", ".join(amount_of_kind(kind, number) for kind, number in amounts)
