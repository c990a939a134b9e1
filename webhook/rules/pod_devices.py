"""A new pod of our scheduler, and which GPUs its containers see.

The container runtime of NVIDIA gives a container the GPUs that an environment variable names, also
without a request, and many images set it to `all`. So no container may set it, and those that
neither request GPUs nor get a share of one get `void`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.gpu_requests import requests_gpu_resource
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import GPU_FRACTION, GPU_MEMORY
from trainer_kai.api.pod import Container, PodResourceClaim, PodSpec, Resources
from trainer_kai.api.resources import PODS
from trainer_kai.errors import FieldError
from trainer_kai.policy.pods.gpu_share_config_maps import VISIBLE_DEVICES, SharingContainer
from webhook.admission.patch import FieldManagers, FieldPath, PatchBuilder
from webhook.admission.review import (
    UNCHANGED,
    AdmissionRequest,
    AdmissionResponse,
    oversized_object,
    size_fault,
    unreadable_object,
)

Entry = Mapping[str, Any]  # of a list such as env, whole: it may be written again

_FIELDS: Final = ("initContainers", "containers")
_VOID: Final = "void"
_NO_DEVICES: Final = ("", _VOID, "none")
_SHOWN: Final = 40  # characters of a value in a message


class _Metadata(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    generate_name: str = ""
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: list[Any] = []


class _Container(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    env: list[dict[str, Any]] | None = None
    env_from: list[dict[str, Any]] | None = None
    resources: Resources = Resources()


class _Spec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    scheduler_name: str = ""
    runtime_class_name: str = ""
    init_containers: list[_Container] = []
    containers: list[_Container] = []
    volumes: list[dict[str, Any]] | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()


class _Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class NewPod(NamedTuple):
    pod: _Pod
    patch: PatchBuilder
    managers: FieldManagers

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.pod.metadata.annotations or {}

    @property
    def requests_shares(self) -> bool:
        return GPU_FRACTION in self.annotations or GPU_MEMORY in self.annotations

    @property
    def base_names(self) -> tuple[str, ...]:
        """Return the names after which objects of the pod are called: the first one that is set."""
        meta = self.pod.metadata
        owner = meta.owner_references[0].name if meta.owner_references else ""
        return (owner, meta.name, meta.generate_name)

    def containers(self) -> Iterator[tuple[SharingContainer, Container]]:
        """Yield the init containers and the containers: the place, and what it requests."""
        for field, containers in zip(
            _FIELDS, (self.pod.spec.init_containers, self.pod.spec.containers), strict=True
        ):
            for number, it in enumerate(containers):
                place = SharingContainer(field, number)
                yield place, Container(name=it.name, resources=it.resources)

    def spec(self) -> PodSpec:
        """Return the spec of the pod with the names of its containers alone."""
        init_containers, containers = (
            tuple(Container(name=it.name) for it in listed)
            for listed in (self.pod.spec.init_containers, self.pod.spec.containers)
        )
        return PodSpec(init_containers=init_containers, containers=containers)

    def entries(self, path: FieldPath) -> list[Entry]:
        found: list[Entry] = self.patch.get(path) or []
        return found


def container_path(place: SharingContainer) -> FieldPath:
    return ("spec", place.field, place.number)


def read_new_pod(request: AdmissionRequest, scheduler_name: str) -> NewPod | AdmissionResponse:
    """Read the pod of a review; return a response if it is none of ours, or cannot be read."""
    if not request.is_of(PODS, "CREATE"):
        return UNCHANGED
    too_large = size_fault(request.object)
    if too_large:
        return oversized_object("pod", too_large)
    try:
        pod = decode(_Pod, request.object)
    except DecodeError as error:
        return unreadable_object(error)
    if pod.spec.scheduler_name != scheduler_name:
        return UNCHANGED
    tree = msgspec.to_builtins(pod)
    return NewPod(pod, PatchBuilder(tree), FieldManagers(tree["metadata"]))


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
    if variable.get("valueFrom") is not None:
        return "reads it from another object"
    value = str(variable.get("value") or "")
    if value in _NO_DEVICES:
        return ""
    return f"sets it to {value if len(value) <= _SHOWN else f'{value[:_SHOWN]}…'!r}"
