"""What a pod requests by `gpu-fraction`, `gpu-memory`, and the annotations that go with them.

Each reader returns a number, or a text that says what is wrong with the value and what is right.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from trainer_kai.api.bounds import MAX_DEVICES, MAX_MEMORY_MIB, NUMBER_DIGITS
from trainer_kai.api.names import (
    AMD_GPU,
    APP,
    GPU,
    GPU_CONTAINER,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_GROUP,
    GPU_GROUP_PREFIX,
    GPU_MEMORY,
    MIG_PREFIX,
    MPS,
    RESERVATION_APP,
)
from trainer_kai.api.pod import Container, PodSpec
from trainer_kai.api.quantity import MAX, Quantity, QuantityError, is_whole, milli, whole
from trainer_kai.api.text import listed_names
from trainer_kai.errors import FieldError, FieldWarning

WHOLE_GPU: Final = 1000  # thousandths
# The annotations by which a pod requests shares of GPUs; each of the first two is a request.
SHARE_REQUESTS: Final = (GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES, GPU_CONTAINER, MPS)

_MIG_PROFILE: Final = re.compile(
    re.escape(MIG_PREFIX)
    + r"(?:(?P<compute>[1-9])c\.)?(?P<slices>[1-9][0-9]?)g\.[0-9]{1,4}gb(?:[.+-][a-z0-9.+-]+)?"
)
_MIB: Final = 2**20
_LEAST: Final = 5  # thousandths: a smaller share would be charged as 0 hundredths of a GPU
_REMOVE_ONE: Final = "Remove one of the two"
_MOST_LISTED: Final = 5  # names in a message
_LONGEST_MEMORY: Final = 20  # characters of a label
_SHOWN: Final = 20  # characters of a longer value in a message
_DECIMAL: Final = re.compile(r"[+-]?(?=\.?[0-9])[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,2})?")
_MEMORY_STEP: Final = 100  # MiB: the memory of a GPU is rounded down to a multiple
_WHOLE: Final = re.compile("[0-9]+")
_SUB_UNITS: Final = "mun"  # suffixes of quantities that are no amounts of memory


def share_request(annotations: Mapping[str, str]) -> str:
    """Return the annotation that requests shares of GPUs; "" if none does."""
    return next((name for name in (GPU_FRACTION, GPU_MEMORY) if name in annotations), "")


def read_fraction(text: str) -> int | str:
    """Return a fraction of one GPU in thousandths, rounded up: 1 to 1000."""
    if _is_decimal(text):
        thousandths = milli(text)
        if 0 < thousandths <= WHOLE_GPU:
            return thousandths
    elif _is_quantity(text) and text[-1] in _SUB_UNITS and _LEAST <= milli(text) < WHOLE_GPU:
        return f"{text!r} must be a number without a suffix; write {_decimal(milli(text))}"
    return _out_of_range(text)


def fraction_fault(text: str) -> str | None:
    """Say what is wrong with a fraction of one GPU; admission also refuses 1, as KAI's does.

    KAI and the API server read a float, so a number that is almost 1 is 1 for them. Admission also
    refuses a fraction for which no queue would be charged.
    """
    thousandths = read_fraction(text)
    if isinstance(thousandths, str):
        return thousandths
    if 0 < float(text) < _LEAST / WHOLE_GPU:
        return (
            f"{_shown(text)} must be at least {_decimal(_LEAST)}, because queues are charged in "
            "hundredths of a GPU"
        )
    return None if 0 < float(text) < 1 else _out_of_range(text)


def read_memory_mib(text: str) -> int | str:
    """Return an amount of GPU memory in MiB, at most `MAX_MEMORY_MIB`."""
    number = _whole_number(text, MAX_MEMORY_MIB)
    if number:
        return number
    mib = 0 if number == 0 else _mib(text)
    example = f"write {mib}" if mib else "such as 3072"
    limit = " above 0" if number == 0 or not mib else ""
    separator = "; " if mib else ", "
    return f"{_shown(text)} must be MiB as a whole number{limit}{separator}{example}"


def read_devices(text: str) -> int | str:
    """Return the number of GPUs of which a pod has shares: 1 to `MAX_DEVICES`."""
    number = _whole_number(text, MAX_DEVICES + 1)
    if number and number <= MAX_DEVICES:
        return number
    return f"{_shown(text)} must be a whole number from 1 to {MAX_DEVICES}"


def gpu_memory_mib(label: str) -> int:
    """Return the memory of a GPU from the label of its node, MiB or bytes; 0 if it is not known."""
    if not (label.isascii() and label.isdecimal() and len(label) < _LONGEST_MEMORY):
        return 0
    number = int(label)
    mib = number // _MIB if number >= _MIB else number
    return mib // _MEMORY_STEP * _MEMORY_STEP


def charged_gpus(annotations: Mapping[str, str], memory_mib: int) -> int:
    """Return what a queue is charged for shares on GPUs with so much memory, in thousandths.

    If the memory is 0, it is not known, and a share of memory counts as a whole GPU. A request that
    is refused counts as nothing.
    """
    devices = read_devices(annotations.get(GPU_FRACTION_DEVICES, "1"))
    share: int | str = 0
    if GPU_FRACTION in annotations:
        share = read_fraction(annotations[GPU_FRACTION])
    elif GPU_MEMORY in annotations:
        share = read_memory_mib(annotations[GPU_MEMORY])
        if isinstance(share, int):
            hundredths = -(-100 * share // memory_mib) if memory_mib else 100
            share = min(10 * hundredths, WHOLE_GPU)
    if isinstance(devices, str) or isinstance(share, str):
        return 0
    return (share + 5) // 10 * 10 * devices


def gpu_share_faults(
    annotations: Mapping[str, str], spec: PodSpec, path: str
) -> Iterator[FieldError]:
    """Yield what is wrong with the shares of GPUs that a pod or a template at *path* requests.

    With any of it the scheduler places no such pod, except for a fraction of 1.
    """
    at = f"{path}metadata.annotations"
    requested = share_request(annotations)
    faults = {
        GPU_FRACTION: fraction_fault(annotations.get(GPU_FRACTION, "0.5")),
        GPU_MEMORY: _text(read_memory_mib(annotations.get(GPU_MEMORY, "1"))),
        GPU_FRACTION_DEVICES: _text(read_devices(annotations.get(GPU_FRACTION_DEVICES, "1"))),
    }
    for name, fault in faults.items():
        if fault is not None:
            yield FieldWarning(f"{at}[{name}]", fault)
    for name in (GPU_FRACTION_DEVICES, MPS):
        is_set = annotations.get(name) == "true" if name == MPS else name in annotations
        if is_set and not requested:
            message = f"can only be set together with {GPU_FRACTION} or {GPU_MEMORY}"
            yield FieldWarning(f"{at}[{name}]", message)
    if requested and requested != GPU_MEMORY and GPU_MEMORY in annotations:
        message = f"cannot be set together with {GPU_FRACTION}. {_REMOVE_ONE}"
        yield FieldWarning(f"{at}[{GPU_MEMORY}]", message)
    if requested and annotations.get(GPU_CONTAINER):
        names = [it.name for it in (*spec.init_containers, *spec.containers)]
        fault = unknown_container_fault(annotations[GPU_CONTAINER], names)
        if fault is not None:
            yield FieldWarning(f"{at}[{GPU_CONTAINER}]", fault)
    if requested:
        message = (
            "whole GPUs and MIG profiles cannot be requested together with the annotation "
            f"{requested}. {_REMOVE_ONE}"
        )
        for place in _whole_gpu_requests(spec):
            yield FieldWarning(f"{path}{place}", message)


def unknown_container_fault(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return None
    listed = listed_names([_shown(it) for it in names], _MOST_LISTED)
    return f"the pod has no container {_shown(name)}. Name one of its containers: {listed}"


def sharing_off_faults(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    requested = share_request(annotations)
    if requested:
        message = (
            "shares of GPUs are switched off (setting gpu_sharing.enabled), so the pods never "
            f"start. Remove the annotation, and request whole GPUs ({GPU}) or a MIG profile"
        )
        yield FieldWarning(f"{path}metadata.annotations[{requested}]", message)


def mig_annotation_faults(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield the MIG profiles that annotations request: such pods are counted, and never placed."""
    for name, count in annotations.items():
        if name.startswith(MIG_PREFIX) and _WHOLE.fullmatch(count) and count.strip("0"):
            message = (
                "MIG profiles cannot be requested by an annotation. Remove the annotation, and "
                "request the profile in the resources of a container"
            )
            yield FieldWarning(f"{path}[{name}]", message)


