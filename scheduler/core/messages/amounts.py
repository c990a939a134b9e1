"""Amounts and lists in messages: resources with their units, and the first of many names."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from scheduler.core.model.resources import (
    MAX_QUEUE_REQUEST,
    MAX_REQUEST,
    NONE,
    ResourceColumns,
    ResourceKind,
)

_MAX_LISTED: Final = 3  # of names, bounds, taints, labels and resources
_MIB: Final = 2**20
_GIB: Final = 2**30
KIND_NAMES: Final = {
    ResourceKind.CPU: "CPU",
    ResourceKind.MEMORY: "memory",
    ResourceKind.GPU: "GPU",
}


def resource_request(resources: ResourceColumns, resource: int, number: int) -> str:
    """Return what a pod requests; a number that was cut is not named."""
    if number < MAX_REQUEST:
        return resource_amount(resources, resource, number)
    kind = resources.kinds[resource]
    is_named = kind != NONE and (kind != ResourceKind.GPU or resource in resources.gpus)
    name = KIND_NAMES[ResourceKind(kind)] if is_named else resources.names[resource]
    return f"more {name} than any node can have"


def resource_amount(resources: ResourceColumns, resource: int, number: int) -> str:
    """Return an amount of a resource of nodes."""
    if resource == resources.pods:
        return f"{number} place{'' if number == 1 else 's'} for pods"
    kind = resources.kinds[resource]
    if kind == NONE or (kind == ResourceKind.GPU and resource not in resources.gpus):
        return f"{number} {resources.names[resource]}"
    if kind == ResourceKind.GPU and resources.gpus[1:]:
        return f"{_short(number / 1000)} {resources.names[resource]}"
    return amount_of_kind(ResourceKind(kind), number)


def at_least(kind: ResourceKind, number: int) -> str:
    """Return a sufficient amount, rounded up; it may have been cut."""
    if kind == ResourceKind.MEMORY:
        step = _MIB if 0 < number < _GIB / 100 else _GIB
        number = -(-(-(-number * 1000 // step) * step) // 1000)
    return ("at least " if number >= MAX_QUEUE_REQUEST else "") + amount_of_kind(kind, number)


def amount_of_kind(kind: ResourceKind, number: int) -> str:
    """Return an amount of a resource of queues."""
    if kind != ResourceKind.MEMORY:
        return f"{_short(number / 1000)} {KIND_NAMES[kind]}"
    if 0 < number < _GIB / 100:
        return f"{_short(number / _MIB)} MiB memory"
    return f"{_short(number / _GIB)} GiB memory"


def parts_of_one(thousandths: int) -> str:
    """Return a number of thousandths as a decimal number."""
    return _short(thousandths / 1000)


def joined_by_or(parts: list[str]) -> str:
    """Return alternatives."""
    return ", ".join([*parts[:-1], f"or {parts[-1]}"] if parts[1:] else parts)


def first_listed(parts: Iterable[str], between: str = ", ") -> str:
    """Return the first of some parts, and whether there are more."""
    first = [*islice(parts, _MAX_LISTED + 1)]
    return between.join(first[:_MAX_LISTED]) + (", …" if first[_MAX_LISTED:] else "")


def _short(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")
