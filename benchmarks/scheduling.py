"""From created to bound on a real chain, by our processes and by kube-scheduler, in turns.

kube-scheduler knows no gangs and no queues: it is how fast one scheduler may be here. Both run all
the time, each for pods that name it; the times are those of a watch of the pods.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks.cluster_pods import (
    SCHEDULER_NAME,
    all_pods,
    create_jobs,
    create_podgroup,
    create_pods,
    delete_namespace,
    first_pod_at,
    is_bound,
    make_namespace,
    podgroup_pod,
    submit_trainjobs,
)
from benchmarks.process_usage import cpu_s, most_memory_mib
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import PODS
from e2e.fixtures.install import PODGROUPS, install
from e2e.fixtures.processes import (
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)

_ROUNDS: Final = 5  # the first scheduler alternates: a slower machine slows both
_GANGS: Final = 200
_KEPT_GANGS: Final = 50  # gangs that run at the same time, so that their status is written
_OUR_SCHEDULER: Final = SCHEDULER_NAME
_KUBE_SCHEDULER: Final = "default-scheduler"
_QUEUE: Final = "default-queue"
_OPT_OUT: Final = "trainer-kai.dev__inject"
_Workload: TypeAlias = Callable[[str], Awaitable[float]]  # given the scheduler to use
_names = iter(range(1_000_000))


class _Bench(NamedTuple):
    cluster: Cluster
    ours: list[ProductProcess]  # all three processes


class _Row(NamedTuple):
    """One row of the table: the work, our times, those of kube-scheduler, and the limit."""

    work: str
    ours_s: list[float]
    theirs_s: list[float]
    cpu_s: list[float]  # of all our processes during the work
    limit: float  # as a multiple of kube-scheduler's time

    @property
    def times(self) -> float:
        """Return how much longer we took."""
        return statistics.median(self.ours_s) / statistics.median(self.theirs_s)


class _Gangs(NamedTuple):
    """Many gangs, one after the other."""

    took_s: list[float]  # from the shortest to the longest
    writes: float  # of the scheduler, per pod

    def percentile(self, hundredths: int) -> float:
        """Return a percentile of the times."""
        return self.took_s[len(self.took_s) * hundredths // 100]


async def main() -> None:
    """Measure row by row; assert each at the end."""
    rows = []
    async with _bench(100) as it:
        rows.append(await _row(it, "600 pods on 100 nodes", _plain_pods(it, 600), 1.0))
        rows.append(await _row(it, "75 TrainJobs of 8 on 100 nodes", _trainjobs(it, 75), 1.2))
        rows.append(await _row(it, "600 Jobs, first pod created → all bound", _jobs(it, 600), 1.2))
        gangs_s, writes = await _gangs(it)
    async with _bench(500) as it:
        rows.append(await _row(it, "4,000 pods on 500 nodes", _plain_pods(it, 4_000), 1.0))
        status_s = await _status_delay(it)
        memory_mib = [most_memory_mib(one) for one in it.ours]
    _print_table(rows, _Gangs(sorted(gangs_s), writes), status_s, memory_mib)


@asynccontextmanager
async def _bench(nodes: int) -> AsyncIterator[_Bench]:
    async with AsyncExitStack() as stack:
        options = Options(name="bench-scheduled", kube_scheduler=True)
        cluster = await stack.enter_async_context(running_cluster(options))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await cluster.add_nodes(nodes)
        await install(cluster, port=webhook_port(cluster))
        parts = [
            await stack.enter_async_context(running(cluster, part, folder))
            for part in (WEBHOOK, PODGROUPER, SCHEDULER)
        ]
        yield _Bench(cluster, parts)


async def _row(it: _Bench, work: str, run_workload: _Workload, limit: float) -> _Row:
    row = _Row(work, [], [], [], limit)
    for number in range(_ROUNDS):
        for scheduler in (
            (_KUBE_SCHEDULER, _OUR_SCHEDULER)
            if number % 2 == 0
            else (_OUR_SCHEDULER, _KUBE_SCHEDULER)
        ):
            before_s = _cpu_s(it)
            took_s = await run_workload(scheduler)
            (row.ours_s if scheduler == _OUR_SCHEDULER else row.theirs_s).append(took_s)
            if scheduler == _OUR_SCHEDULER:
                row.cpu_s.append(_cpu_s(it) - before_s)
        print(f"{work}: kube-scheduler {row.theirs_s[-1]:.2f} s, ours {row.ours_s[-1]:.2f} s")
    return row


def _cpu_s(it: _Bench) -> float:
    return sum(map(cpu_s, it.ours))


def _plain_pods(it: _Bench, count: int) -> _Workload:
    async def run_workload(scheduler: str) -> float:
        namespace = f"bare-{next(_names)}"
        await make_namespace(it.cluster, namespace)
        began = time.monotonic()
        async with all_pods(it.cluster, namespace, count, is_bound):
            await create_pods(it.cluster, namespace, count, scheduler)
        took_s = time.monotonic() - began
        await delete_namespace(it.cluster, namespace)
        return took_s

    return run_workload


def _trainjobs(it: _Bench, count: int) -> _Workload:
    async def run_workload(scheduler: str) -> float:
        namespace = f"trained-{next(_names)}"
        labels = {_OPT_OUT: "disabled"} if scheduler == _KUBE_SCHEDULER else {}
        await make_namespace(it.cluster, namespace, **labels)
        began = time.monotonic()
        async with all_pods(it.cluster, namespace, count * 8, is_bound):
            queue = {"kai.scheduler/queue": _QUEUE} if scheduler == _OUR_SCHEDULER else None
            await submit_trainjobs(it.cluster, namespace, count, queue)
        took_s = time.monotonic() - began
        await delete_namespace(it.cluster, namespace)
        return took_s

    return run_workload


def _jobs(it: _Bench, count: int) -> _Workload:
    """Measure from the first pod, so that the time that Jobs need to be created counts for none."""

    async def run_workload(scheduler: str) -> float:
        namespace = f"jobs-{next(_names)}"
        await make_namespace(it.cluster, namespace)
        first = asyncio.create_task(first_pod_at(it.cluster, namespace))
        async with all_pods(it.cluster, namespace, count, is_bound):
            await create_jobs(it.cluster, namespace, count, scheduler)
        took_s = time.monotonic() - await first
        await delete_namespace(it.cluster, namespace)
        return took_s

    return run_workload


async def _gangs(it: _Bench) -> tuple[list[float], float]:
    """Return for many gangs of four how long the last bind came after the last pod was made."""
    namespace = f"gangs-{next(_names)}"
    await make_namespace(it.cluster, namespace)
    log = it.cluster.audit
    mark = await log.mark()
    took_s = []
    for number in range(_GANGS):
        await create_podgroup(it.cluster, namespace, f"g{number}", 4)
        async with all_pods(it.cluster, namespace, 4, _is_bound_in(f"g{number}")):
            for i in range(4):
                await it.cluster.api.create(podgroup_pod(namespace, f"g{number}", i))
            began = time.monotonic()
        took_s.append(time.monotonic() - began)
        if number >= _KEPT_GANGS:
            await _delete_gang(it.cluster, namespace, f"g{number - _KEPT_GANGS}")
        await asyncio.sleep(0.05)
    await asyncio.sleep(5)  # until their last status is written
    writes = await log.count(mark)
    ours = sum(n for (user, _), n in writes.items() if user.endswith("trainer-kai-scheduler"))
    await delete_namespace(it.cluster, namespace)
    return took_s, ours / (4 * _GANGS)


async def _delete_gang(cluster: Cluster, namespace: str, group: str) -> None:
    """Delete a gang, its PodGroup first: else places are reserved for its lost pods."""
    await cluster.api.delete(PODGROUPS, namespace, group)
    for i in range(4):
        await cluster.api.delete(PODS, namespace, f"{group}-{i}")


async def _status_delay(it: _Bench) -> float:
    """Return how long it takes until the status of a gang on a full cluster has its reason."""
    namespace = f"full-{next(_names)}"
    await make_namespace(it.cluster, namespace)
    async with all_pods(it.cluster, namespace, 4_000, is_bound):
        await create_pods(it.cluster, namespace, 4_000, _KUBE_SCHEDULER)
    await asyncio.sleep(5)
    await create_podgroup(it.cluster, namespace, "late", 80)
    pods = [podgroup_pod(namespace, "late", i) for i in range(80)]
    await it.cluster.api.create_all(pods, 32)
    began = time.monotonic()
    query = {"watch": "true", "fieldSelector": "metadata.name=late"}
    async with it.cluster.api.stream(PODGROUPS.path(namespace), query) as lines:
        async for line in lines:
            status: dict[str, Any] = json.loads(line)["object"].get("status", {})
            reasons = [
                one["reasons"][-1]["reason"] for one in status.get("schedulingConditions", [])
            ]
            if reasons == ["NoCapacity"]:
                return time.monotonic() - began
    raise RuntimeError("nobody said why it waits")


def _is_bound_in(group: str) -> Callable[[dict[str, Any]], bool]:
    return lambda it: is_bound(it) and it["metadata"]["name"].startswith(f"{group}-")


def _print_table(rows: list[_Row], gangs: _Gangs, status_s: float, memory_mib: list[int]) -> None:
    table = Table(title="created → all bound, min / median / max, this run")
    for heading in ("work", "kube-scheduler s", "ours s", "times", "our CPU s"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    for row in rows:
        times, cpu = f"{row.times:.2f}", f"{statistics.median(row.cpu_s):.1f}"
        table.add_row(row.work, _spread(row.theirs_s), _spread(row.ours_s), times, cpu)
    p50_ms, p99_ms = gangs.percentile(50) * 1000, gangs.percentile(99) * 1000
    work = f"a gang of 4, idle, {len(gangs.took_s)} of them, last made → last bound"
    table.add_row(work, "", f"p50 {p50_ms:.0f} ms, p99 {p99_ms:.0f} ms")
    table.add_row("writes of the scheduler for each of their pods", "", f"{gangs.writes:.2f}")
    table.add_row("80 pods on 500 full nodes, last made → its reason", "", f"{status_s:.2f}")
    memory = " + ".join(map(str, memory_mib))
    table.add_row("memory of webhook, podgrouper, scheduler", "", f"{memory} MiB")
    Console(width=125).print(table)
    for row in rows:
        assert row.times <= row.limit, f"{row.work}: {row.times:.2f} times kube-scheduler"
    assert p50_ms <= 60, f"half of the gangs took longer than {p50_ms:.0f} ms"
    assert p99_ms <= 200, f"one gang of a hundred took longer than {p99_ms:.0f} ms"
    assert gangs.writes <= 1.3, f"{gangs.writes:.2f} writes a pod"
    assert status_s <= 1.0, f"the reason took {status_s:.2f} s"


def _spread(seconds: list[float]) -> str:
    return f"{min(seconds):.2f} / {statistics.median(seconds):.2f} / {max(seconds):.2f}"
