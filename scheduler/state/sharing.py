"""What a pod that shares devices asks of each, by its annotations."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from scheduler.state.kin import PodClass
from trainer_kai.api.names import (
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    GPU_MEMORY_MIB,
)
from trainer_kai.api.node import Node
from trainer_kai.api.quantity import QuantityError, milli

__all__ = [
    "UNKNOWN_MEMORY_MIB",
    "GpuSharing",
    "device_memory_mib",
    "least_memory_mib",
    "read_gpu_sharing",
]

UNKNOWN_MEMORY_MIB: Final = 100  # of a device of which nobody says it

_MOST_DEVICES: Final = 64
_MOST_MIB: Final = 2**31
_MIN_BYTES: Final = 2**20  # so many MiB no device has: these are bytes


class GpuSharing(NamedTuple):
    """How many devices, and of each either thousandths or MiB."""

    annotation: str
    devices: int
    thousandths: int
    mib: int

    def thousandths_of_device(self, memory_mib: int) -> int:
        """Return the thousandths of a device that has so much memory; whole hundredths, as KAI."""
        if not self.mib:
            return self.thousandths
        return -(-100 * self.mib // memory_mib) * 10

    def queue_request(self, memory_mib: int) -> int:
        """Return what a queue counts."""
        return (self.thousandths_of_device(memory_mib) + 5) // 10 * 10 * self.devices


def read_gpu_sharing(pod_class: PodClass, gpus: Iterable[str]) -> GpuSharing | None:
    """Read the annotations; None for whole devices, or for what cannot be meant.

    Pods that ask for whole devices have them, whatever an annotation says that any user may add
    while they run.
    """
    annotations = pod_class.annotations
    if any(pod_class.shared_spec.demand().get(name) for name in gpus):
        return None
    if GPU_FRACTION in annotations:
        name, thousandths, mib = GPU_FRACTION, _fraction(annotations[GPU_FRACTION]), 0
    elif GPU_MEMORY in annotations:
        name, thousandths, mib = GPU_MEMORY, 0, _count(annotations[GPU_MEMORY], _MOST_MIB)
    else:
        return None
    devices = _count(annotations.get(GPU_FRACTION_DEVICES, "1"), _MOST_DEVICES)
    return GpuSharing(name, devices, thousandths, mib)


def device_memory_mib(node: Node) -> int:
    """Return what the label of a node says of its devices."""
    number = _count(node.metadata.labels.get(GPU_MEMORY_MIB, ""), 2**53)
    number = number // 2**20 if number >= _MIN_BYTES else number
    return max(number // 100 * 100, UNKNOWN_MEMORY_MIB)


def least_memory_mib(nodes: Iterable[Node]) -> int:
    """Return what the smallest device has of those of which it is known."""
    known = (device_memory_mib(node) for node in nodes)
    return min((mib for mib in known if mib > UNKNOWN_MEMORY_MIB), default=UNKNOWN_MEMORY_MIB)


def _fraction(text: str) -> int:
    """Return thousandths; what is no part of a device is none of it."""
    try:
        return min(max(milli(text), 0), 1000)
    except QuantityError:
        return 0


def _count(text: str, most: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    return min(int(text), most) if is_number else 0
