"""Shares of GPUs and MIG profiles as pods and nodes state them: rules 27a, 27b, 27g to 27i."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final, TypeAlias

from tests.reference.scheduler.model import (
    WHOLE_GPU,
    GpuShare,
    NodeInfo,
    PodInfo,
    SharedGpu,
)
from tests.reference.scheduler.resources import GPU_RESOURCES, Amounts, added, gpu_count, is_mig

Obj: TypeAlias = Mapping[str, Any]

_FRACTION: Final = "gpu-fraction"
_MEMORY: Final = "gpu-memory"
_DEVICES: Final = "gpu-fraction-num-devices"
_GROUP: Final = "runai-gpu-group"
NO_ID: Final = "unknown-"  # how the names of GPUs begin of which no label has an id
_RESERVATION: Final = "kai-resource-reservation"
_MOST_DEVICES: Final = 64
_BYTES: Final = 2**20  # from here on a number is bytes
_YES: Final = ("1", "t", "T", "true", "True", "TRUE")
_NO: Final = ("0", "f", "F", "false", "False", "FALSE")


def gpu_memory_of(labels: Mapping[str, str]) -> int:
    """Return the MiB of one GPU of a node, or 0."""
    text = labels.get("nvidia.com/gpu.memory", "")
    if not (text.isascii() and text.isdecimal()):
        return 0
    number = int(text)
    return (number // 2**20 if number >= _BYTES else number) // 100 * 100


def is_mig_node(labels: Mapping[str, str], allocatable: Amounts) -> bool:
    """Say whether the GPUs of a node are in MIG mode."""
    text = labels.get("node-role.kubernetes.io/mig-enabled", "")
    if text in _YES or text in _NO:
        return text in _YES
    return any(is_mig(name) and amount > 0 for name, amount in allocatable.items())


def read_requests_of_gpus(
    pod: PodInfo, annotations: Mapping[str, str], memory_of_nodes: Mapping[str, int]
) -> None:
    """Set what annotations of a pod request; a reservation pod requests no GPUs."""
    account = pod.spec.get("serviceAccountName")
    if pod.namespace == account == pod.labels.get("app") == _RESERVATION:
        kept = {name: n for name, n in pod.requests.items() if name not in GPU_RESOURCES}
        pod.requests = kept
    for name, text in annotations.items():
        if is_mig(name) and text.isdecimal():
            pod.has_mig_annotation = True
            pod.requests = added(pod.requests, {name: int(text)})
    if not any(name in annotations for name in (_FRACTION, _MEMORY, _DEVICES)):
        return
    thousandths = _thousandths(annotations.get(_FRACTION, "0"))
    memory = _number(annotations.get(_MEMORY, "0"))
    devices = _number(annotations.get(_DEVICES, "1"))
    has_whole = gpu_count(pod.requests) > 0 or any(
        is_mig(name) and amount > 0 for name, amount in pod.requests.items()
    )
    pod.has_malformed_share = (
        (_FRACTION in annotations and not 0 < thousandths <= WHOLE_GPU)
        or (_MEMORY in annotations and memory == 0)
        or (_FRACTION in annotations) == (_MEMORY in annotations)
        or not 0 < devices <= _MOST_DEVICES
        or has_whole
    )
    if not pod.has_malformed_share:
        pod.share = GpuShare(devices, thousandths, memory, memory_of_nodes)


def set_shared_gpus(nodes: Iterable[NodeInfo], pods: Iterable[PodInfo]) -> None:
    """Give pods that are on nodes their shares: by their labels, then those without an id."""
    own = [pod for pod in pods if pod.share]
    for node_info in nodes:
        here = [pod for pod in own if pod.node == node_info.name]
        rest: list[tuple[PodInfo, int]] = []
        for pod in sorted(here, key=lambda it: (it.namespace, it.name)):
            assert pod.share is not None
            amount = pod.share.on(node_info.name)
            part = WHOLE_GPU if amount is None else min(amount, WHOLE_GPU)
            named = _named_gpus(pod.labels)[: pod.share.devices]
            for name in named:
                _shared_gpu(node_info, name).shares.append((pod, part))
            rest += [(pod, part)] * (pod.share.devices - len(named))
        for pod, part in rest:
            _put_without_id(node_info, pod, part)


def _put_without_id(node_info: NodeInfo, pod: PodInfo, part: int) -> None:
    """Put a share on the fullest GPU that no label names, or on one more."""
    able = [
        (sum(amount for _, amount in gpu.shares), -i, gpu)
        for i, gpu in enumerate(node_info.gpus)
        if gpu.name.startswith(NO_ID) and pod not in [one for one, _ in gpu.shares]
    ]
    able = [one for one in able if one[0] + part <= WHOLE_GPU]
    if able:
        max(able, key=lambda one: one[:2])[2].shares.append((pod, part))
    else:
        count = sum(gpu.name.startswith(NO_ID) for gpu in node_info.gpus)
        node_info.gpus.append(SharedGpu(f"{NO_ID}{count}", 0, [(pod, part)]))


def _shared_gpu(node_info: NodeInfo, name: str) -> SharedGpu:
    for gpu in node_info.gpus:
        if gpu.name == name:
            return gpu
    node_info.gpus.append(SharedGpu(name, 0))
    return node_info.gpus[-1]


def _named_gpus(labels: Mapping[str, str]) -> list[str]:
    """Return the ids that the labels of a pod name."""
    names = {
        value for name, value in labels.items() if name == _GROUP or name.startswith(f"{_GROUP}/")
    }
    return sorted(names)


def _thousandths(text: str) -> int:
    try:
        return ceil(Fraction(text) * 1000) if "/" not in text and "_" not in text else 0
    except ValueError:
        return 0


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
