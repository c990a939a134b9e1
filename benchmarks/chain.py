"""How fast the chain is by itself, without our processes: what the product is compared with."""

import time
from collections.abc import Awaitable
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.cluster_pods import (
    IN_FLIGHT,
    all_pods,
    create_pods,
    delete_namespace,
    is_bound,
    make_namespace,
    submit_trainjobs,
)
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import PODS
from e2e.cluster.together import together

_PODS: Final = 600
_NODES: Final = 100
_TRAINJOBS: Final = 75


async def main() -> None:
    """Measure, check each outcome, and print the table."""
    began = time.monotonic()
    async with running_cluster(Options(name="bench", kube_scheduler=True)) as cluster:
        ready_s = time.monotonic() - began
        await cluster.add_nodes(_NODES)
        create_s = await _seconds(_create_pods(cluster, "floor", scheduler="nobody"))
        bind_s = await _seconds(_bind_pods(cluster, "floor"))
        await delete_namespace(cluster, "floor")
        scheduled_s = await _seconds(_create_and_wait(cluster, "scheduled"))
        await delete_namespace(cluster, "scheduled")
        trainjobs_s = await _seconds(_submit_and_wait(cluster, "trained"))
        await delete_namespace(cluster, "trained")
        await cluster.process("kube-scheduler").kill()
        exist_s = await _seconds(_submit(cluster, "existing"))
    floor_s = max(create_s, bind_s)  # a scheduler can do both at once
    table = Table(title="the chain alone, this machine, this run")
    for heading in ("work", "seconds", "per second", "times the floor"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    table.add_row("the chain from nothing to ready", f"{ready_s:.1f}", "", "")
    table.add_row(f"create {_PODS} pods, {IN_FLIGHT} in flight", *_figures(create_s))
    table.add_row(f"bind {_PODS} pods, {IN_FLIGHT} in flight", *_figures(bind_s))
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
    await make_namespace(cluster, namespace)
    await create_pods(cluster, namespace, _PODS, scheduler)


async def _bind_pods(cluster: Cluster, namespace: str) -> None:
    binds = (
        cluster.api.bind(namespace, f"pod-{number}", f"node-{number % _NODES}")
        for number in range(_PODS)
    )
    await together(binds, IN_FLIGHT)
    pods, _ = await cluster.api.list(PODS, namespace)
    assert all(is_bound(pod) for pod in pods)


async def _create_and_wait(cluster: Cluster, namespace: str) -> None:
    async with all_pods(cluster, namespace, _PODS, is_bound):
        await _create_pods(cluster, namespace, "default-scheduler")


async def _submit_and_wait(cluster: Cluster, namespace: str) -> None:
    async with all_pods(cluster, namespace, _PODS, is_bound):
        await _submit_trainjobs(cluster, namespace)


async def _submit(cluster: Cluster, namespace: str) -> None:
    async with all_pods(cluster, namespace, _PODS, lambda _pod: True):
        await _submit_trainjobs(cluster, namespace)


async def _submit_trainjobs(cluster: Cluster, namespace: str) -> None:
    await make_namespace(cluster, namespace)
    await submit_trainjobs(cluster, namespace, _TRAINJOBS)
