"""How long the event loop is blocked by a plan: made in a thread, or in a process of its own.

The cluster is that of `incremental`. Measured is the time from a snapshot to its plan, and how long
at a stretch the event loop, which must read watches and renew the lease, is blocked meanwhile: the
median of the rounds, and the worst, which depends on the machine as much as on us. The snapshot is
sent to the process, and the plan is sent back.
"""

import asyncio
import gc
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks.large_cluster import NODES, PODS, PODS_EACH, large_cluster
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from trainer_kai.service.garbage_collection import freeze_known_objects, without_collection

_OPTIONS: Final = StateOptions(now=1_800_000_000)
_WAITING: Final = (10, 10_000)  # gangs
_ROUNDS: Final = 7
_TICK_S: Final = 0.001
_MOST_S: Final = 0.1  # that a watch, the lease or a health check may have to wait
_Planner: TypeAlias = Callable[[Snapshot], Awaitable[Plan]]


class _Measurement(NamedTuple):
    """What was measured in one round."""

    plan_s: float
    blocked_s: float


async def main() -> None:
    """Plan for few and for many waiting gangs, in a thread and in a process."""
    table = Table(title=f"from a snapshot to its plan, {PODS:,} pods on {NODES:,} nodes, this run")
    blocked = "event loop held up", "at most"
    for heading in ("gangs that wait", "where", "best", *blocked):
        table.add_column(heading, justify="left" if heading == "where" else "right")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for waiting in _WAITING:
            snapshot = _snapshot(waiting)
            threads = await _rounds(snapshot, waiting, _plan_in_thread)
            processes = await _rounds(snapshot, waiting, _planner_in_process(pool))
            for place, measurements in (("thread", threads), ("process", processes)):
                blocked_s = sorted(it.blocked_s for it in measurements)
                figures = min(measurements).plan_s, median(blocked_s), blocked_s[-1]
                shown = (f"{1000 * seconds:.1f} ms" for seconds in figures)
                table.add_row(f"{waiting:,}", place, *shown)
            usual_s = median(it.blocked_s for it in threads)
            assert usual_s <= _MOST_S, f"the event loop was held up for {usual_s * 1000:.0f} ms"
            gc.unfreeze()
    Console(width=105).print(table)


def _snapshot(waiting: int) -> Snapshot:
    state = ClusterState(_OPTIONS)
    state.put_all(large_cluster(PODS - waiting * PODS_EACH))
    snapshot = state.snapshot(_OPTIONS.now).snapshot
    freeze_known_objects()
    return snapshot


async def _rounds(snapshot: Snapshot, waiting: int, planner: _Planner) -> list[_Measurement]:
    measurements = []
    await planner(snapshot)  # a process has to be started, once
    for _ in range(_ROUNDS):
        async with _measure_lateness() as late_s:
            began = time.perf_counter()
            result = await planner(snapshot)
            took_s = time.perf_counter() - began
        assert len(result.allocations) == waiting
        measurements.append(_Measurement(took_s, max(late_s)))
    return measurements


@asynccontextmanager
async def _measure_lateness() -> AsyncIterator[list[float]]:
    """Measure how late the event loop is, again and again."""
    late_s = [0.0]

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            late_s.append(time.perf_counter() - began - _TICK_S)

    watching = asyncio.create_task(watch())
    try:
        yield late_s
        await asyncio.sleep(2 * _TICK_S)  # so that it can record how late it was
    finally:
        watching.cancel()


async def _plan_in_thread(snapshot: Snapshot) -> Plan:
    with without_collection():
        return await asyncio.to_thread(_plan, snapshot)


def _planner_in_process(pool: ProcessPoolExecutor) -> _Planner:
    async def planner(snapshot: Snapshot) -> Plan:
        return await asyncio.get_running_loop().run_in_executor(pool, _plan, snapshot)

    return planner


def _plan(snapshot: Snapshot) -> Plan:
    return plan(snapshot, build_policies(PolicySelection()))
