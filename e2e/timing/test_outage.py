"""All our processes are down under load: other workloads are not affected, ours catch up."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import JOBSETS, PODS, TRAINJOBS
from e2e.cluster.timeline import State, Timeline
from e2e.conftest import failed, make_namespace
from e2e.fixtures.install import PODGROUPS, install
from e2e.fixtures.podgroups import PODGROUP, pods_in
from e2e.fixtures.processes import (
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)
from e2e.fixtures.trainjobs import Job, complete, is_suspended, on_nodes, submit
from e2e.timing.other_workloads import Latencies, create_other_workloads

pytestmark = pytest.mark.serial  # latencies of others are measured

_NAMESPACE: Final = "train"
_OTHERS: Final = "others"
_EVERY_S: Final = 0.3
_LONG_RUNNING: Final = ("foreground", "background", "orphaned", "held")


class OutageInstallation(NamedTuple):
    """A chain, and our processes on it."""

    cluster: Cluster
    processes: tuple[ProductProcess, ...]

    async def restart(self) -> None:
        """Start whoever does not run."""
        await asyncio.gather(*(it.start() for it in self.processes if it.process.identity is None))


@pytest_asyncio.fixture(loop_scope="session")
async def outage_installation(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[OutageInstallation]:
    """Return a chain of the test's own."""
    async with running_cluster(Options(name="test-away")) as cluster, AsyncExitStack() as stack:
        await cluster.add_nodes(4, NodeShape(gpus=8))
        await install(cluster, port=webhook_port(cluster))
        parts = (WEBHOOK, PODGROUPER, SCHEDULER)
        ours = [await stack.enter_async_context(running(cluster, it, tmp_path)) for it in parts]
        for name in (_NAMESPACE, _OTHERS):
            await make_namespace(cluster, name)
        yield OutageInstallation(cluster, tuple(ours))
        if failed(request.node):
            cluster.keep_logs()


class _Load:
    """TrainJobs that come all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.names: list[str] = []
        self._cluster = cluster

    async def run(self) -> None:
        for i in itertools.count():
            await submit(self._cluster, _NAMESPACE, Job(f"job-{i:03}", "default-queue", 2, "1s"))
            self.names.append(f"job-{i:03}")
            await asyncio.sleep(_EVERY_S)


async def test_other_workloads_are_not_affected_by_an_outage(
    outage_installation: OutageInstallation, latency_table: list[tuple[str, ...]]
) -> None:
    """Others are made as fast as ever, TrainJobs end as they are told to; then all converge."""
    cluster = outage_installation.cluster
    mark = await cluster.audit.mark()
    followed = (TRAINJOBS, JOBSETS, PODGROUPS, PODS)
    async with (
        cluster.timeline(PODS, namespace=_OTHERS) as others,
        cluster.timeline(*followed, namespace=_NAMESPACE) as seen,
    ):
        for name in _LONG_RUNNING:
            await submit(cluster, _NAMESPACE, Job(name, "default-queue", 2))
        await seen.until(
            _all(on_nodes(name, 2) for name in _LONG_RUNNING), "four TrainJobs run", 60
        )
        load = _Load(cluster)
        coming = asyncio.create_task(load.run())
        try:
            took = await _phases(outage_installation, others)
            await _end_them(cluster, seen)
            waiting = set(load.names) - _jobsets(seen.state)
        finally:
            coming.cancel()
            await outage_installation.restart()
        await seen.until(complete(*load.names), "all that came is Complete", 120)
        await cluster.api.merge(TRAINJOBS, _NAMESPACE, "held", {"spec": {"suspend": False}})
        await seen.until(on_nodes("held", 2), "whoever was held runs again")
        assert on_nodes("orphaned", 2)(seen.state)
        pods = {it.key: it.obj for it in seen.history() if it.key.resource == PODS}
        # The machine may be slower by now than it was before: what is usual is measured again.
        took["we are back"] = await create_other_workloads(cluster, others, _OTHERS, "back")

    unanswered = {it.namespace for it in await cluster.audit.writes(mark) if it.failed_open}
    latency_table += [(phase, *it.histogram()) for phase, it in took.items()]
    for part in (0.5, 0.9):
        usual_ms = max(took[phase].at(part) for phase in ("we are there", "we are back"))
        for phase, it in took.items():
            assert it.at(part) < 4 * usual_ms, (phase, it.at(part), usual_ms)
    assert unanswered == {_NAMESPACE}  # our webhooks were asked about nothing else in vain
    assert waiting, "no TrainJob had to wait for us"
    assert not any(PODGROUP in it["metadata"].get("annotations", {}) for it in others.objects(PODS))
    # Whoever was made without us is told his group later.
    assert all(PODGROUP in it["metadata"].get("annotations", {}) for it in pods.values())


async def _phases(house: OutageInstallation, others: Timeline) -> dict[str, Latencies]:
    """Create what is not ours while we are there, hang and are dead."""
    cluster = house.cluster
    took = {"we are there": await create_other_workloads(cluster, others, _OTHERS, "there")}
    for it in house.processes:
        it.process.pause()
    took["we hang"] = await create_other_workloads(cluster, others, _OTHERS, "hung")
    for it in house.processes:
        await it.kill()
    took["we are dead"] = await create_other_workloads(cluster, others, _OTHERS, "dead")
    return took


async def _end_them(cluster: Cluster, seen: Timeline) -> None:
    """Delete TrainJobs in each of the ways there are, and suspend one."""
    api = cluster.api
    ways = {"foreground": "Foreground", "background": "Background", "orphaned": "Orphan"}
    for name, way in ways.items():
        await api.delete(TRAINJOBS, _NAMESPACE, name, propagationPolicy=way)
    await api.merge(TRAINJOBS, _NAMESPACE, "held", {"spec": {"suspend": True}})
    await seen.until(
        lambda state: {*ways} & _trainjobs(state) == set(),
        "the TrainJobs are gone, each in its way",
    )
    await seen.until(
        lambda state: {*ways} & _jobsets(state) == {"orphaned"}, "so are JobSets, but for one"
    )
    await seen.until(is_suspended("held"), "one is suspended")
    await seen.until(
        lambda state: {it for it in _LONG_RUNNING if _has_pods(state, it)} == {"orphaned"},
        "so are pods, but for its",
        60,
    )
    assert on_nodes("orphaned", 2)(seen.state)


def _all(tests: Iterable[Callable[[State], bool]]) -> Callable[[State], bool]:
    wanted = [*tests]
    return lambda state: all(it(state) for it in wanted)


def _trainjobs(state: State) -> set[str]:
    return {key.name for key in state if key.resource == TRAINJOBS}


def _jobsets(state: State) -> set[str]:
    return {key.name for key in state if key.resource == JOBSETS}


def _has_pods(state: State, name: str) -> bool:
    return any(it["metadata"]["name"].startswith(f"{name}-") for it in pods_in(state))
