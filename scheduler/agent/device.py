"""The one device that this container sees, as NVIDIA's management library (NVML) shows it.

A device in MIG mode runs nothing itself: its MIG devices count instead. In a container with one of
them NVML shows the physical device, and of its slots for MIG devices only the one that it may use.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pynvml

from trainer_kai.api.text import counted
from trainer_kai.errors import TrainerKaiError

_NODE: Final = "check whether nvidia-smi works on the node, and the kernel log of the node"
_RUNTIME_CLASS: Final = (
    "check that the pod has the RuntimeClass of the NVIDIA container runtime (setting "
    "gpu_sharing.runtime_class)"
)
_CHECKS: Final = {  # by error of NVML
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        f"libnvidia-ml.so.1 cannot be loaded; {_RUNTIME_CLASS}, and that "
        "NVIDIA_DRIVER_CAPABILITIES, if it is set, contains utility"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the driver is not loaded, or the container has no access to it; check whether nvidia-smi "
        f"works on the node; {_RUNTIME_CLASS}"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver of the node was replaced while it was in use; restart the node"
    ),
}


class DeviceUnknown(TrainerKaiError):
    """Not exactly one device is visible, or NVML failed; the message says what to check."""


def only_device(visible_devices: str | None) -> str:
    """Return the UUID of the only device; *visible_devices* is $NVIDIA_VISIBLE_DEVICES."""
    _ask(pynvml.nvmlInit)
    try:
        return _only_one(list(_physical_devices()), visible_devices)
    finally:
        _ask(pynvml.nvmlShutdown)


def _only_one(physical: list[Any], visible_devices: str | None) -> str:
    usable, empty = [], []
    for device in physical:
        if not _is_in_mig_mode(device):
            usable.append(_uuid(device))
        elif mig_devices := list(_mig_devices(device)):
            usable += map(_uuid, mig_devices)
        else:
            empty.append(_uuid(device))
    if len(usable) == 1:
        return usable[0]
    shown = counted(len(usable), "device") + (f" ({', '.join(usable)})" if usable else "")
    message = f"NVML shows {shown}, but a reservation pod must see exactly 1"
    if empty:
        message += f"; no MIG device is visible of {', '.join(empty)}, which MIG mode divides"
    raise DeviceUnknown(f"{message}: {_reason(usable, visible_devices)}")


def _reason(usable: list[str], visible_devices: str | None) -> str:
    value = "not set" if visible_devices is None else f'"{visible_devices}"'
    if usable:
        return (
            f"NVIDIA_VISIBLE_DEVICES is {value}; check that neither the image nor a webhook sets "
            "it, and that the container is not privileged"
        )
    return (
        f"NVIDIA_VISIBLE_DEVICES is {value}; check that the container requests nvidia.com/gpu: 1; "
        f"{_RUNTIME_CLASS}"
    )


def _physical_devices() -> Iterator[Any]:
    """Yield the devices, without the ones of other containers, which some drivers count too."""
    for index in range(_ask(pynvml.nvmlDeviceGetCount)):
        no_permission = pynvml.NVML_ERROR_NO_PERMISSION
        device = _ask(pynvml.nvmlDeviceGetHandleByIndex, index, none_if=(no_permission,))
        if device is not None:
            yield device


def _is_in_mig_mode(device: Any) -> bool:
    """Say whether MIG mode is on; most devices and old drivers do not know it."""
    unknown = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    modes = _ask(pynvml.nvmlDeviceGetMigMode, device, none_if=unknown)
    return modes is not None and modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _mig_devices(device: Any) -> Iterator[Any]:
    """Yield the MIG devices; a slot that is empty, or not for this container, has none."""
    for index in range(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, device)):
        not_found = pynvml.NVML_ERROR_NOT_FOUND
        found = _ask(
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index, none_if=(not_found,)
        )
        if found is not None:
            yield found


def _uuid(device: Any) -> str:
    return _text(_ask(pynvml.nvmlDeviceGetUUID, device))


def _text(uuid: str | bytes) -> str:
    """Return a UUID as text; older releases of pynvml return bytes."""
    return uuid.decode() if isinstance(uuid, bytes) else uuid


def _ask(function: Callable[..., Any], *arguments: Any, none_if: tuple[int, ...] = ()) -> Any:
    """Call a function of NVML; return None for an expected error."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in none_if:
            return None
        checks = _CHECKS.get(error.value, _NODE)
        message = f"{function.__name__} failed: {error} (error {error.value}): {checks}"
        raise DeviceUnknown(message) from error
