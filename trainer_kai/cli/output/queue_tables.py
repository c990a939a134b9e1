"""Queues as a tree, in a table for each resource with a quota or limit, and as JSON.

For `queue list`, which reads what the scheduler has reported, and for the plan of `simulate`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from scheduler.core.model.resources import UNBOUND, ResourceKind, cut
from scheduler.core.queues.fair_share import fair_share
from scheduler.state.queues.queue_table import QueueTable
from trainer_kai.api.kai_kinds import PodGroup, Queue, ResourcesStatus
from trainer_kai.api.names import CPU, GPU, MEMORY
from trainer_kai.api.quantity import Quantity, QuantityError, milli, whole
from trainer_kai.api.syntax import dns_subdomain_fault
from trainer_kai.cli.output.table import escaped, fitted_table, table
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.queueing.queue_access import EffectiveQueueAccess

Json: TypeAlias = dict[str, Any]

_SCHEMA: Final = "trainer-kai/queues/v1"
_TITLES: Final = {ResourceKind.GPU: "GPUS", ResourceKind.CPU: "CPUS", ResourceKind.MEMORY: "MEMORY"}
THOUSANDTHS: Final = 1000
_SMALL: Final = 0.001  # the smallest number in a table
_MISSING: Final = "missing"
_IGNORED: Final = "ignored"  # it has no root; a note names the reason
_RESOURCE_KINDS: Final = (
    ("cpu", ResourceKind.CPU, THOUSANDTHS),
    ("memory", ResourceKind.MEMORY, 1),
    ("gpu", ResourceKind.GPU, THOUSANDTHS),
)


class QueueAmounts(NamedTuple):
    """A queue, by `ResourceKind`: 1/1000 CPU, bytes, 1/1000 GPU; -1 is unlimited."""

    name: str
    parent: str
    quota: tuple[int, ...]
    limit: tuple[int, ...]
    fair_share: tuple[float, ...]  # empty if not known
    allocated: tuple[int, ...]
    requested: tuple[int, ...]
    is_quota_only: bool = False  # its children reclaim only up to their quotas
    # Why the queue takes no PodGroups, although some use it: "missing" or "ignored".
    fault: str = ""


def read_queues(
    queues: Iterable[Queue],
    podgroups: Iterable[PodGroup] = (),
    total: tuple[int, int, int] | None = None,
) -> tuple[list[QueueAmounts], list[str]]:
    """Return the amounts of queues, and notes; raise for amounts that cannot be read.

    A queue that PodGroups use is also returned if it does not exist, or has no root: nothing else
    shows what these PodGroups have. With the *total* of the cluster they have fair shares.
    """
    by_name = {queue.metadata.name: queue for queue in queues}
    queue_table = QueueTable(by_name)
    amounts = _reported_amounts(queue_table, by_name)
    if total is not None:
        amounts = _with_fair_shares(queue_table, amounts, total)
    notes = [*dict.fromkeys(warning.text for warning in queue_table.warnings)]
    unreported = sorted(name for name in queue_table.names if not by_name[name].status.allocated)
    if unreported:
        notes.append(f"the scheduler has not reported the usage of {', '.join(unreported)} yet")
    for unusable in _unusable_queues(podgroups, by_name.keys(), queue_table.row_by_name.keys()):
        amounts.append(unusable)
        if unusable.fault == _MISSING:
            notes.append(_missing_note(unusable.name))
    return sorted(amounts), notes


def _reported_amounts(queue_table: QueueTable, by_name: Mapping[str, Queue]) -> list[QueueAmounts]:
    nothing = [[[0] * len(ResourceKind) for _ in queue_table.names] for _ in range(3)]
    bounds = queue_table.table(*nothing)
    faults: list[FieldError] = []
    amounts = []
    for row, name in enumerate(queue_table.names):
        spec, status = by_name[name].spec, by_name[name].status
        reported = QueueAmounts(
            name=name,
            parent=spec.parent_queue,
            quota=tuple(bounds.quota[row].tolist()),
            limit=tuple(bounds.limit[row].tolist()),
            fair_share=(),
            allocated=_status_amounts(status.allocated, name, "allocated", faults),
            requested=_status_amounts(status.requested, name, "requested", faults),
            is_quota_only=bool(bounds.is_quota_only) and bounds.is_quota_only[row],
        )
        amounts.append(reported)
    if faults:
        raise ConfigError(faults)
    return amounts


def _with_fair_shares(
    queue_table: QueueTable, amounts: Sequence[QueueAmounts], total: tuple[int, int, int]
) -> list[QueueAmounts]:
    """Return the amounts with the shares that the requests in the status give."""
    nothing = [[[0] * len(ResourceKind) for _ in queue_table.names] for _ in range(3)]
    requested = cut([[*it.requested] for it in amounts], len(ResourceKind))
    shares = fair_share(replace(queue_table.table(*nothing), requested=requested), total)
    return [
        it._replace(fair_share=tuple(share))
        for it, share in zip(amounts, shares.tolist(), strict=True)
    ]


def _missing_note(name: str) -> str:
    """Return the note about a queue that PodGroups name: any user can write such a name."""
    if dns_subdomain_fault(name):
        return (
            f"queue {escaped(name)} does not exist, and PodGroups use it: no queue can have this "
            "name, so move their workloads to another queue"
        )
    return (
        f"queue {name} does not exist, and PodGroups use it: create it again (`trainer-kai queue "
        f"create {name}`), or move their workloads to another queue"
    )


def _unusable_queues(
    podgroups: Iterable[PodGroup], existing: AbstractSet[str], valid: AbstractSet[str]
) -> Iterator[QueueAmounts]:
    """Yield the queues that are not valid, and of which PodGroups use or request resources."""
    by_queue: dict[str, list[ResourcesStatus]] = {}
    for group in podgroups:
        if group.spec.queue and group.spec.queue not in valid:
            by_queue.setdefault(group.spec.queue, []).append(group.status.resources_status)
    unbound = (UNBOUND,) * len(ResourceKind)
    for name, usages in by_queue.items():
        allocated = _total(it.allocated for it in usages)
        requested = _total(it.requested for it in usages)
        if any(allocated) or any(requested):
            fault = _IGNORED if name in existing else _MISSING
            yield QueueAmounts(name, "", unbound, unbound, (), allocated, requested, fault=fault)


def _total(statuses: Iterable[Mapping[str, Quantity]]) -> tuple[int, ...]:
    """Return the sums of amounts by kind; amounts that cannot be read are left out."""
    rows = [_status_amounts(it, "", "", []) for it in statuses]
    return tuple(map(sum, zip(*rows, strict=True)))


def as_text(
    queues: Sequence[QueueAmounts],
    access_by_queue: Mapping[str, EffectiveQueueAccess],
    unannotated: str,
    stopped: Mapping[str, str] = {},
) -> str:
    """Return the tables; *stopped* has what holds a queue."""
    if not queues:
        return "No queues exist. Create one with `trainer-kai queue create`."
    access = {name: _access_text(name, it, unannotated) for name, it in access_by_queue.items()}
    access.update((queue.name, "") for queue in queues if queue.fault)
    access = {name: f"{it}{stopped.get(name, '')}" for name, it in access.items()}
    return "\n\n".join(queue_tables(queues, with_gpus=True, access=access))


def as_json(
    queues: Iterable[QueueAmounts],
    access_by_queue: Mapping[str, EffectiveQueueAccess],
    unannotated: str,
) -> dict[str, Any]:
    """Return the JSON document of `queue list`; unlimited and missing values are null."""
    return {
        "schema": _SCHEMA,
        "queues": [
            {
                "name": queue.name,
                "parent": queue.parent or None,
                "quota": _bounds_json(queue.quota),
                "limit": _bounds_json(queue.limit),
                "fairShare": amounts_json(queue.fair_share) if queue.fair_share else None,
                "allocated": amounts_json(queue.allocated),
                "requested": amounts_json(queue.requested),
                "reclaimGoal": "quota-only" if queue.is_quota_only else "fair-share",
                "access": access_by_queue[queue.name].mode or unannotated,
                "accessSaidBy": access_by_queue[queue.name].decided_by or None,
            }
            for queue in queues
            if not queue.fault
        ],
        "missing": [
            {
                "name": queue.name,
                "exists": queue.fault == _IGNORED,
                "allocated": amounts_json(queue.allocated),
                "requested": amounts_json(queue.requested),
            }
            for queue in queues
            if queue.fault
        ],
    }


def _access_text(name: str, effective: EffectiveQueueAccess, unannotated: str) -> str:
    mode, decided_by = effective
    if mode is None:
        return f"{unannotated} (not annotated)"
    return str(mode) if decided_by == name else f"{mode} from {decided_by}"


def _bounds_json(row: tuple[int, ...]) -> dict[str, Any]:
    return {name: None if it < 0 else it for name, it in amounts_json(row).items()}


def _status_amounts(
    amounts: Mapping[str, Quantity], queue: str, field: str, faults: list[FieldError]
) -> tuple[int, ...]:
    try:
        cpu, memory, gpu = (amounts.get(name, 0) for name in (CPU, MEMORY, GPU))
        return milli(cpu), whole(memory), milli(gpu)
    except QuantityError as error:
        faults.append(FieldError(f"Queue {queue}: status.{field}", str(error)))
        return 0, 0, 0


def queue_tables(
    queues: Sequence[QueueAmounts],
    *,
    with_gpus: bool = False,
    access: Mapping[str, str] = {},
) -> Iterator[str]:
    """Yield a table for each resource with a quota or limit, and for GPUs if there are some.

    With *with_gpus*, as in `queue list`, there is always a GPU table, and names are never cut. The
    GPU table has the column *access*, if given: which namespaces may use a queue.
    """
    has_shares = any(queue.fair_share for queue in queues)
    share_column = ["FAIR SHARE"] if has_shares else []
    for kind in (ResourceKind.GPU, ResourceKind.CPU, ResourceKind.MEMORY):
        is_wanted = with_gpus and kind == ResourceKind.GPU
        if not is_wanted and not any(_is_shown(queue, kind) for queue in queues):
            continue
        access_column = ["ACCESS"] if access and kind == ResourceKind.GPU else []
        headings = ["QUOTA", "LIMIT", *share_column, "USED", "OVER QUOTA", "WAITING"]
        rows = [
            (
                "  " * depth + _name_text(queue),
                _bound_text(queue, queue.quota[kind], kind),
                _bound_text(queue, queue.limit[kind], kind),
                *([_amount_text(queue.fair_share[kind], kind)] if has_shares else []),
                _amount_text(queue.allocated[kind], kind),
                _over_quota_text(queue, kind),
                _amount_text(max(queue.requested[kind] - queue.allocated[kind], 0), kind),
                *([access[queue.name]] if access_column else []),
            )
            for depth, queue in _as_tree(queues)
        ]
        make_table = table if with_gpus else fitted_table
        yield make_table((_TITLES[kind], *headings, *access_column), rows)


def _is_shown(queue: QueueAmounts, kind: ResourceKind) -> bool:
    if kind == ResourceKind.GPU:
        return bool(queue.allocated[kind] or queue.requested[kind] or queue.quota[kind] > 0)
    return queue.quota[kind] > 0 or queue.limit[kind] != UNBOUND


def _as_tree(queues: Sequence[QueueAmounts]) -> Iterator[tuple[int, QueueAmounts]]:
    """Yield each queue below its parent; queues without a root, which take no pods, come last."""
    shown = set()
    for depth, queue in _descendants(queues, "", 0):
        shown.add(queue.name)
        yield depth, queue
    yield from ((0, queue) for queue in queues if queue.name not in shown)


def _descendants(
    queues: Sequence[QueueAmounts], parent: str, depth: int
) -> Iterator[tuple[int, QueueAmounts]]:
    for queue in queues:
        if queue.parent == parent:
            yield depth, queue
            yield from _descendants(queues, queue.name, depth + 1)


def _name_text(queue: QueueAmounts) -> str:
    mark = queue.fault or ("quota-only" if queue.is_quota_only else "")
    return f"{queue.name} ({mark})" if mark else queue.name


def _bound_text(queue: QueueAmounts, amount: int, kind: ResourceKind) -> str:
    return "" if queue.fault else _amount_text(amount, kind)


def _amount_text(amount: float, kind: ResourceKind) -> str:
    if amount == UNBOUND:
        return "-"
    if kind == ResourceKind.MEMORY:
        return f"{_number_text(amount / 2**30, 1)}Gi"
    # Queues are charged for parts of GPUs in hundredths.
    return _number_text(amount / THOUSANDTHS, 2 if kind == ResourceKind.GPU else 1)


def _number_text(number: float, decimals: int) -> str:
    """Return a number with some decimals; below 1 with three, so that 4m CPU are not 0."""
    if number >= 1 or not number:
        return f"{number:.{decimals}f}".rstrip("0").removesuffix(".")
    return f"{number:.3f}".rstrip("0").removesuffix(".") if number >= _SMALL else f"<{_SMALL}"


def _over_quota_text(queue: QueueAmounts, kind: ResourceKind) -> str:
    if queue.fault:
        return ""
    quota = queue.quota[kind]
    over_quota = max(queue.allocated[kind] - quota, 0) if quota != UNBOUND else 0
    return _amount_text(over_quota, kind) if over_quota else "-"


def amounts_json(row: tuple[float, ...]) -> Json:
    return {name: number_json(row[kind], unit) for name, kind, unit in _RESOURCE_KINDS}


def number_json(amount: float, unit: int) -> float:
    """Return an amount in a larger unit, with at most three decimals."""
    number = round(amount / unit, 3)
    return int(number) if number == int(number) else number
