"""Pods with shares of GPUs beside pods with whole GPUs on a real chain, from created to running.

A share costs more than a whole GPU: the webhook, a reservation pod for each GPU, labels, and two
ConfigMaps. Both are measured in turns on the same cluster; the ratio is bounded. The GPUs that the
shares use are compared with the fewest that could hold them. In the end all is deleted, and nothing
may be left of it.
"""

import asyncio
import math
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.cluster_pods import (
    IN_FLIGHT,
    SCHEDULER_NAME,
    all_pods,
    create_pods,
    delete_namespace,
    is_running,
    make_namespace,
    share_pod,
)
from benchmarks.process_usage import cpu_s
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.gpu_devices import GPU_GROUP, RESERVATIONS
from e2e.cluster.resources import CONFIG_MAPS, PODS, Obj
from e2e.fixtures.gpu_agents import GpuAgentsProcess, install_runtime_class, running_gpu_agents
from e2e.fixtures.install import install
from e2e.fixtures.processes import (
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)

_NODES: Final = 100  # of 8 GPUs
_WHOLE: Final = 700
_SHARES: Final = 1_000
_ROUNDS: Final = 2
_TENTHS: Final = (1, 9)  # of a GPU, in a share
_SEED: Final = 1
_MOST_TIMES: Final = 4.0  # of the time for a whole GPU
_MOST_WRITES: Final = 5.0  # of the scheduler for a share
_MOST_GPUS: Final = 1.2  # of the fewest that could hold the shares
_GONE_S: Final = 300.0
_FRACTION: Final = "gpu-fraction"
_CONFIG_MAP: Final = "-shared-gpu-"


class _Bench(NamedTuple):
    cluster: Cluster
    scheduler: ProductProcess
    agents: GpuAgentsProcess


class _Work(NamedTuple):
    """Pods that were created until all ran."""

    pods: int
    took_s: float
    cpu_s: float  # of the scheduler
    writes: Counter[str]  # of the scheduler, by verb and kind

    @property
    def each_ms(self) -> float:
        """Return the time for one pod."""
        return self.took_s / self.pods * 1000


class _Round(NamedTuple):
    whole: _Work
    shares: _Work
    used_gpus: int
    fewest_gpus: int
    gone_s: float

    @property
    def times(self) -> float:
        """Return how much longer a share takes than a whole GPU."""
        return self.shares.each_ms / self.whole.each_ms


async def main() -> None:
    """Measure in turns, and print the table."""
    async with _bench() as it:
        rounds = [await _round(it, number) for number in range(_ROUNDS)]
        refused = it.agents.refusals()
    best = min(rounds, key=lambda it: it.times)
    _print_table(best)
    writes = best.shares.writes.total() / _SHARES
    most_gpus = max(it.used_gpus / it.fewest_gpus for it in rounds)
    assert not refused, f"pods came to nodes with too few free devices: {refused[:3]}"
    assert best.times <= _MOST_TIMES, f"a share takes {best.times:.1f} times as long"
    assert writes <= _MOST_WRITES, f"{writes:.2f} writes of the scheduler for a share"
    assert most_gpus <= _MOST_GPUS, f"shares use {most_gpus:.2f} times the fewest GPUs"


@asynccontextmanager
async def _bench() -> AsyncIterator[_Bench]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(Options(name="bench-sharing")))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await cluster.add_nodes(_NODES)
        await install(cluster, port=webhook_port(cluster))
        await install_runtime_class(cluster)
        agents = await stack.enter_async_context(running_gpu_agents(cluster, folder))
        for part in (WEBHOOK, PODGROUPER):
            await stack.enter_async_context(running(cluster, part, folder))
        scheduler = await stack.enter_async_context(running(cluster, SCHEDULER, folder))
        yield _Bench(cluster, scheduler, agents)


async def _round(it: _Bench, number: int) -> _Round:
    whole, shares = f"whole-{number}", f"shares-{number}"
    for namespace in (whole, shares):
        await make_namespace(it.cluster, namespace)
    of_whole = await _measure(
        it, whole, _WHOLE, lambda: create_pods(it.cluster, whole, _WHOLE, SCHEDULER_NAME)
    )
    await delete_namespace(it.cluster, whole)
    random = Random(_SEED + number)  # noqa: S311 - the same shares each time
    pods = _share_pods(shares, random)
    of_shares = await _measure(
        it, shares, _SHARES, lambda: it.cluster.api.create_all(pods, IN_FLIGHT)
    )
    used, fewest = await _gpus(it.cluster, shares)
    gone_s = await _delete_all(it.cluster, shares)
    print(
        f"{_WHOLE} whole GPUs {of_whole.took_s:.1f} s, {_SHARES} shares {of_shares.took_s:.1f} s"
        f" ({of_shares.cpu_s:.1f} s of the scheduler's CPU), all gone {gone_s:.1f} s"
    )
    await delete_namespace(it.cluster, shares)
    return _Round(of_whole, of_shares, used, fewest, gone_s)


