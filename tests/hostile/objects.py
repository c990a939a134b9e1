"""Two well-behaved teams and a hostile tenant: objects for `simulate`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

Obj: TypeAlias = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
TENANT: Final = "tenant"  # the namespace in which a user has the role `edit`, and no other
TENANT_QUEUE: Final = "tenant"
VICTIMS: Final = ("red", "blue")  # namespaces, and queues of the same names
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def cluster(nodes: int = 2, gpus: int = 8) -> list[Obj]:
    """Return nodes and queues: each victim has a quota of half of the GPUs, the tenant of none."""
    half = nodes * gpus // 2
    return [
        *(node(f"n{number}", gpus) for number in range(nodes)),
        *(queue(name, half) for name in VICTIMS),
        queue(TENANT_QUEUE, 0),
    ]


def node(name: str, gpus: int = 8) -> Obj:
    """Return a node."""
    has = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": has,
            "capacity": has,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue(name: str, quota: float, limit: float = -1, parent: str = "") -> Obj:
    """Return a queue that owns so many GPUs."""
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    spec: Obj = {"resources": {"cpu": _FREE, "memory": _FREE, "gpu": gpu}}
    if parent:
        spec["parentQueue"] = parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def pod_group(namespace: str, name: str, members: int = 1, queue: str = "") -> Obj:
    """Return a PodGroup of a team's queue."""
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queue": queue or namespace, "minMember": members},
    }


def pod(
    namespace: str,
    name: str,
    gpus: int = 1,
    group: str = "",
    node: str = "",
    annotations: Mapping[str, str] = _NOTHING,
) -> Obj:
    """Return a pod of a PodGroup (else on its own, in the team's queue); with a node it runs."""
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    spec: Obj = {"schedulerName": "kai-scheduler", "containers": [container]}
    if node:
        spec["nodeName"] = node
    notes = {**annotations, **({"pod-group-name": group} if group else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "labels": {"kai.scheduler/queue": namespace},
            "annotations": notes,
        },
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending"},
    }
