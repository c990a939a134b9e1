"""Kubernetes objects for cases computed by hand; the namespace is always `ns`."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Obj: TypeAlias = dict[str, Any]

NOW: Final = "2026-01-01T01:00:00Z"
_OLD: Final = "2026-01-01T00:00:00Z"


def node(name: str, cpu: int = 4, gpu: int = 0, *, spec: Obj | None = None, zone: str = "") -> Obj:
    """Return a node with room for many pods."""
    allocatable = {"cpu": str(cpu), "memory": "100G", "pods": "110"}
    if gpu:
        allocatable["nvidia.com/gpu"] = str(gpu)
    labels = {"kubernetes.io/hostname": name, **({"zone": zone} if zone else {})}
    return {
        "kind": "Node",
        "metadata": {**_meta(name), "labels": labels},
        "spec": spec or {},
        "status": {"allocatable": allocatable},
    }


def queue(
    name: str = "q", parent: str = "", *, cpu: Obj | None = None, gpu: Obj | None = None
) -> Obj:
    """Return a queue without bounds, but for those that are given."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": {**free, **(cpu or {})}, "memory": free, "gpu": {**free, **(gpu or {})}}
    spec: Obj = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"kind": "Queue", "metadata": _meta(name), "spec": spec}


def group(name: str, least: int | None = None, **spec: Any) -> Obj:
    """Return a PodGroup in the queue `q`, unless another is named."""
    members = {} if least is None else {"minMember": least}
    return {"kind": "PodGroup", "metadata": _meta(name), "spec": {"queue": "q", **members, **spec}}


def subgroup_spec(name: str, least: int | None = None, parent: str = "", **more: Any) -> Obj:
    """Return a sub-group."""
    members = {} if least is None else {"minMember": least}
    return {"name": name, **members, **({"parent": parent} if parent else {}), **more}


def pod(
    name: str,
    of: str = "",
    cpu: int = 1,
    *,
    gpu: int = 0,
    at: str = "",
    labels: Mapping[str, str] | None = None,
    podset: str = "",
    scheduler: str = "kai-scheduler",
    **spec: Any,
) -> Obj:
    """Return a pod that waits, or runs at a node; *of* is its group, *podset* its sub-group."""
    requests = {"cpu": str(cpu), **({"nvidia.com/gpu": str(gpu)} if gpu else {})}
    container = {"resources": {"requests": requests}, "ports": spec.pop("ports", [])}
    meta = _meta(name)
    meta["labels"] = {
        **(labels or {}),
        **({"kai.scheduler/subgroup-name": podset} if podset else {}),
    }
    meta["annotations"] = {"pod-group-name": of} if of else {}
    body: Obj = {"schedulerName": scheduler, "containers": [container], **spec}
    if at:
        body["nodeName"] = at
    phase = "Running" if at else "Pending"
    return {"kind": "Pod", "metadata": meta, "spec": body, "status": {"phase": phase}}


def terminating(one: Obj, since: str = "2026-01-01T00:59:50Z") -> Obj:
    """Return the same pod, about to go."""
    return {**one, "metadata": {**one["metadata"], "deletionTimestamp": since}}


def share(one: Obj, fraction: str = "", memory: str = "", devices: str = "", *ids: str) -> Obj:
    """Return the same pod with shares of GPUs, of those with these ids if it is on a node."""
    annotations = {
        "gpu-fraction": fraction,
        "gpu-memory": memory,
        "gpu-fraction-num-devices": devices,
    }
    group = "runai-gpu-group"
    labels = {group if len(ids) == 1 else f"{group}/{name}": name for name in ids}
    return labelled(annotated(one, {k: v for k, v in annotations.items() if v}), labels)


def annotated(one: Obj, annotations: Mapping[str, str]) -> Obj:
    """Return the same object with more annotations."""
    meta = one["metadata"]
    both = {**meta.get("annotations", {}), **annotations}
    return {**one, "metadata": {**meta, "annotations": both}}


def labelled(one: Obj, labels: Mapping[str, str]) -> Obj:
    """Return the same object with more labels."""
    meta = one["metadata"]
    return {**one, "metadata": {**meta, "labels": {**meta.get("labels", {}), **labels}}}


def _meta(name: str) -> Obj:
    return {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": _OLD,
    }