def reserved_label_faults(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield the labels of pods by which shared GPUs are found, and which a user may not set."""
    for name, value in labels.items():
        is_group = name == GPU_GROUP or name.startswith(GPU_GROUP_PREFIX)
        if is_group or (name, value) == (APP, RESERVATION_APP):
            label = f"{name}: {value}" if name == APP else name
            message = (
                f"no pod can be created with the label {label}: only the scheduler sets it, on "
                "pods that share or reserve a GPU. Remove the label"
            )
            yield FieldWarning(f"{path}[{name}]", message)


def _text(value: int | str) -> str | None:
    return value if isinstance(value, str) else None


def _whole_gpu_requests(spec: PodSpec) -> Iterator[str]:
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for i, container in enumerate(containers):
            for name, kind in requested_gpus(container).items():
                yield f"spec.{field}[{i}].resources.{kind}[{name}]"


def requested_gpus(container: Container) -> Mapping[str, str]:
    """Return the whole GPUs and MIG profiles that a container requests: name to field."""
    return {name: kind for name, kind in _requested(container) if is_whole_gpu(name)}


def requests_gpu_resource(container: Container) -> bool:
    """Say whether a device plugin gives a container GPUs, also replicas (nvidia.com/gpu.shared)."""
    return any(name.startswith(GPU) or is_whole_gpu(name) for name, _ in _requested(container))


def _requested(container: Container) -> Iterator[tuple[str, str]]:
    resources = container.resources
    amounts = {name: ("requests", it) for name, it in resources.requests.items()}
    amounts |= {name: ("limits", it) for name, it in resources.limits.items()}
    for name, (kind, quantity) in amounts.items():
        if not _is_zero(quantity):
            yield name, kind


def is_whole_gpu(name: str) -> bool:
    return name in {GPU, AMD_GPU} or name.startswith(MIG_PREFIX)


def mig_slices(name: str) -> int:
    """Return as how many GPUs queues count a MIG profile: its slices; 0 for another resource.

    `1c.3g.40gb` is a compute instance, one of the three slices of its GPU instance. Attributes may
    follow the memory, as in `1g.10gb.me` and `1g.24gb-me`.
    """
    profile = _MIG_PROFILE.fullmatch(name)
    return int(profile["compute"] or profile["slices"]) if profile else 0


@lru_cache(maxsize=256)
def gpus_of_one(resource: str) -> int:
    """Return as how many GPUs queues count one of a resource; 0 if it is none."""
    return 1 if resource in {GPU, AMD_GPU} else mig_slices(resource)


def gpu_count(amounts: Mapping[str, Quantity]) -> int:
    """Return the GPUs of reported amounts in thousandths; amounts that cannot be read are none."""
    try:
        return sum([gpus * milli(amounts[name]) for name in amounts if (gpus := gpus_of_one(name))])
    except QuantityError:
        return 0


def _is_zero(quantity: Quantity) -> bool:
    try:
        return milli(quantity) == 0
    except QuantityError:
        return False


def _out_of_range(text: str) -> str:
    return f"{_shown(text)} must be a number above 0 and below 1, such as 0.5{_whole_gpus(text)}"


def _is_decimal(text: str) -> bool:
    return len(text) <= NUMBER_DIGITS and bool(_DECIMAL.fullmatch(text))


def _is_quantity(text: str) -> bool:
    if len(text) > NUMBER_DIGITS:
        return False
    try:
        whole(text)
    except QuantityError:
        return False
    return True


def _whole_number(text: str, largest: int) -> int | None:
    """Return a number, at most *largest*; None for a text that is none."""
    if len(text) > NUMBER_DIGITS or not _WHOLE.fullmatch(text):
        return None
    return min(int(text), largest)


def _whole_gpus(text: str) -> str:
    if not _is_quantity(text) or not WHOLE_GPU <= milli(text) < WHOLE_GPU**2:
        return ""
    if not is_whole(text):
        return f". For whole GPUs remove the annotation and request {GPU}"
    count = milli(text) // WHOLE_GPU
    return f". For whole GPUs remove the annotation and request {GPU}: {count}"


def _mib(text: str) -> int:
    """Return the MiB of a quantity, rounded up; 0 if the text can mean no amount of memory."""
    if not _is_quantity(text) or text[-1] in _SUB_UNITS or milli(text) <= 0:
        return 0
    if _is_decimal(text):
        amount = whole(text)  # a number without a suffix means MiB
    else:
        amount = -(-whole(text) // _MIB) if whole(text) < MAX else 0
    return amount if amount <= MAX_MEMORY_MIB else 0


def _decimal(thousandths: int) -> str:
    return f"0.{thousandths:03}".rstrip("0")


def _shown(text: str) -> str:
    return repr(text if len(text) <= NUMBER_DIGITS else f"{text[:_SHOWN]}…")
