"""Objects of a small cluster, as a user writes them for `trainer-kai simulate`."""

from collections.abc import Sequence
from typing import Any

Fields = dict[str, Any]


def node(name: str, gpus: int = 8, cpu: str = "64", memory: str = "512Gi", **meta: Any) -> Fields:
    """Return a node that is ready."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **meta},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue(
    name: str, gpus: int = 8, limit: int = -1, parent: str = "", weight: int = 1, **meta: Any
) -> Fields:
    """Return a queue that bounds GPUs only."""
    unbound = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: Fields = {
        "resources": {
            "gpu": {"quota": gpus, "limit": limit, "overQuotaWeight": weight},
            "cpu": unbound,
            "memory": unbound,
        }
    }
    if parent:
        spec["parentQueue"] = parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name, **meta},
        "spec": spec,
    }


def group(name: str, members: int = 1, queue: str = "team-a", **spec: Any) -> Fields:
    """Return a group without sub-groups."""
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queue": queue, "minMember": members, **spec},
    }


def pod(
    name: str,
    group: str = "",
    gpus: int = 1,
    on: str = "",
    phase: str = "",
    **meta: Any,
) -> Fields:
    """Return a pod of a group; where it is on a node, it runs."""
    annotations = {"pod-group-name": group} if group else {}
    requests = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    spec: Fields = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "resources": {"limits": requests}}],
    }
    if on:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations, **meta},
        "spec": spec,
        "status": {"phase": phase or ("Running" if on else "Pending")},
    }


def resource_reservation_pod(**spec: Any) -> Fields:
    """Return a SchedulingShard."""
    return {
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def bind_request(pod: str, node: str, devices: Sequence[str] = (), **status: Any) -> Fields:
    """Return what KAI's scheduler tells its binder."""
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": pod, "namespace": "default"},
        "spec": {"podName": pod, "selectedNode": node, "selectedGPUGroups": list(devices)},
        "status": status,
    }


def trainjob(name: str, runtime: str, nodes: int = 2, queue: str = "team-a") -> Fields:
    """Return a TrainJob."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kai.scheduler/queue": queue},
        },
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": nodes}},
    }


def job(name: str, pods: int = 2, gpus: int = 1, scheduler: str = "", **meta: Any) -> Fields:
    """Return a Job as a user submits it, for our scheduler unless another is named."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    template: Fields = {
        "schedulerName": scheduler or "kai-scheduler",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "train", "resources": {"limits": limits}}],
    }
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": template}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", **meta},
        "spec": spec,
    }


def cron_job(name: str, of: Fields) -> Fields:
    """Return a CronJob whose runs are a Job each."""
    template = {"metadata": {"labels": of["metadata"].get("labels", {})}, "spec": of["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedule": "0 1 * * *",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": template,
        },
    }


def user_jobset(name: str, pods: int = 2, scheduler: str = "", **meta: Any) -> Fields:
    """Return a JobSet that a user submits, without a TrainJob."""
    spec = job(name, pods, scheduler=scheduler)["spec"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", **meta},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 2, "template": {"spec": spec}}]},
    }


def staged_trainjob(nodes: int = 3) -> list[Fields]:
    """Return a TrainJob with a launcher that is created later, and its runtime."""

    def job(name: str, **more: Any) -> Fields:
        limits = {"limits": {"nvidia.com/gpu": 1}}
        containers = [{"name": "node", "resources": limits}]
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"} if more == {} else {}
        return {
            "name": name,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"template": {"spec": {"containers": containers}}},
            },
            **more,
        }

    jobs = [job("node"), job("launcher", dependsOn=[{"name": "node", "status": "Ready"}])]
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "staged"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }
    return [trainjob("job", "staged", nodes), runtime]
