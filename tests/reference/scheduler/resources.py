"""Amounts of resources as dicts: rules 1 to 3 and 27g, and what a pod requests."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

from trainer_kai.api.quantity import milli, whole

Amounts: TypeAlias = dict[str, int]  # CPU in thousandths, all else in units
Amount: TypeAlias = int | Fraction
# What a queue knows: CPU, memory and GPU, of which it may have parts.
QueueAmounts: TypeAlias = tuple[Amount, Amount, Amount]

QUEUE_RESOURCES: Final = ("cpu", "memory", "gpu")
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
_MIG: Final = "nvidia.com/mig-"
_MIG_PROFILE: Final = re.compile(r"nvidia\.com/mig-(?:([0-9]+)c\.)?([0-9]+)g\.[0-9]+gb(\..+)?")


def parse_quantities(quantities: Mapping[str, Any]) -> Amounts:
    """Read quantities."""
    return {
        name: milli(quantity) if name == "cpu" else whole(quantity)
        for name, quantity in quantities.items()
    }


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """Return what a pod asks for: all its containers, or one init container if that is more."""
    beside: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers", ()):
        needs = _of(container)
        if container.get("restartPolicy") == "Always":
            beside = added(beside, needs)
            most = _larger(most, beside)
        else:
            most = _larger(most, added(beside, needs))
    for container in spec.get("containers", ()):
        beside = added(beside, _of(container))
    most = _larger(most, beside)
    most = added(most, parse_quantities(spec.get("overhead", {})))
    return added(most, {"pods": 1})


def queue_amounts(amounts: Mapping[str, int]) -> QueueAmounts:
    """Return what a queue knows of amounts."""
    found = gpu_count(amounts)
    for name, amount in amounts.items():
        profile = _MIG_PROFILE.fullmatch(name)
        found += int(profile[1] or profile[2]) * amount if profile else 0
    return amounts.get("cpu", 0), amounts.get("memory", 0), found


def gpu_count(amounts: Mapping[str, int]) -> int:
    """Return how many whole GPUs, of whatever make."""
    return sum(amounts.get(name, 0) for name in GPU_RESOURCES)


def is_mig(name: str) -> bool:
    """Say whether a resource is a MIG profile."""
    return name.startswith(_MIG)


def added(some: Mapping[str, int], more: Mapping[str, int]) -> Amounts:
    """Return the sum."""
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def subtracted(some: Mapping[str, int], less: Mapping[str, int]) -> Amounts:
    """Return the difference; it may be negative."""
    return {name: some.get(name, 0) - less.get(name, 0) for name in {**some, **less}}


def fits(needs: Mapping[str, int], *rooms: Mapping[str, int]) -> bool:
    """Say whether the needs fit into all that is free together; no need needs no room."""
    return all(
        need <= sum(room.get(name, 0) for room in rooms) for name, need in needs.items() if need
    )


def _of(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources", {})
    return parse_quantities({**resources.get("limits", {}), **resources.get("requests", {})})


def _larger(some: Amounts, other: Amounts) -> Amounts:
    names: Iterable[str] = {**some, **other}
    return {name: max(some.get(name, 0), other.get(name, 0)) for name in names}
