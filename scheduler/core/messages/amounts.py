"""Amounts in messages: resources with their units, shares of GPUs, and GPUs in the form of MIG.

Shares are parts of one GPU with three decimals, because a queue is charged in GPUs as well. A
request for memory of a GPU is named in MiB, as the user has written it.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import MigRefusal, ShareShortage
from scheduler.core.model.resources import (
    MAX_QUEUE_REQUEST,
    MAX_REQUEST,
    NONE,
    ResourceColumns,
    ResourceKind,
)
from scheduler.core.model.snapshot import Snapshot
from trainer_kai.api.text import counted, first_listed

_MIB: Final = 2**20
_GIB: Final = 2**30
KIND_NAMES: Final = {
    ResourceKind.CPU: "CPU",
    ResourceKind.MEMORY: "memory",
    ResourceKind.GPU: "GPU",
}

_WHOLE: Final = 1000
_LAST_SECOND: Final = 253_402_300_799  # the last second that a date has a name for
# Of one node, and of several.
_NO_SHARES: Final = (
    "is a MIG node, which takes no shares of GPUs",
    "are MIG nodes, which take no shares of GPUs",
)
_NO_WHOLE_GPUS: Final = (
    "is a MIG node (label nvidia.com/mig.strategy: mixed), which takes no whole GPUs",
    "are MIG nodes (label nvidia.com/mig.strategy: mixed), which take no whole GPUs",
)
_NO_PROFILES: Final = ("takes no MIG profiles", "take no MIG profiles")
_MIG_REFUSALS: Final = {
    MigRefusal.NO_MIG_NODE: "no MIG node",
    MigRefusal.SINGLE_STRATEGY: "label nvidia.com/mig.strategy: single",
    MigRefusal.LEGACY_PODS: "pods there request MIG profiles by annotation",
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
    if resource == resources.pods:
        return counted(number, "place for pods", "places for pods")
    kind = resources.kinds[resource]
    if kind == NONE or (kind == ResourceKind.GPU and resource not in resources.gpus):
        return f"{number} {resources.names[resource]}"
    if kind == ResourceKind.GPU and resources.gpus[1:]:
        return f"{_short(number / 1000)} {resources.names[resource]}"
    return amount_of_kind(ResourceKind(kind), number)


def at_least(kind: ResourceKind, number: int) -> str:
    """Round up, to what is enough; the number may have been cut."""
    if kind == ResourceKind.MEMORY:
        step = _MIB if 0 < number < _GIB / 100 else _GIB
        number = -(-(-(-number * 1000 // step) * step) // 1000)
    return ("at least " if number >= MAX_QUEUE_REQUEST else "") + amount_of_kind(kind, number)


def amount_of_kind(kind: ResourceKind, number: int) -> str:
    if kind != ResourceKind.MEMORY:
        return f"{_short(number / 1000)} {KIND_NAMES[kind]}"
    if 0 < number < _GIB / 100:
        return f"{_short(number / _MIB)} MiB memory"
    return f"{_short(number / _GIB)} GiB memory"


def parts_of_one(thousandths: int) -> str:
    return _short(thousandths / 1000)


def _short(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


def timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def requested_share(signature: SchedulingSignature) -> str:
    """Return the shares of GPUs that a pod requests; "" for no shares."""
    devices = signature.shared_devices
    if not devices:
        return ""
    if signature.device_memory:
        return f"{signature.device_memory} MiB {_of_gpus(devices)}"
    return f"{_parts(signature.device_share)} {_of_gpus(devices)}"


def needed_shares(
    signature: SchedulingSignature, shortage: ShareShortage | None, pods: int
) -> Iterator[str]:
    """Yield what so many pods need of what shares of GPUs are short of."""
    if shortage is None:
        return
    if shortage.insufficient:
        yield requested_share(signature) + ("" if pods == 1 else " for each")
    if shortage.places is not None:
        # How many more pods need depends on which GPUs they share.
        yield _places(shortage.places.needed) if pods == 1 else "places for reservation pods"


def free_shares(
    snapshot: Snapshot, signature: SchedulingSignature, shortage: ShareShortage | None, nodes: int
) -> Iterator[str]:
    """Yield what is free of what shares of GPUs are short of, on one node or on several."""
    if shortage is None:
        return
    if shortage.insufficient:
        yield _free_share(snapshot, signature, shortage, nodes)
    if shortage.places is not None:
        here, needed, free = shortage.places
        amount = f"{free} of {_places(needed)}"
        on_one = "on one node" if here == nodes else "on a node with such GPUs"
        yield amount if nodes == 1 else f"at most {amount} {on_one}"


def _free_share(
    snapshot: Snapshot, signature: SchedulingSignature, shortage: ShareShortage, nodes: int
) -> str:
    devices = signature.shared_devices
    if not shortage.largest_free or shortage.largest_node == NONE:
        return "no share of a GPU" if devices == 1 else f"a share of fewer than {devices} GPUs"
    node = snapshot.nodes.names[shortage.largest_node]
    memory = int(snapshot.nodes.gpu_memory[shortage.largest_node])
    amount = f"{_parts(shortage.largest_free)} {_of_gpus(devices)} free"
    if not (signature.device_memory and memory):
        return f"{amount} on {node}" if nodes == 1 else f"at most {amount}, on {node}"
    # The node that is nearest to a fit: another one, with less memory, may have more free.
    needed = -(-100 * signature.device_memory // memory) * 10
    text = f"{amount} on {node}" if nodes == 1 else f"at best {amount}, on {node}"
    return f"{text}, where the pod needs {_parts(needed)}"


def free_shares_in_total(
    signature: SchedulingSignature, shortage: ShareShortage, pods: int
) -> str | None:
    """Return what all nodes have free, if it is more than one node has and too little for *pods*.

    What one node has is what a pod could get of its GPUs.
    """
    devices = signature.shared_devices
    if not shortage.insufficient:
        return None
    on_one, needed = (number * devices for number in (shortage.largest_free, shortage.requested))
    if not on_one < shortage.total_free < needed * pods:
        return None
    return f"{parts_of_one(shortage.total_free)} GPU"


def too_small_gpus(snapshot: Snapshot, signature: SchedulingSignature) -> str:
    """Return why no node has the GPUs of a pod that requests shares; "" if numbers say it."""
    if not signature.shared_devices:
        return ""
    if not snapshot.resources.gpus:
        return "no node has a GPU"
    memory = int(snapshot.nodes.gpu_memory.max(initial=0))
    return f"no GPU has more than {memory} MiB" if 0 < memory < signature.device_memory else ""


def form_reason(
    signature: SchedulingSignature, refusals: Mapping[MigRefusal, int], *, is_one: bool
) -> str:
    number = 0 if is_one else 1
    if signature.requests_mig:
        causes = sorted(refusals, key=lambda it: (-refusals[it], it))
        return f"{_NO_PROFILES[number]} ({first_listed(_MIG_REFUSALS[it] for it in causes)})"
    return (_NO_SHARES if signature.shared_devices else _NO_WHOLE_GPUS)[number]


def form_remedies(refusals: Mapping[MigRefusal, int]) -> Iterator[str]:
    """Yield what lets nodes offer GPUs in the form that a pod requests, the nearest first."""
    if MigRefusal.LEGACY_PODS in refusals:
        yield "all pods of a node that request MIG profiles by annotation have terminated"
    if {*refusals} != {MigRefusal.LEGACY_PODS}:
        yield "the pod requests GPUs in the form that a node offers"


def kai_insufficient_shares(signature: SchedulingSignature) -> str:
    return "GPU memory" if signature.device_memory else "GPUs"


def _of_gpus(devices: int) -> str:
    return "of a GPU" if devices == 1 else f"of each of {devices} GPUs"


def _places(number: int) -> str:
    return counted(number, "place for a reservation pod", "places for reservation pods")


def _parts(thousandths: int) -> str:
    return "all" if thousandths == _WHOLE else parts_of_one(thousandths)
