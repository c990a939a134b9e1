"""Whether a PodGroup requests more than the limit or quota of its queue, or of a parent queue.

A limit applies to every workload, a quota to non-preemptible workloads. Queues count CPU, memory
and devices; fractions of devices are not counted here. For a workload whose pods start one by one,
`quota_shortage` compares all its pods with the part of the quota that is free.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Final, NamedTuple

from trainer_kai.api.gpu_requests import mig_slices
from trainer_kai.api.kai_kinds import ABSENT_RESOURCE, QueueResource, QueueResources, QueueSpec
from trainer_kai.api.names import CPU, MEMORY, PREEMPTIBILITY
from trainer_kai.api.quantity import Quantity, QuantityError, format_bytes, format_milli, milli
from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.api.text import capitalized
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.pods.requests import ResourceAmounts

_GPU: Final = "GPU"
_UNITS: Final = {CPU: 1, MEMORY: 10**9, _GPU: 1000}  # thousandths of a queue's unit
_KINDS: Final = {CPU: "cpu", MEMORY: "memory", _GPU: "gpu"}  # fields of `spec.resources`
_FIELD_UNITS: Final = {CPU: "millicores", MEMORY: "megabytes"}
_LOOKS_LIKE_OTHER_UNIT: Final = 1000  # a smaller number was probably meant as cores, or as GiB
_RESOURCE_NAMES: Final = {CPU: "CPU", MEMORY: "memory", _GPU: _GPU}
_MAX_DEPTH: Final = 100
_MAX_BOUND: Final = Decimal(10**15)  # no cluster has as much
_OVER_LIMIT: Final = (
    "the pods that must start together request {requested}, and the limit of {queue} is {bound}. "
    "{Less}, or name another queue"
)
_OVER_QUOTA: Final = (
    "the TrainJob is non-preemptible and requests {requested}, and the quota of {queue} is "
    f"{{bound}}. Set {PREEMPTIBILITY}: {PREEMPTIBILITIES[0]}, name another queue, or {{less}}"
)
_MESSAGES: Final = {
    "limit": (FindingCode.OVER_LIMIT, _OVER_LIMIT),
    "quota": (FindingCode.OVER_QUOTA, _OVER_QUOTA),
}


class _QueueBound(NamedTuple):
    """The most that one queue may use of one resource, in thousandths."""

    queue: str
    name: str
    most: Decimal
    path: str  # of the field; of the resource if the queue does not name it, and may use none


class QuotaShortage(NamedTuple):
    queue: str
    requested: str
    quota: str
    used: str  # by non-preemptible PodGroups


def quota_shortage(
    needs: ResourceAmounts,
    gpus: tuple[str, ...],
    queue: str,
    queues: Mapping[str, QueueSpec],
    used: Mapping[str, Mapping[str, Quantity]],
) -> QuotaShortage | None:
    """Return the first quota, from the queue upwards, that non-preemptible pods do not fit into.

    *used* is `status.allocatedNonPreemptible` of each queue.
    """
    counted = _queue_resources(needs, gpus)
    for bound in _bounds(queue, queues, "quota"):
        requested = counted.get(bound.name, 0)
        in_use = _queue_resources(_thousandths(used.get(bound.queue, {})), gpus)[bound.name]
        if requested > 0 and requested > bound.most - in_use:
            return QuotaShortage(
                bound.queue,
                _amount_text(bound.name, requested),
                _bound_text(bound),
                _amount_text(bound.name, in_use),
            )
    return None


def over_bounds(
    path: str,
    needs: ResourceAmounts,
    gpus: tuple[str, ...],
    queue: str,
    queues: Mapping[str, QueueSpec],
    field: str,
) -> Iterator[Finding]:
    """Only the first limit or quota, from the queue upwards."""
    counted = _queue_resources(needs, gpus)
    for bound in _bounds(queue, queues, field):
        requested = counted.get(bound.name, 0)
        if requested > bound.most:
            code, template = _MESSAGES[field]
            less = _request_text(bound)
            message = template.format(
                requested=_amount_text(bound.name, requested),
                queue=_queue_text(bound.queue, queue),
                bound=_bound_text(bound),
                less=less,
                Less=capitalized(less),
            )
            yield Finding(path, message, blocks=True, code=code)
            return


def _queue_resources(needs: ResourceAmounts, gpus: tuple[str, ...]) -> Mapping[str, int]:
    found = {CPU: needs.get(CPU, 0), MEMORY: needs.get(MEMORY, 0), _GPU: 0}
    for name, amount in needs.items():
        found[_GPU] += amount * (1 if name in gpus else mig_slices(name))
    return found


def _thousandths(amounts: Mapping[str, Quantity]) -> ResourceAmounts:
    """Return the amounts of a status; an invalid one counts as 0."""
    found = dict.fromkeys(amounts, 0)
    for name, quantity in amounts.items():
        with suppress(QuantityError):
            found[name] = milli(quantity)
    return found


def _bounds(queue: str, queues: Mapping[str, QueueSpec], field: str) -> Iterator[_QueueBound]:
    """From the queue upwards, until a parent is unknown."""
    name = queue
    for _ in range(_MAX_DEPTH):
        spec = queues.get(name)
        if spec is None:
            return
        resources = spec.resources or QueueResources()
        for kind, share in (
            (_GPU, resources.gpu),
            (CPU, resources.cpu),
            (MEMORY, resources.memory),
        ):
            number = _bound_value(share, field)
            if number is not None:
                path = f"spec.resources.{_KINDS[kind]}"
                path += "" if share is ABSENT_RESOURCE else f".{field}"
                yield _QueueBound(name, kind, number * _UNITS[kind], path)
        name = spec.parent_queue


def _bound_value(share: QueueResource, field: str) -> Decimal | None:
    """None if it is unlimited or invalid."""
    number = share.limit if field == "limit" else share.quota
    return min(number, _MAX_BOUND) if number.is_finite() and number >= 0 else None


def _queue_text(name: str, queue: str) -> str:
    return f"queue {name}" if name == queue else f"queue {name}, a parent of {queue},"


def _amount_text(name: str, thousandths: int) -> str:
    if name == MEMORY:
        return f"{format_bytes(-(-thousandths // 1000))} memory"
    return f"{format_milli(thousandths)} {_RESOURCE_NAMES[name]}"


def _request_text(bound: _QueueBound) -> str:
    if bound.most > 0:
        return f"request at most {_amount_text(bound.name, int(bound.most))}"
    return f"request no {_RESOURCE_NAMES[bound.name]}"


def _bound_text(bound: _QueueBound) -> str:
    """With a note if it is 0 by default, or if the unit may be mistaken."""
    amount = _amount_text(bound.name, int(bound.most))
    if bound.path.endswith(_KINDS[bound.name]):
        return f"{amount} ({bound.path} is absent)"
    if not bound.most:
        return f"{amount} ({bound.path} is absent or 0)" if bound.path.endswith("limit") else amount
    unit, number = _FIELD_UNITS.get(bound.name), bound.most / _UNITS[bound.name]
    if unit is None or number >= _LOOKS_LIKE_OTHER_UNIT:
        return amount
    return f"{amount} ({bound.path}: {number:g} is in {unit})"
