"""A large cluster for benchmarks: jobs of 8 pods on 4,000 nodes, no two jobs alike."""

from typing import Any, Final

from scheduler.state.inputs import Cluster
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.decode import decode
from trainer_kai.api.decode import encode as to_bytes
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.names import POD_GROUP, SCHEDULER_NAME
from trainer_kai.api.pod import Pod

NODES: Final = 4_000
JOBS: Final = 17_500
PODS_EACH: Final = 8
PODS: Final = JOBS * PODS_EACH
_TIME: Final = "2026-01-01T00:00:00Z"


def large_cluster(running: int) -> Cluster:
    """Return a cluster in which so many pods run, those of the first jobs; the others wait."""
    cluster = Cluster()
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": dict.fromkeys(("cpu", "memory", "gpu"), unlimited)}
    cluster.queues["team"] = decode(Queue, _bytes("team", "", spec=spec))
    for i in range(NODES):
        node = decode(Node, _bytes(f"node-{i}", "", status=_STATUS))
        cluster.nodes[node.metadata.name] = node
    for j in range(JOBS):
        spec_fields = {"queue": "team", "minMember": PODS_EACH}
        group = decode(PodGroup, _bytes(f"pg-{j}", f"ns-{j % 50}", spec=spec_fields))
        cluster.pod_groups[group.metadata.key] = group
        for i in range(j * PODS_EACH, (j + 1) * PODS_EACH):
            pod = decode(Pod, pod_bytes(i, "Running" if i < running else "Pending"))
            cluster.pods[pod.metadata.key] = pod
    return cluster


_STATUS: Final = {
    "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
    "conditions": [{"type": "Ready", "status": "True"}],
}


def pod_bytes(i: int, phase: str) -> bytes:
    """Return a pod as the API server would send it; it is on a node unless it waits."""
    job = i // PODS_EACH
    requests = {"cpu": "1", "memory": "1Gi"} | ({"nvidia.com/gpu": "1"} if has_gpu(i) else {})
    spec = {
        "schedulerName": SCHEDULER_NAME,
        "containers": [{"name": "node", "resources": {"requests": requests}}],
        **({"nodeName": f"node-{i % NODES}"} if phase != "Pending" else {}),
    }
    return _bytes(
        f"job-{job}-{i}",
        f"ns-{job % 50}",
        meta={
            "labels": {"app": f"job-{job}"},
            "annotations": {POD_GROUP: f"pg-{job}"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "uid": f"{job}", "controller": True}
            ],
        },
        spec=spec,
        status={"phase": phase},
    )


def has_gpu(i: int) -> bool:
    """Say whether a pod asks for a GPU."""
    return i % 40 < PODS_EACH  # every fifth job


def _bytes(
    name: str, namespace: str, *, meta: dict[str, Any] | None = None, **fields: Any
) -> bytes:
    metadata = {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": _TIME}
    return to_bytes({"metadata": {**metadata, **(meta or {})}, **fields})
