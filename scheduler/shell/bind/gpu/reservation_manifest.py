"""The pod that reserves one GPU of a node for the pods that share it, in KAI's form. Pure.

Kubernetes gives the whole GPU to this pod, and so to no other one. Which GPU it is, is known when
the agent in the pod has written its UUID onto the pod. The pod is put on its node directly, so no
scheduler places it.
"""

from hashlib import sha256
from typing import Any, Final, NamedTuple

from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    APP,
    DO_NOT_DISRUPT,
    GPU,
    GPU_GROUP,
    RESERVATION_APP,
    RESERVED_DEVICE,
    SAFE_TO_EVICT,
)
from trainer_kai.api.pod import TERMINAL_PHASES, Pod

_CONTAINER: Final = "resource-reservation"
_USER: Final = 65532
_GRACE_S: Final = 1  # the agent ends at once


class GpuPlace(NamedTuple):
    """A shared GPU of a node: its group is an id that the scheduler chose."""

    node: str
    group: str

    def __str__(self) -> str:
        return f"{self.group} on {self.node}"


class ReservationPodOptions(NamedTuple):
    image: str
    runtime_class: str = ""
    priority_class: str = ""


def reservation_pod_key(place: GpuPlace) -> Key:
    """Return the name of the pod that reserves a GPU; the same each time it is created."""
    digest = sha256(f"{place.node}/{place.group}".encode()).hexdigest()[:16]
    return Key(RESERVATION_APP, f"gpu-reservation-{digest}")


def is_live(pod: Pod) -> bool:
    return not pod.metadata.deletion_timestamp and pod.status.phase not in TERMINAL_PHASES


def reserved_device(pod: Pod) -> str:
    """Return the UUID of the GPU that a reservation pod holds; "" while it is not known."""
    return pod.metadata.annotations.get(RESERVED_DEVICE, "")


def reservation_pod(place: GpuPlace, options: ReservationPodOptions) -> dict[str, Any]:
    key = reservation_pod_key(place)
    spec: dict[str, Any] = {
        "nodeName": place.node,
        "serviceAccountName": RESERVATION_APP,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "tolerations": [{"operator": "Exists"}],  # its users decide which taints they stand
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(options.image)],
    }
    if options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    labels = {APP: RESERVATION_APP, GPU_GROUP: place.group}
    annotations = {DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "false"}
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": labels,
        "annotations": annotations,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(image: str) -> dict[str, Any]:
    return {
        "name": _CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "scheduler.agent"],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (
                ("POD_NAME", "metadata.name"),
                ("POD_NAMESPACE", "metadata.namespace"),
                ("POD_UID", "metadata.uid"),  # the next pod may have the same name
            )
        ],
        "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
