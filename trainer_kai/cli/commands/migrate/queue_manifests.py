"""Queues from quantities: quota, limit and weight, in the units of a Queue. Pure.

Amounts are thousandths of a GPU or a CPU, and bytes of memory, until they are written: GPU,
millicores, and megabytes of 10^6 bytes. Memory is rounded up to a megabyte when it is read, so that
a sum is the sum of what is written.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from trainer_kai.api.names import (
    ACCESS,
    AMD_GPU,
    CPU,
    DEFAULT_PARENT_QUEUE,
    DEFAULT_QUEUE,
    GPU,
    MEMORY,
)
from trainer_kai.api.quantity import Quantity, QuantityError, milli, whole
from trainer_kai.api.resources import QUEUES
from trainer_kai.api.syntax import label_value_fault
from trainer_kai.errors import FieldError
from trainer_kai.policy.queueing.queue_access import QueueAccessMode

UNLIMITED: Final = -1
MILLI: Final = 1000
RESOURCES: Final = ("gpu", "cpu", "memory")
_FIELDS: Final = {GPU: "gpu", AMD_GPU: "gpu", CPU: "cpu", MEMORY: "memory"}
_TITLES: Final = {
    "gpu": ("GPU", ""),
    "cpu": ("CPU", " millicores"),
    "memory": ("memory", " megabytes"),
}
_MEGABYTE: Final = 10**6
INSTALLED_QUEUES: Final = (DEFAULT_PARENT_QUEUE, DEFAULT_QUEUE)


class QueueShare(NamedTuple):
    quota: int
    limit: int
    weight: float = 1


FREE: Final = QueueShare(UNLIMITED, UNLIMITED)


def queue_field(resource: str) -> str:
    """Return the field of a Queue for a resource of pods; "" if no field counts it."""
    return _FIELDS.get(resource, "")


def amount_of(resource: str, quantity: Quantity, path: str, faults: list[FieldError]) -> int:
    """Return an amount; add a fault for an invalid or negative one."""
    try:
        if queue_field(resource) == "memory":
            amount = -(-whole(quantity) // _MEGABYTE) * _MEGABYTE
        else:
            amount = milli(quantity)
    except QuantityError as error:
        faults.append(FieldError(path, str(error)))
        return 0
    if amount < 0:
        faults.append(FieldError(path, f"{quantity} must not be negative"))
    return max(amount, 0)


def queue_name_fault(name: str) -> str:
    """Return why a name cannot be the name of a Queue that a move makes; "" if it can."""
    if name in INSTALLED_QUEUES:
        return f"Queue {name} belongs to the installation of trainer-kai"
    if fault := label_value_fault(name):
        return f"{fault}, because pods name their queue in a label"
    return ""


def queue_manifest(
    name: str,
    parent: str,
    shares: Mapping[str, QueueShare],
    access: QueueAccessMode | None,
    priority: int | None = None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if access is not None:
        metadata["annotations"] = {ACCESS: str(access)}
    spec: dict[str, Any] = {"parentQueue": parent} if parent else {}
    if priority is not None:
        spec["priority"] = priority
    spec["resources"] = {it: _resource_fields(it, shares[it]) for it in RESOURCES}
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": metadata,
        "spec": spec,
    }


def shares_text(manifest: Mapping[str, Any]) -> str:
    return "; ".join(_phrases(manifest.get("spec")))


def _phrases(spec: Any) -> Iterator[str]:
    if isinstance(spec, Mapping) and spec.get("parentQueue"):
        yield f"parent {spec['parentQueue']}"
    for name, (title, unit) in _TITLES.items():
        share = _at(_at(spec, "resources"), name)
        quota, limit = share.get("quota", 0), share.get("limit", 0)
        if quota == UNLIMITED and limit == UNLIMITED:
            yield f"{title} unlimited"
        else:
            owned = "unlimited" if quota == UNLIMITED else f"{quota}{unit}"
            bound = "no limit" if limit == UNLIMITED else f"limit {limit}{unit}"
            yield f"{title} quota {owned}, {bound}"


def _at(fields: Any, name: str) -> Mapping[str, Any]:
    """Return the object in a field; an empty one for anything else."""
    found = fields.get(name) if isinstance(fields, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _resource_fields(name: str, share: QueueShare) -> dict[str, Any]:
    weight = int(share.weight) if share.weight == int(share.weight) else share.weight
    return {
        "quota": _in_unit(name, share.quota),
        "limit": _in_unit(name, share.limit),
        "overQuotaWeight": weight,
    }


def _in_unit(name: str, amount: int) -> float:
    if amount == UNLIMITED or name == "cpu":
        return amount
    if name == "memory":
        return amount // _MEGABYTE
    return amount // MILLI if amount % MILLI == 0 else amount / MILLI
