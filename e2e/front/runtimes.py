"""Runtimes of a test's own, made from shipped ones, and the pods that came of a JobSet."""

import asyncio
import json
import re
from typing import Any

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CLUSTER_RUNTIMES, PODS, RUNTIMES, Obj

__all__ = ["make_runtime", "pods_of", "without_random"]

_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_UID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_RANDOM = re.compile(rf"{_UID}|kube-api-access-\w{{5}}")


async def make_runtime(
    cluster: Cluster,
    namespace: str,
    name: str = "own",
    *,
    base: str = "torch-distributed",
    **parts: Any,
) -> None:
    """Make a TrainingRuntime like a shipped one, with other *parts*.

    They are `policy`, `labels` of the JobSet, `pod_labels` and `pod_annotations` of all pods,
    `schedulers` by replicatedJob, and `restarts`: how often a pod may fail, and all begin anew.
    """
    shipped = await cluster.api.get(CLUSTER_RUNTIMES, None, base)
    spec: Obj = shipped["spec"]
    template = spec["template"]
    if "policy" in parts:
        spec["podGroupPolicy"] = parts["policy"]
    template.setdefault("metadata", {})["labels"] = dict(parts.get("labels", {}))
    if "restarts" in parts:
        template["spec"]["failurePolicy"] = {"maxRestarts": parts["restarts"]}
    schedulers: dict[str, str] = parts.get("schedulers", {})
    for job in template["spec"]["replicatedJobs"]:
        pods = job["template"]["spec"]["template"]
        metadata = pods.setdefault("metadata", {})
        metadata["labels"] = dict(parts.get("pod_labels", {}))
        metadata["annotations"] = dict(parts.get("pod_annotations", {}))
        if "restarts" in parts:
            job["template"]["spec"]["backoffLimit"] = 0
        if schedulers.get(job["name"]):
            pods["spec"]["schedulerName"] = schedulers[job["name"]]
    made = {
        "apiVersion": RUNTIMES.api_version,
        "kind": RUNTIMES.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }
    await cluster.api.request(
        "POST", RUNTIMES.path(namespace), made, query={"fieldValidation": "Strict"}
    )


async def pods_of(cluster: Cluster, namespace: str, jobset: str) -> list[str]:
    """Wait for the two pods of a JobSet; return their metadata and spec, without what is random."""
    while True:
        pods, _ = await cluster.api.list(PODS, namespace, labelSelector=f"{_JOBSET}={jobset}")
        if len(pods) == 2:
            return sorted(_pod_without_random(pod, namespace) for pod in pods)
        await asyncio.sleep(0.05)


def _pod_without_random(pod: Obj, namespace: str) -> str:
    meta = pod["metadata"]
    kept = {
        "labels": {k: v for k, v in meta["labels"].items() if not k.endswith("job-key")},
        "annotations": {k: v for k, v in meta["annotations"].items() if not k.endswith("job-key")},
        "spec": {**pod["spec"], "volumes": [], "containers": pod["spec"]["containers"][0]["name"]},
    }
    return without_random(kept, namespace)


def without_random(obj: Obj, namespace: str) -> str:
    """Write an object without its namespace and without what is random."""
    return _RANDOM.sub("RANDOM", json.dumps(obj, sort_keys=True).replace(namespace, "NAMESPACE"))