def _share_pods(namespace: str, random: Random) -> list[Obj]:
    return [
        share_pod(namespace, f"pod-{i}", f"{random.randint(*_TENTHS) / 10}") for i in range(_SHARES)
    ]


async def _measure(
    it: _Bench, namespace: str, count: int, create: Callable[[], Awaitable[None]]
) -> _Work:
    log = it.cluster.audit
    mark, before_s, began = await log.mark(), cpu_s(it.scheduler), time.monotonic()
    async with all_pods(it.cluster, namespace, count, is_running):
        await create()
    took_s, used_s = time.monotonic() - began, cpu_s(it.scheduler) - before_s
    writes = Counter(
        f"{write.verb} {write.resource}"
        for write in await log.writes(mark)
        if write.user.endswith(SCHEDULER.account) and write.status < 400
    )
    return _Work(count, took_s, used_s, writes)


async def _gpus(cluster: Cluster, namespace: str) -> tuple[int, int]:
    """Return how many GPUs the shares are on, and how many could hold them; none is overfull."""
    pods, _ = await cluster.api.list(PODS, namespace)
    reservations, _ = await cluster.api.list(PODS, RESERVATIONS)
    thousandths: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        place = pod["spec"]["nodeName"], pod["metadata"]["labels"][GPU_GROUP]
        thousandths[place] += round(float(pod["metadata"]["annotations"][_FRACTION]) * 1000)
    assert max(thousandths.values()) <= 1000, "more than all of a GPU was given away"
    assert len(reservations) == len(thousandths), f"{len(reservations)} reservation pods"
    return len(thousandths), math.ceil(thousandths.total() / 1000)


async def _delete_all(cluster: Cluster, namespace: str) -> float:
    """Delete the pods, and return how long it takes until nothing is left of their shares."""
    began = time.monotonic()
    await cluster.api.kill_pods(namespace)
    left = await _left(cluster, namespace)
    while any(left.values()):
        if time.monotonic() - began > _GONE_S:
            raise RuntimeError(f"after {_GONE_S:.0f} s these are left: {left}")
        await asyncio.sleep(0.3)
        left = await _left(cluster, namespace)
    return time.monotonic() - began


async def _left(cluster: Cluster, namespace: str) -> dict[str, int]:
    pods, _ = await cluster.api.list(PODS)
    maps, _ = await cluster.api.list(CONFIG_MAPS, namespace)
    labels = [name for pod in pods for name in pod["metadata"].get("labels", {})]
    return {
        "reservation pods": sum(it["metadata"]["namespace"] == RESERVATIONS for it in pods),
        "labels of groups": sum(it.startswith(GPU_GROUP) for it in labels),
        "ConfigMaps": sum(_CONFIG_MAP in it["metadata"]["name"] for it in maps),
    }


def _print_table(best: _Round) -> None:
    title = f"{_NODES} nodes of 8 GPUs, created → all running, the best of {_ROUNDS} rounds"
    table = Table(title=title)
    for heading in ("work", "seconds", "ms a pod", "times", "CPU ms a pod", "writes a pod"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    for work, it, times in (
        (f"{_WHOLE} pods with a whole GPU", best.whole, 1.0),
        (f"{_SHARES} pods with 0.1 to 0.9 of a GPU", best.shares, best.times),
    ):
        table.add_row(
            work,
            f"{it.took_s:.2f}",
            f"{it.each_ms:.1f}",
            f"{times:.2f}",
            f"{it.cpu_s / it.pods * 1000:.1f}",
            f"{it.writes.total() / it.pods:.2f}",
        )
    Console(width=115).print(table)
    for name, it in (("whole GPU", best.whole), ("share", best.shares)):
        each = ", ".join(f"{write} {n / it.pods:.2f}" for write, n in it.writes.most_common())
        print(f"writes of the scheduler for a pod with a {name}: {each}")
    print(
        f"{best.used_gpus} GPUs for shares that {best.fewest_gpus} could hold: "
        f"{best.used_gpus / best.fewest_gpus:.2f} times"
    )
    print(
        "after the deletion of all pods no reservation pod, label or ConfigMap is left after "
        f"{best.gone_s:.1f} s"
    )
