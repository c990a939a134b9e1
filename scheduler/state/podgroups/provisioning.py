"""ProvisioningRequests: which queues ask by them, what they contain, and what has become of them.

One request is for all pods of a gang that ask at once, so that an autoscaler adds all of their
nodes or none. It has a pod template for each kind of pod. The template has of a pod what decides
about its node; its image never runs.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from trainer_kai.api.cluster_kinds import ProvisioningRequest
from trainer_kai.api.decode import encode
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import (
    ASKED_FOR_NODES,
    MANAGED_BY,
    PROVISIONING_CLASS,
)
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import POD_TEMPLATES, PODGROUPS, PROVISIONING_REQUESTS
from trainer_kai.api.syntax import dns_subdomain_fault

OUR_LABELS: Final = MappingProxyType({MANAGED_BY: "trainer-kai"})
MOST_POD_SETS: Final = 32  # that the API takes
_DEEPEST: Final = 32  # queues above a queue that are looked at
_LONGEST_NAME: Final = 240  # so that the names of pod templates are names as well
_FAILURES: Final = ("Failed", "BookingExpired", "CapacityRevoked")
_STATES: Final = ("Provisioned", "Accepted")  # the later one first
_NODE_FIELDS: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "resourceClaims",
    "hostNetwork",
    "schedulerName",
    "resources",
)
_IMAGE: Final = "trainer-kai.invalid/never-runs"


class RequestState(NamedTuple):
    """What has become of a request."""

    since: str  # of its ask
    state: str = ""  # the last condition that is true, in lower case
    failure: str = ""  # why no capacity comes, or is there no longer


class ProvisioningClass(NamedTuple):
    name: str
    fault: str = ""  # why it is none


def provisioning_classes(queues: Mapping[str, Queue]) -> Mapping[str, ProvisioningClass]:
    """Return the class of each queue that has one: its own, or that of the nearest above it."""
    found = {}
    for name in queues:
        at, steps = name, 0
        while at in queues and steps < _DEEPEST:
            text = queues[at].metadata.annotations.get(PROVISIONING_CLASS)
            if text is not None:
                fault = dns_subdomain_fault(text)
                where = f"metadata.annotations[{PROVISIONING_CLASS}] of queue {at}"
                found[name] = ProvisioningClass(text, f"{where}: {fault}" if fault else "")
                break
            at, steps = queues[at].spec.parent_queue, steps + 1
    return found


def request_name(group: str, attempts: int) -> str:
    return f"{group[:_LONGEST_NAME]}-{attempts}"


def template_names(request: ProvisioningRequest) -> list[str]:
    """Return the pod templates of a request, those that it was created with."""
    name = request.metadata.name
    return [f"{name}-{i}" for i in range(len(request.spec.pod_sets))]


def request_state(request: ProvisioningRequest) -> RequestState:
    conditions = {it.type: it for it in request.status.conditions if it.status == "True"}
    since = request.metadata.annotations.get(ASKED_FOR_NODES, "")
    for name in _FAILURES:
        if name in conditions:
            message = conditions[name].message or conditions[name].reason
            return RequestState(since, name.lower(), f"{name}: {message}" if message else name)
    state = next((it for it in _STATES if it in conditions), "")
    return RequestState(since, state.lower())


def owner_podgroup(request: ProvisioningRequest) -> OwnerReference | None:
    owners = request.metadata.owner_references
    return next((it for it in owners if it.kind == PODGROUPS.kind), None)


def request_objects(
    group: PodGroup, name: str, class_name: str, since: str, pods: Iterable[Pod]
) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """Return the pod templates and the request; None for pods of more kinds than one may have."""
    kinds: dict[str, list[Pod]] = {}
    for pod in pods:
        kinds.setdefault(json.dumps(_template_spec(pod), sort_keys=True), []).append(pod)
    if len(kinds) > MOST_POD_SETS:
        return None
    templates, pod_sets = [], []
    for i, (spec, equal) in enumerate(kinds.items()):
        template = f"{name}-{i}"
        body = {"metadata": {"labels": {**equal[0].metadata.labels}}, "spec": json.loads(spec)}
        templates.append(
            {
                "apiVersion": POD_TEMPLATES.api_version,
                "kind": POD_TEMPLATES.kind,
                "metadata": _metadata(group, template),
                "template": body,
            }
        )
        pod_sets.append({"podTemplateRef": {"name": template}, "count": len(equal)})
    request = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": {**_metadata(group, name), "annotations": {ASKED_FOR_NODES: since}},
        "spec": {"provisioningClassName": class_name, "podSets": pod_sets},
    }
    return templates, request


def _metadata(group: PodGroup, name: str) -> dict[str, Any]:
    owner = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "name": group.metadata.name,
        "uid": group.metadata.uid,
    }
    return {
        "name": name,
        "namespace": group.metadata.namespace,
        "labels": {**OUR_LABELS},
        "ownerReferences": [owner],
    }


def _template_spec(pod: Pod) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(encode(pod.spec))  # type: ignore[arg-type]
    found = {name: spec[name] for name in _NODE_FIELDS if spec.get(name)}
    found["containers"] = _containers(spec.get("containers") or (), "main")
    init_containers = _containers(spec.get("initContainers") or (), "init")
    if init_containers:
        found["initContainers"] = init_containers
    return {**found, "restartPolicy": "Never"}


def _containers(containers: Sequence[Mapping[str, Any]], default: str) -> list[dict[str, Any]]:
    return [
        {
            "name": it.get("name") or f"{default}-{i}",
            "image": _IMAGE,
            "resources": it.get("resources") or {},
            **({"restartPolicy": it["restartPolicy"]} if it.get("restartPolicy") else {}),
            **({"ports": it["ports"]} if it.get("ports") else {}),
        }
        for i, it in enumerate(containers)
    ]
