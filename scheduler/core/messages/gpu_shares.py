"""Words for shares of GPUs and for MIG: what a pod requests, and what nodes have of it.

Numbers are parts of one GPU with three decimals, because a queue is charged in GPUs as well.
A request for memory is named in MiB, as the user has written it.
"""

from typing import Final

import numpy as np

from scheduler.core.messages.amounts import first_listed, parts_of_one
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import ShareShortage
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import GpuMode, Snapshot

__all__ = [
    "form_reason",
    "free_share",
    "free_shares_in_total",
    "kai_insufficient_shares",
    "requested_share",
    "too_small_gpus",
]

_WHOLE: Final = 1000
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
# Why a node takes no MIG profiles.
_NO_MIG_NODE: Final = "no MIG node"
_SINGLE: Final = "label nvidia.com/mig.strategy: single"
_CLOSED: Final = "pods there request MIG profiles by annotation"


def requested_share(signature: SchedulingSignature) -> str:
    """Return the shares of GPUs that a pod requests; "" for no shares."""
    devices = signature.shared_devices
    if not devices:
        return ""
    of_gpus = "of a GPU" if devices == 1 else f"of each of {devices} GPUs"
    if signature.device_memory:
        return f"{signature.device_memory} MiB {of_gpus}"
    return f"{_parts(signature.device_share)} {of_gpus}"


def free_share(
    snapshot: Snapshot, signature: SchedulingSignature, shortage: ShareShortage, nodes: int
) -> str:
    """Return the most that is free of one GPU, on one node or on the best of several."""
    if not shortage.largest_free or shortage.largest_node == NONE:
        return "no share of a GPU"
    node, devices = snapshot.nodes.names[shortage.largest_node], signature.shared_devices
    amount = f"{_parts(shortage.largest_free)} of {'a' if devices == 1 else 'one'} GPU free"
    text = f"{amount} on {node}" if nodes == 1 else f"at most {amount}, on {node}"
    memory = int(snapshot.nodes.gpu_memory[shortage.largest_node])
    needed = signature.device_share
    if signature.device_memory and memory:
        needed = -(-100 * signature.device_memory // memory) * 10
        text = f"{text}, where the pod needs {_parts(needed)}"
    if devices == 1 and shortage.insufficient == nodes and shortage.largest_free >= needed:
        text = f"{text}, but no place for the reservation pod of the GPU"
    return text


def free_shares_in_total(
    signature: SchedulingSignature, shortage: ShareShortage, pods: int
) -> str | None:
    """Return what all nodes have free, if it is more than one GPU has and too little for *pods*."""
    needed = shortage.requested * signature.shared_devices * pods
    if not shortage.insufficient:
        return None
    if not shortage.largest_free < shortage.total_free < needed:
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


def form_reason(snapshot: Snapshot, signature: SchedulingSignature, *, is_one: bool) -> str:
    """Return why nodes do not offer GPUs in the form that a pod requests."""
    number = 0 if is_one else 1
    if signature.requests_mig:
        mode, closed = snapshot.nodes.gpu_mode, snapshot.nodes.closed_to_mig
        causes = {
            _NO_MIG_NODE: np.count_nonzero(mode == GpuMode.WHOLE),
            _SINGLE: np.count_nonzero(mode == GpuMode.MIG_SINGLE),
            _CLOSED: np.count_nonzero(closed & (mode != GpuMode.WHOLE)),
        }
        named = sorted(filter(causes.get, causes), key=lambda it: -causes[it])
        return f"{_NO_PROFILES[number]} ({first_listed(named)})"
    return (_NO_SHARES if signature.shared_devices else _NO_WHOLE_GPUS)[number]


def kai_insufficient_shares(signature: SchedulingSignature) -> str:
    """Return what nodes have too little of, as KAI names it."""
    return "GPU memory" if signature.device_memory else "GPUs"


def _parts(thousandths: int) -> str:
    return "all" if thousandths == _WHOLE else parts_of_one(thousandths)
