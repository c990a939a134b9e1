"""The shares of GPUs that pods on nodes have: of which node, group and device. Pure.

The scheduler, or the binder of KAI, writes the groups on a pod as labels; the devices are known
only of pods that our scheduler has bound.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from trainer_kai.api.gpu_share import WHOLE_GPU, read_devices, read_fraction, read_memory_mib
from trainer_kai.api.names import (
    GPU_DEVICES,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_GROUP,
    GPU_GROUP_PREFIX,
    GPU_MEMORY,
)
from trainer_kai.api.pod import TERMINAL_PHASES
from trainer_kai.cli.commands.why.snapshot import PodSnapshot


class PlacedGpuShare(NamedTuple):
    """The share that a pod on a node has of one GPU, or of each of several."""

    pod: str
    node: str
    gpus: int
    thousandths: int  # of each GPU; 0 if the pod requests memory
    memory_mib: int  # of each GPU, or 0
    groups: tuple[str, ...]  # the ids of the shared GPUs, in their order
    devices: tuple[str, ...]  # their UUIDs, as far as they are known

    def __str__(self) -> str:
        amount = (
            f"{self.memory_mib} MiB"
            if self.memory_mib
            else f"{self.thousandths / WHOLE_GPU:.3f}".rstrip("0").removesuffix(".")
        )
        of_gpus = "of a GPU" if self.gpus == 1 else f"of each of {self.gpus} GPUs"
        parts = [f"{amount} {of_gpus}", _named("device", self.devices)]
        parts.append(_named("group", self.groups))
        return f"{self.pod} on {self.node}: {', '.join(parts)}"

    def as_json(self) -> dict[str, Any]:
        """Return the share as an object of the JSON document."""
        return {
            "pod": self.pod,
            "node": self.node,
            "gpus": self.gpus,
            "fraction": self.thousandths / WHOLE_GPU if self.thousandths else None,
            "memoryMiB": self.memory_mib or None,
            "groups": [*self.groups],
            "devices": [*self.devices],
        }


def placed_gpu_shares(pods: Iterable[PodSnapshot]) -> Iterator[PlacedGpuShare]:
    """Yield the shares of pods on nodes that have not ended, in the order of their names."""
    for pod in sorted(pods, key=lambda it: it.metadata.name):
        if pod.spec.node_name and pod.status.phase not in TERMINAL_PHASES:
            share = _share(pod)
            if share is not None:
                yield share


def _share(pod: PodSnapshot) -> PlacedGpuShare | None:
    meta = pod.metadata
    fraction = read_fraction(meta.annotations.get(GPU_FRACTION, ""))
    memory_mib = read_memory_mib(meta.annotations.get(GPU_MEMORY, ""))
    gpus = read_devices(meta.annotations.get(GPU_FRACTION_DEVICES, "1"))
    groups = _groups(meta.labels)
    if (
        isinstance(gpus, str)
        or not groups
        or (isinstance(fraction, str) is isinstance(memory_mib, str))
    ):
        return None
    return PlacedGpuShare(
        meta.name,
        pod.spec.node_name,
        gpus,
        0 if isinstance(fraction, str) else fraction,
        0 if isinstance(memory_mib, str) else memory_mib,
        groups,
        tuple(filter(None, meta.annotations.get(GPU_DEVICES, "").split(","))),
    )


def _groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    named = (name for name in labels if name == GPU_GROUP or name.startswith(GPU_GROUP_PREFIX))
    return tuple(sorted({labels[name] for name in named} - {""}))


def _named(what: str, names: tuple[str, ...]) -> str:
    if not names:
        return f"{what} not known"
    return f"{what}{'s' * (len(names) > 1)} {' and '.join(names)}"
