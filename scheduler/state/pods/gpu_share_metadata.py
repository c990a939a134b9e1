"""The shares of GPUs and the MIG profiles that pods request by annotation."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from trainer_kai.api.gpu_requests import WHOLE_GPU, read_devices, read_fraction, read_memory_mib
from trainer_kai.api.names import (
    APP,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_GROUP,
    GPU_GROUP_PREFIX,
    GPU_MEMORY,
    MIG_PREFIX,
    RESERVATION_APP,
)
from trainer_kai.api.pod import PodSpec
from trainer_kai.policy.pods.requests import ResourceAmounts

MigAnnotations: TypeAlias = tuple[tuple[str, int], ...]  # profiles, and how many of each
_MOST_PROFILES: Final = 64  # MIG resources that the annotations of a pod may name
_ALONE: Final = f"it can only be set together with {GPU_FRACTION} or {GPU_MEMORY}"
_COUNT: Final = re.compile("[0-9]+")
_MOST_DIGITS: Final = 15  # a longer number counts as the largest of this length


class GpuSharing(NamedTuple):
    """The shared GPUs that a pod requests: how many, and of each either thousandths or MiB."""

    annotation: str
    devices: int
    thousandths: int  # of each; 0 where it requests memory
    mib: int  # of each, or 0

    def thousandths_of_device(self, memory_mib: int) -> int:
        """Return the thousandths of a GPU with so much memory; all of one that has too little.

        The memory is 0 if it is not known; then a request of memory counts as a whole GPU.
        """
        if not self.mib:
            return self.thousandths
        if not memory_mib:
            return WHOLE_GPU
        return min(-(-100 * self.mib // memory_mib) * 10, WHOLE_GPU)

    def queue_request(self, memory_mib: int) -> int:
        """Return the thousandths of GPUs that a queue is charged on GPUs with so much memory."""
        return (self.thousandths_of_device(memory_mib) + 5) // 10 * 10 * self.devices


class GpuShareFault(NamedTuple):
    annotation: str
    fault: str


def read_gpu_sharing(
    annotations: Mapping[str, str], amounts: ResourceAmounts, gpus: Iterable[str]
) -> GpuSharing | GpuShareFault | None:
    """Return the shares of GPUs that a pod requests, or why they are refused.

    The annotations of a pod that requests whole GPUs or MIG profiles give it no share: any user may
    add them while it runs.
    """
    name = next((it for it in (GPU_FRACTION, GPU_MEMORY) if it in annotations), "")
    if not name:
        is_alone = GPU_FRACTION_DEVICES in annotations
        return GpuShareFault(GPU_FRACTION_DEVICES, _ALONE) if is_alone else None
    whole = next((it for it in sorted(amounts) if _is_whole_gpu(it, gpus) and amounts[it] > 0), "")
    if whole:
        return GpuShareFault(name, f"it cannot be set together with a request of {whole}")
    number = _read_number(name, annotations[name])
    if isinstance(number, str):
        return GpuShareFault(name, number)
    devices = read_devices(annotations.get(GPU_FRACTION_DEVICES, "1"))
    if isinstance(devices, str):
        return GpuShareFault(GPU_FRACTION_DEVICES, devices)
    if name == GPU_MEMORY:
        return GpuSharing(name, devices, 0, number)
    if GPU_MEMORY in annotations:
        return GpuShareFault(GPU_MEMORY, f"it cannot be set together with {GPU_FRACTION}")
    return GpuSharing(name, devices, number, 0)


def read_mig_annotations(annotations: Mapping[str, str]) -> MigAnnotations:
    names = [name for name in annotations if name.startswith(MIG_PREFIX)]
    if not names:
        return ()
    counts = ((name, _count(annotations[name])) for name in sorted(names))
    return tuple(it for it in counts if it[1])[:_MOST_PROFILES]


def named_gpus(labels: Mapping[str, str]) -> list[str]:
    return sorted({id_ for name, id_ in labels.items() if id_ and is_gpu_group(name)})


def is_gpu_group(label: str) -> bool:
    return label == GPU_GROUP or label.startswith(GPU_GROUP_PREFIX)


def is_gpu_reservation(namespace: str, labels: Mapping[str, str], spec: PodSpec) -> bool:
    """Say whether a pod only reserves a GPU that other pods share.

    Any user may write the label. Only the scheduler creates pods in the namespace, and other pods
    there have other service accounts.
    """
    return (
        namespace == RESERVATION_APP
        and labels.get(APP) == RESERVATION_APP
        and spec.service_account_name == RESERVATION_APP
    )


def gpu_group_labels(ids: Sequence[str]) -> dict[str, str]:
    """Return the labels that name shared GPUs, in KAI's form: one label for each of several."""
    if len(ids) == 1:
        return {GPU_GROUP: ids[0]}
    return {f"{GPU_GROUP_PREFIX}{id_}": id_ for id_ in ids}


def with_gpu_groups(labels: Mapping[str, str], ids: Sequence[str]) -> Mapping[str, str]:
    others = {name: value for name, value in labels.items() if not is_gpu_group(name)}
    return others | gpu_group_labels(ids)


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        return 0
    return int(text) if len(text) <= _MOST_DIGITS else 10**_MOST_DIGITS - 1


def _read_number(name: str, text: str) -> int | str:
    if name == GPU_MEMORY:
        return read_memory_mib(text)
    number = read_fraction(text)
    # A number that is too small for a float is 0 for KAI.
    return number if isinstance(number, str) or float(text) > 0 else read_fraction("0")


def _is_whole_gpu(name: str, gpus: Iterable[str]) -> bool:
    return name in gpus or name.startswith(MIG_PREFIX)
