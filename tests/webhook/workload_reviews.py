"""Reviews of workloads that are validated, the queues that they know, and what is said."""

from typing import Any

from tests.trainer_kai.policy.lint.cluster import (
    decode_spec,
    known_cluster,
    node,
    queue_spec,
)
from tests.webhook.objects import EXTERNAL, Obj, request, told
from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.cache.admission_cache import QueueTree
from webhook.rules.workload_validate import WorkloadContext, validate_workload

APPS = {"group": "apps", "version": "v1"}
DEPLOYMENT = {**APPS, "kind": "Deployment"}
STATEFUL_SET = {**APPS, "kind": "StatefulSet"}
NOTEBOOK = {"group": "kubeflow.org", "version": "v1", "kind": "Notebook"}
QUEUE = "kai.scheduler/queue"
KUEUE = "kueue.x-k8s.io/queue-name"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
GPU = "nvidia.com/gpu"
QUEUES = {
    "top": queue_spec(quota=8),
    "team-a": queue_spec("top", quota=8),
    "team-b": queue_spec("top", quota=4),
    "default-parent-queue": queue_spec(quota=0),
    "default-queue": queue_spec("default-parent-queue", quota=0),
    "free": queue_spec(),
}
NODES = [
    node(f"n{i}", 8, cpu=64, **{"nvidia.com/gpu.memory": memory})
    for i, memory in enumerate(("40000", "80050", "x"))
]
CLASSES = {"train": 50, "build": 100, "inference": 125, "top": 1_000_000_000}


def workload(
    replicas: int | None = None, gpus: int = 1, scheduler: str = "kai-scheduler", **parts: Any
) -> Obj:
    """Return a workload; *parts* are labels of its own, or labels and a class of its pods."""
    resources = {"limits": {GPU: gpus}} if gpus else {}
    spec = {"containers": [{"name": "server", "resources": resources}], "schedulerName": scheduler}
    notes = parts.get("notes")
    if "of_class" in parts:
        spec["priorityClassName"] = parts["of_class"]
    metadata = {"name": "it", "labels": parts.get("labels"), **parts.get("metadata", {})}
    template = {"metadata": {"labels": parts.get("of_pods"), "annotations": notes}, "spec": spec}
    return {"metadata": metadata, "spec": {"replicas": replicas, "template": template}}


def context(**used: str) -> WorkloadContext:
    """Return the queues; *used* are GPUs in non-preemptible PodGroups."""
    tree = QueueTree()
    for name, spec in QUEUES.items():
        tree.put(name, spec.parent_queue)
    tree.mark_listed()
    cluster = known_cluster(*NODES, queues=QUEUES, priorities=CLASSES)
    in_use = {name.replace("_", "-"): {GPU: amount} for name, amount in used.items()}
    return WorkloadContext(tree, cluster, in_use)


def with_default(value: int) -> dict[str, PriorityClass]:
    usual = {"metadata": {"name": "usual"}, "value": value, "globalDefault": True}
    classes = known_cluster(priorities=CLASSES).priorities or {}
    return {**classes, "usual": decode_spec(PriorityClass, usual)}


IDLE = context()


def reviewed(
    obj: Obj,
    kind: Obj = DEPLOYMENT,
    rules: GroupingRules = EXTERNAL,
    known: WorkloadContext = IDLE,
    old: Obj | None = None,
) -> str:
    """Return the warnings; none is too long."""
    response = validate_workload(request(obj, kind, old), known, rules).response()
    assert all(len(it) <= 256 for it in response.warnings), response.warnings
    return told(response)


def short(why: str, requested: str, queue: str, quota: str, used: str = "0 GPU") -> str:
    return (
        f"spec.template: the pods are non-preemptible ({why}) and request {requested}; queue "
        f"{queue} has a quota of {quota}, {used} in use. Pods beyond the quota wait"
    )


def ways_out(path: str = "metadata.labels") -> str:
    return (
        f"\nspec.template: to let them start, set the label {PREEMPTIBILITY}: preemptible at "
        f"{path} (other queues may then evict them), or name a queue with enough quota there "
        f"({QUEUE})"
    )


A_LABEL = {QUEUE: "team-a"}
OTHER = (
    "spec.template.spec.schedulerName: the pods go to the scheduler {}, for which the label "
    f"{QUEUE} has no effect. Set schedulerName: kai-scheduler, or remove the label"
)
