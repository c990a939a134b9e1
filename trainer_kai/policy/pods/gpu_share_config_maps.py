"""The ConfigMaps that tell a container which shared GPUs it has, in KAI's form.

Admission makes the container refer to two ConfigMaps that do not exist: the kubelet starts no
container before they do. The scheduler creates both when it has chosen the GPUs.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from trainer_kai.api.names import GPU_CONTAINER
from trainer_kai.api.pod import PodSpec

# Environment variables, and the keys of their values in the ConfigMap.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
GPU_PORTION: Final = "GPU_PORTION"
NUMBER_OF_GPUS: Final = "RUNAI_NUM_OF_GPUS"  # deprecated by KAI; images read it
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"  # read by HAMi-core

_MOST: Final = 63  # characters of the name of a volume
_SUFFIX: Final = "shared-gpu"
_RANDOM: Final = 7  # characters between the base and the suffix
_LONGEST_TAIL: Final = "-evar-vol"
_PREFIX: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\.)*[a-z0-9][-a-z0-9]*-[a-z0-9]{7}-shared-gpu"
)
_NOT_IN_LABELS: Final = re.compile("[^-a-z0-9]")


class SharingContainer(NamedTuple):
    field: str  # of the spec: containers or initContainers
    number: int

    @property
    def suffix(self) -> str:
        """In the names of its ConfigMaps: 0 for the first container, i0 for an init one."""
        return f"{'i' if self.field == 'initContainers' else ''}{self.number}"


class GpuConfigMaps(NamedTuple):
    """The names of the two ConfigMaps of a container, and of the volume that KAI declares."""

    capabilities: str
    direct_env: str
    volume: str

    @classmethod
    def of(cls, prefix: str, container: SharingContainer) -> "GpuConfigMaps":
        """Return the names for a container; the prefix is in an annotation of its pod."""
        name = f"{prefix}-{container.suffix}"
        return cls(name, f"{name}-evar", _NOT_IN_LABELS.sub("-", f"{name}-vol"))


def sharing_container(annotations: Mapping[str, str], spec: PodSpec) -> SharingContainer | None:
    """None if the annotation names no container of the pod."""
    name = annotations.get(GPU_CONTAINER)
    if not name:
        return SharingContainer("containers", 0)
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for number, container in enumerate(containers):
            if container.name == name:
                return SharingContainer(field, number)
    return None


def config_map_prefix(base: str, random: str, container: SharingContainer) -> str:
    """Return the prefix of the names, from the name of the owner of a pod, or of the pod."""
    fixed = f"-{random[:_RANDOM]}-{_SUFFIX}"
    tail = f"-{container.suffix}{_LONGEST_TAIL}"
    kept = base[: _MOST - len(fixed) - len(tail)].rstrip("-.")
    return f"{kept}{fixed}"


def is_config_map_prefix(text: str) -> bool:
    """Say whether a text has the form of a prefix; with any other one a pod is not prepared.

    With it the scheduler writes only ConfigMaps that are called as those of no other purpose.
    """
    return len(text) <= _MOST and _PREFIX.fullmatch(text) is not None


def config_map_data(
    devices: list[str], hundredths: int, memory_limit_mib: int | None
) -> dict[str, str]:
    """Devices by UUID or CDI name, and the share."""
    portion = f"{hundredths // 100}.{hundredths % 100:02}"
    data = {VISIBLE_DEVICES: ",".join(devices), GPU_PORTION: portion, NUMBER_OF_GPUS: portion}
    if memory_limit_mib is not None:
        data[MEMORY_LIMIT] = f"{memory_limit_mib}m"
    return data
