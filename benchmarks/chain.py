"""The ground the product is measured on: how fast the chain is with nothing of ours in it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console
from rich.table import Table

from e2e.cluster import resources
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, Obj
from e2e.cluster.together import together
from e2e.cluster.trainjobs import Submission

__all__ = ["main"]

_PODS: Final = 600
_NODES: Final = 100
_TRAINJOBS: Final = 75
_IN_FLIGHT: Final = 32
_PATIENCE_S: Final = 120.0


async def main() -> None:
    """Measure, check each outcome, and print the table."""
    began = time.monotonic()
    async with running_cluster(Options(name="bench", kube_scheduler=True)) as cluster:
        ready_s = time.monotonic() - began
        await cluster.add_nodes(_NODES)
        create_s = await _seconds(_create_pods(cluster, "floor", scheduler="nobody"))
        bind_s = await _seconds(_bind_pods(cluster, "floor"))
        await _drop(cluster, "floor")
        scheduled_s = await _seconds(_create_and_wait(cluster, "scheduled"))
        await _drop(cluster, "scheduled")
        trainjobs_s = await _seconds(_submit_and_wait(cluster, "trained"))
        await _drop(cluster, "trained")
        await cluster.process("kube-scheduler").kill()
        exist_s = await _seconds(_submit(cluster, "existing"))
    floor_s = max(create_s, bind_s)  # whoever schedules can do both at once
    table = Table(title="the chain alone, this machine, this run")
    for heading in ("work", "seconds", "per second", "times the floor"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    table.add_row("the chain from nothing to ready", f"{ready_s:.1f}", "", "")
    table.add_row(f"create {_PODS} pods, {_IN_FLIGHT} in flight", *_figures(create_s))
    table.add_row(f"bind {_PODS} pods, {_IN_FLIGHT} in flight", *_figures(bind_s))
    what = f"kube-scheduler: {_PODS} pods on {_NODES} nodes, create → all bound"
    table.add_row(what, *_figures(scheduled_s, floor_s))
    what = f"{_TRAINJOBS} TrainJobs of 8 pods, submit → all pods exist"
    table.add_row(what, *_figures(exist_s))
    what = f"kube-scheduler: {_TRAINJOBS} TrainJobs of 8 pods, submit → all bound"
    table.add_row(what, *_figures(trainjobs_s, exist_s))
    Console(width=115).print(table)


def _figures(seconds: float, floor_s: float | None = None) -> tuple[str, str, str]:
    ratio = "floor" if floor_s is None else f"{seconds / floor_s:.1f}"
    return f"{seconds:.2f}", f"{_PODS / seconds:.0f}", ratio


async def _seconds(work: Awaitable[None]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def _create_pods(cluster: Cluster, namespace: str, scheduler: str) -> None:
    await _make_namespace(cluster, namespace)
    pods = [_pod(namespace, f"pod-{i}", scheduler) for i in range(_PODS)]
    await cluster.api.create_all(pods, _IN_FLIGHT)


async def _bind_pods(cluster: Cluster, namespace: str) -> None:
    binds = (
        cluster.api.bind(namespace, f"pod-{number}", f"node-{number % _NODES}")
        for number in range(_PODS)
    )
    await together(binds, _IN_FLIGHT)
    pods, _ = await cluster.api.list(PODS, namespace)
    assert all(_is_bound(pod) for pod in pods)


async def _create_and_wait(cluster: Cluster, namespace: str) -> None:
    async with _all_pods(cluster, namespace, _is_bound):
        await _create_pods(cluster, namespace, "default-scheduler")


async def _submit_and_wait(cluster: Cluster, namespace: str) -> None:
    async with _all_pods(cluster, namespace, _is_bound):
        await _submit_trainjobs(cluster, namespace)


async def _submit(cluster: Cluster, namespace: str) -> None:
    async with _all_pods(cluster, namespace, lambda _pod: True):
        await _submit_trainjobs(cluster, namespace)


async def _submit_trainjobs(cluster: Cluster, namespace: str) -> None:
    await _make_namespace(cluster, namespace)
    jobs = [
        Submission(f"job-{i}", "torch-distributed", namespace, num_nodes=8, gpus=1)
        for i in range(_TRAINJOBS)
    ]
    await cluster.api.create_all([job.trainjob() for job in jobs], _IN_FLIGHT)


@asynccontextmanager
async def _all_pods(
    cluster: Cluster, namespace: str, true_of: Callable[[Obj], bool]
) -> AsyncIterator[None]:
    """Do the work and wait for its outcome on a watch; without the outcome there is no figure."""
    arrived: set[str] = set()
    query = {"watch": "true", "timeoutSeconds": f"{_PATIENCE_S:.0f}"}
    async with cluster.api.stream(PODS.path(namespace), query) as lines:
        # Beside the work: the API server cuts off a watcher that does not keep reading.
        reading = asyncio.create_task(_collect(lines, true_of, arrived))
        try:
            yield
            await reading
        finally:
            reading.cancel()
    if len(arrived) < _PODS:
        message = f"the watch ended when {len(arrived)} of {_PODS} pods in {namespace} were there"
        raise RuntimeError(message)


async def _collect(
    lines: AsyncIterator[bytes], true_of: Callable[[Obj], bool], arrived: set[str]
) -> None:
    """Add the names of the pods that something is true of, until they are all."""
    async for line in lines:
        pod = json.loads(line)["object"]
        if true_of(pod):
            arrived.add(pod["metadata"]["name"])
        if len(arrived) == _PODS:
            return


def _is_bound(pod: Obj) -> bool:
    return "nodeName" in pod["spec"]


async def _make_namespace(cluster: Cluster, name: str) -> None:
    await cluster.api.create(resources.namespace(name))
    await cluster.until_found(SERVICE_ACCOUNTS, name, "default")


async def _drop(cluster: Cluster, namespace: str) -> None:
    """Free the GPUs; bound pods that are deleted are gone once KWOK has seen it."""
    await cluster.api.delete(NAMESPACES, None, namespace)
    async with asyncio.timeout(_PATIENCE_S):
        while (await cluster.api.list(PODS, namespace))[0]:
            await asyncio.sleep(0.05)


def _pod(namespace: str, name: str, scheduler: str) -> Obj:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }
