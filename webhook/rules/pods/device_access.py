"""Which containers may see GPUs: they request some, or get a share of one.

The container runtime of NVIDIA gives a container the GPUs that an environment variable names, also
without a request, and many images set it to `all`. So no container may set it, and those without
GPUs get `void`.
"""

from collections.abc import Iterator
from typing import Final

from trainer_kai.api.gpu_share import requests_gpu_resource
from trainer_kai.errors import FieldError
from trainer_kai.policy.pods.gpu_config_maps import VISIBLE_DEVICES, SharingContainer
from webhook.rules.pods.new_pod import Entry, NewPod, container_path

_VOID: Final = "void"
_NO_DEVICES: Final = ("", _VOID, "none")
_SHOWN: Final = 40  # characters of a value in a message


def restrict_devices(pod: NewPod, sharing: SharingContainer | None) -> Iterator[FieldError]:
    """Yield the containers that choose GPUs themselves; hide all GPUs from those without any.

    The container with the share is left out: admission writes its variable. A container may get
    GPUs by a resource claim of its pod as well, so that nothing is hidden from such pods.
    """
    has_claims = bool(pod.pod.spec.resource_claims)
    for place, container in pod.containers():
        if place == sharing:
            continue
        path = (*container_path(place), "env")
        given = [it for it in pod.entries(path) if it.get("name") == VISIBLE_DEVICES]
        fault = next(filter(None, map(_fault, given)), "")
        if fault:
            at = f"spec.{place.field}[{place.number}].env[{VISIBLE_DEVICES}]"
            message = (
                f"container {container.name!r} {fault}, and so chooses its GPUs itself. Remove the "
                f"variable, or set it to {_VOID}; request GPUs in the resources of the container"
            )
            yield FieldError(at, message)
        elif not given and not has_claims and not requests_gpu_resource(container):
            pod.patch.append(path, {"name": VISIBLE_DEVICES, "value": _VOID})


def _fault(variable: Entry) -> str:
    """Say what is wrong with the variable; "" if it names no devices."""
    if variable.get("valueFrom") is not None:
        return "reads it from another object"
    value = str(variable.get("value") or "")
    if value in _NO_DEVICES:
        return ""
    return f"sets it to {value if len(value) <= _SHOWN else f'{value[:_SHOWN]}…'!r}"
