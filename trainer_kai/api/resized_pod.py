"""What a pod requests while it is resized in place: the larger of wanted, allocated and actual.

A resize changes the requests of the spec at once. The kubelet follows when it can, and says in the
status what it has allocated and what the containers have. Until both are the same, the node has to
have room for the larger one, as kube-scheduler counts it; a resize that the kubelet calls
infeasible takes nothing. Everything else then reads these requests as those of the spec.

A pod has generation 1 until its spec changes, so the statuses of all others are not decoded.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from trainer_kai.api.interning import intern_spec
from trainer_kai.api.meta import Condition
from trainer_kai.api.pod import Container, Pod, PodSpec, Resources
from trainer_kai.api.quantity import Quantity, QuantityError, milli

_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


class _Held(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    allocated_resources: Mapping[str, Quantity] = {}
    resources: Resources = Resources()


class ResizeStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The part of a pod's status that says how far a resize is."""

    container_statuses: tuple[_Held, ...] = ()
    init_container_statuses: tuple[_Held, ...] = ()
    allocated_resources: Mapping[str, Quantity] = {}  # of the whole pod
    resources: Resources = Resources()


class ResizedPod(msgspec.Struct, frozen=True, gc=False):
    status: ResizeStatus = ResizeStatus()


def may_be_resized(pod: Pod) -> bool:
    """Say whether the spec was changed after the pod was created; its deletion counts, too."""
    return pod.metadata.generation > 1


def requests_hash(pod: Pod) -> int:
    containers = [it.resources for it in (*pod.spec.init_containers, *pod.spec.containers)]
    return hash(msgspec.json.encode([*containers, pod.spec.resources]))


def with_resize(pod: Pod, status: ResizeStatus) -> Pod:
    if not may_be_resized(pod):
        return pod
    try:
        spec = _counted_spec(pod, status)
    except QuantityError:  # reported where the requests of the pod are read
        return pod
    if spec == pod.spec:
        return pod
    resized = msgspec.structs.replace(pod, spec=spec)
    intern_spec(resized)
    return resized


def _counted_spec(pod: Pod, status: ResizeStatus) -> PodSpec:
    is_infeasible = any(map(_says_infeasible, pod.status.conditions))
    spec = pod.spec
    resources = spec.resources
    if resources is not None:
        held = _Held("", status.allocated_resources, status.resources)
        resources = _counted(resources, held, is_infeasible=is_infeasible)
    return msgspec.structs.replace(
        spec,
        containers=_all_counted(spec.containers, status.container_statuses, is_infeasible),
        init_containers=_all_counted(
            spec.init_containers, status.init_container_statuses, is_infeasible
        ),
        resources=resources,
    )


def _all_counted(
    containers: tuple[Container, ...], statuses: Iterable[_Held], is_infeasible: bool
) -> tuple[Container, ...]:
    held_by_name = {it.name: it for it in statuses}
    return tuple(
        msgspec.structs.replace(
            it,
            resources=_counted(
                it.resources, held_by_name.get(it.name, _Held()), is_infeasible=is_infeasible
            ),
        )
        for it in containers
    )


def _counted(wanted: Resources, held: _Held, *, is_infeasible: bool) -> Resources:
    """Return the largest request of each resource; limits stay."""
    requests: dict[str, Quantity] = {}
    for of in (held.allocated_resources, held.resources.requests):
        _raise_to(requests, of)
    effective = {**wanted.limits, **wanted.requests}
    if is_infeasible:
        requests = {**effective, **requests}
    else:
        _raise_to(requests, effective)
    if requests == effective:
        return wanted
    return msgspec.structs.replace(wanted, requests=requests)


def _raise_to(requests: dict[str, Quantity], least: Mapping[str, Quantity]) -> None:
    for name, quantity in least.items():
        if name not in requests or milli(requests[name]) < milli(quantity):
            requests[name] = quantity


def _says_infeasible(condition: Condition) -> bool:
    return (condition.type, condition.status, condition.reason) == (
        _RESIZE_PENDING,
        "True",
        _INFEASIBLE,
    )
