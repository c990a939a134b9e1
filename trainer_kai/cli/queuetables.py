"""Queues as a tree, in a table for each resource that somebody bounds; and Queues as they are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from scheduler.core.model import UNBOUND, Kind
from scheduler.state.queues import QueueRows
from trainer_kai.api.names import CPU, GPU, MEMORY
from trainer_kai.api.quantity import Quantity, QuantityError, milli, whole
from trainer_kai.api.queue import Queue
from trainer_kai.cli.ending import QueueEnd
from trainer_kai.cli.protocol import amounts_json
from trainer_kai.cli.table import fitted
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.access import Said

__all__ = ["as_json", "as_text", "queue_tables", "read_queues"]

_SCHEMA: Final = "trainer-kai/queues/v1"

_UNTOLD: Final[Mapping[str, str]] = {}
_TITLES: Final = {Kind.GPU: "GPUS", Kind.CPU: "CPUS", Kind.MEMORY: "MEMORY"}


def read_queues(queues: Iterable[Queue]) -> tuple[list[QueueEnd], list[str]]:
    """Return what queues say, and what is to be told of them; raise for what cannot be read."""
    by_name = {queue.metadata.name: queue for queue in queues}
    rows = QueueRows(by_name)
    bounds = rows.table(*([[0] * len(Kind) for _ in rows.names] for _ in range(3)))
    faults: list[FieldError] = []
    ends = [
        QueueEnd(
            name=name,
            parent=by_name[name].spec.parent_queue,
            quota=tuple(quota),
            limit=tuple(limit),
            fair_share=(),
            allocated=_read(by_name[name], "allocated", faults),
            requested=_read(by_name[name], "requested", faults),
            is_quota_only=is_quota_only,
        )
        for name, quota, limit, is_quota_only in zip(
            rows.names,
            bounds.quota.tolist(),
            bounds.limit.tolist(),
            bounds.is_quota_only or [False] * len(rows.names),
            strict=True,
        )
    ]
    if faults:
        raise ConfigError(faults)
    notes = [*dict.fromkeys(stray.told for stray in rows.strays)]
    silent = sorted(name for name in rows.names if not by_name[name].status.allocated)
    if silent:
        notes.append(f"the scheduler has not written what these have: {', '.join(silent)}")
    return sorted(ends), notes


def as_text(queues: Sequence[QueueEnd], said: Mapping[str, Said], unannotated: str) -> str:
    """Return what people read."""
    if not queues:
        return "there are no queues"
    access = {name: _access(name, it, unannotated) for name, it in said.items()}
    return "\n\n".join(queue_tables(queues, with_gpus=True, access=access))


def as_json(
    queues: Iterable[QueueEnd], said: Mapping[str, Said], unannotated: str
) -> dict[str, Any]:
    """Return plain values; without a bound, and without an annotation, it is null."""
    return {
        "schema": _SCHEMA,
        "queues": [
            {
                "name": queue.name,
                "parent": queue.parent or None,
                "quota": _bounds(queue.quota),
                "limit": _bounds(queue.limit),
                "allocated": amounts_json(queue.allocated),
                "requested": amounts_json(queue.requested),
                "reclaimGoal": "quota-only" if queue.is_quota_only else "fair-share",
                "access": said[queue.name].access or unannotated,
                "accessSaidBy": said[queue.name].by or None,
            }
            for queue in queues
        ],
    }


def _access(name: str, said: Said, unannotated: str) -> str:
    """Say whether a queue is open or closed, and by what."""
    if said.access is None:
        return f"{unannotated} (not annotated)"
    return str(said.access) if said.by == name else f"{said.access} from {said.by}"


def _bounds(row: tuple[int, ...]) -> dict[str, Any]:
    return {name: None if it < 0 else it for name, it in amounts_json(row).items()}


def _read(queue: Queue, field: str, faults: list[FieldError]) -> tuple[int, ...]:
    """Return amounts of a status by kind; note what cannot be read."""
    has: Mapping[str, Quantity] = getattr(queue.status, field)
    try:
        return milli(has.get(CPU, 0)), whole(has.get(MEMORY, 0)), milli(has.get(GPU, 0))
    except QuantityError as error:
        faults.append(FieldError(f"Queue {queue.metadata.name}: status.{field}", str(error)))
        return 0, 0, 0


def queue_tables(
    queues: Sequence[QueueEnd], *, with_gpus: bool = False, access: Mapping[str, str] = _UNTOLD
) -> Iterator[str]:
    """Yield a table for each kind that somebody bounds, and for GPUs where there are some.

    That of GPUs says who may use a queue, where that is given.
    """
    has_shares = any(queue.fair_share for queue in queues)
    for kind in (Kind.GPU, Kind.CPU, Kind.MEMORY):
        is_wanted = with_gpus and kind == Kind.GPU
        if not is_wanted and not any(_is_told(queue, kind) for queue in queues):
            continue
        rows = [
            (
                "  " * depth + queue.name + " (quota-only)" * queue.is_quota_only,
                _amount(queue.quota[kind], kind),
                _amount(queue.limit[kind], kind),
                *([_amount(queue.fair_share[kind], kind)] if has_shares else []),
                _amount(queue.allocated[kind], kind),
                _borrowed(queue, kind),
                _amount(max(queue.requested[kind] - queue.allocated[kind], 0), kind),
                *([access[queue.name]] if access and kind == Kind.GPU else []),
            )
            for depth, queue in _tree(queues)
        ]
        shares = ["FAIR SHARE"] if has_shares else []
        told = ["ACCESS"] if access and kind == Kind.GPU else []
        yield fitted(
            (_TITLES[kind], "QUOTA", "LIMIT", *shares, "USED", "BORROWED", "WAITING", *told), rows
        )


def _is_told(queue: QueueEnd, kind: Kind) -> bool:
    if kind == Kind.GPU:
        return bool(queue.allocated[kind] or queue.requested[kind] or queue.quota[kind] > 0)
    return queue.quota[kind] > 0 or queue.limit[kind] != UNBOUND


def _tree(queues: Sequence[QueueEnd]) -> Iterator[tuple[int, QueueEnd]]:
    """Yield each queue below its parent; those without a way up, which take nobody, come last."""
    shown = set()
    for depth, queue in _below(queues, "", 0):
        shown.add(queue.name)
        yield depth, queue
    yield from ((0, queue) for queue in queues if queue.name not in shown)


def _below(queues: Sequence[QueueEnd], parent: str, depth: int) -> Iterator[tuple[int, QueueEnd]]:
    for queue in queues:
        if queue.parent == parent:
            yield depth, queue
            yield from _below(queues, queue.name, depth + 1)


def _amount(amount: float, kind: Kind) -> str:
    if amount == UNBOUND:
        return "-"
    if kind == Kind.MEMORY:
        return f"{_number(amount / 2**30)}Gi"
    return _number(amount / 1000)


def _number(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _borrowed(queue: QueueEnd, kind: Kind) -> str:
    quota = queue.quota[kind]
    more = max(queue.allocated[kind] - quota, 0) if quota != UNBOUND else 0
    return _amount(more, kind) if more else "-"
