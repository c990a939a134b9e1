"""Pods on a real chain: created directly or by TrainJobs, and waited for on a watch."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from e2e.cluster import resources
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import JOBS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Obj
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS

IN_FLIGHT: Final = 32
SCHEDULER_NAME: Final = "kai-scheduler"
_TIMEOUT_S: Final = 300.0


async def make_namespace(cluster: Cluster, name: str, **labels: str) -> None:
    """Make a namespace, and wait until pods can be made in it."""
    namespace = resources.namespace(name)
    namespace["metadata"]["labels"] = {key.replace("__", "/"): it for key, it in labels.items()}
    await cluster.api.create(namespace)
    await cluster.until_found(SERVICE_ACCOUNTS, name, "default")


async def create_pods(cluster: Cluster, namespace: str, count: int, scheduler: str) -> None:
    """Create pods of one GPU."""
    pods = [pod(namespace, f"pod-{i}", scheduler) for i in range(count)]
    await cluster.api.create_all(pods, IN_FLIGHT)


async def submit_trainjobs(
    cluster: Cluster, namespace: str, count: int, labels: Mapping[str, str] | None = None
) -> None:
    """Submit TrainJobs of eight pods of one GPU."""
    jobs = [
        Submission(f"job-{i}", "torch-distributed", namespace, 8, 1, labels=labels or {})
        for i in range(count)
    ]
    await cluster.api.create_all([job.trainjob() for job in jobs], IN_FLIGHT)


async def create_jobs(cluster: Cluster, namespace: str, count: int, scheduler: str) -> None:
    """Create Jobs of one pod of one GPU each."""
    jobs = [_job(namespace, f"job-{i}", scheduler) for i in range(count)]
    await cluster.api.create_all(jobs, IN_FLIGHT)


async def first_pod_at(cluster: Cluster, namespace: str) -> float:
    """Wait for the first pod of a namespace; return when it was seen, on the monotonic clock."""
    await _collect(cluster, namespace, 1, lambda _pod: True, set())
    return time.monotonic()


@asynccontextmanager
async def all_pods(
    cluster: Cluster, namespace: str, count: int, is_met: Callable[[Obj], bool]
) -> AsyncIterator[None]:
    """Do the work and wait for its outcome on a watch; without the outcome there is no figure."""
    arrived: set[str] = set()
    # Beside the work: the API server cuts off a watcher that does not keep reading.
    collecting = asyncio.create_task(_collect(cluster, namespace, count, is_met, arrived))
    try:
        yield
        async with asyncio.timeout(_TIMEOUT_S):
            await collecting
    except TimeoutError as error:
        message = f"{len(arrived)} of {count} pods in {namespace} were there in time"
        raise RuntimeError(message) from error
    finally:
        collecting.cancel()


async def _collect(
    cluster: Cluster,
    namespace: str,
    count: int,
    is_met: Callable[[Obj], bool],
    arrived: set[str],
) -> None:
    """Collect the names of the pods that meet a condition, until all do."""
    while True:
        pods, version = await cluster.api.list(PODS, namespace)
        arrived.update(it["metadata"]["name"] for it in pods if is_met(it))
        if len(arrived) >= count:
            return
        query = {"watch": "true", "resourceVersion": version}
        async with cluster.api.stream(PODS.path(namespace), query) as lines:
            async for line in lines:  # until it ends, as watches do now and then
                event = json.loads(line)
                if event["type"] != "ERROR" and is_met(event["object"]):
                    arrived.add(event["object"]["metadata"]["name"])
                if len(arrived) >= count:
                    return


def is_bound(obj: Obj) -> bool:
    """Say whether a pod has a node."""
    return "nodeName" in obj["spec"]


def is_running(obj: Obj) -> bool:
    """Say whether a pod runs."""
    return bool(obj["status"].get("phase") == "Running")


async def create_podgroup(cluster: Cluster, namespace: str, name: str, members: int) -> None:
    """Make a PodGroup of the default queue."""
    podgroup = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"queue": "default-queue", "minMember": members},
    }
    await cluster.api.request("POST", PODGROUPS.path(namespace), podgroup)


def podgroup_pod(namespace: str, podgroup: str, number: int) -> Obj:
    """Return a pod of a PodGroup, for our scheduler."""
    annotations = {"pod-group-name": podgroup}
    return pod(namespace, f"{podgroup}-{number}", SCHEDULER_NAME, annotations=annotations)


async def delete_namespace(cluster: Cluster, namespace: str) -> None:
    """Free the GPUs: delete a namespace, and wait until its objects are gone.

    KWOK would end bound pods one by one; so they are deleted by force.
    """
    api = cluster.api
    await api.delete(NAMESPACES, None, namespace)
    async with asyncio.timeout(_TIMEOUT_S):
        while any(it["metadata"]["name"] == namespace for it in (await api.list(NAMESPACES))[0]):
            await api.kill_pods(namespace)
            await asyncio.sleep(0.2)


def pod(namespace: str, name: str, scheduler: str, **meta: Any) -> Obj:
    """Return a pod of one GPU."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, **meta},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def _job(namespace: str, name: str, scheduler: str) -> Obj:
    template = pod(namespace, name, scheduler)["spec"]
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": {**template, "restartPolicy": "Never"}}},
    }


def share_pod(namespace: str, name: str, fraction: str) -> Obj:
    """Return a pod with a part of a GPU, for our scheduler."""
    shared = pod(namespace, name, SCHEDULER_NAME, annotations={"gpu-fraction": fraction})
    del shared["spec"]["containers"][0]["resources"]
    return shared
