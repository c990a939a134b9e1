"""A chain with all our processes on it, each under its own ServiceAccount."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.proxy import FaultProxy
from e2e.cluster.resources import NAMESPACES, TRAINJOBS
from e2e.conftest import failed, make_namespace, next_name
from e2e.front.install import install
from e2e.front.processes import (
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)
from e2e.front.queues import grant_queue_use
from e2e.scheduler.teams import make_queue
from trainer_kai.settings import LeaderSettings

_EMPTY_S: Final = 30.0
_SHIPPED_LEASE: Final = {  # a Lease as it is shipped: nobody here waits for another leader
    f"TRAINER_KAI_LEADER_{name.upper()}": str(LeaderSettings.model_fields[name].default)
    for name in ("lease_s", "renew_deadline_s", "retry_s", "write_s")
}
_WITH_KUEUE: Final = {"TRAINER_KAI_KUEUE": "true"}
_CONSISTENCY_CHECKS: Final = {
    "TRAINER_KAI_DEBUG_CHECK_S": "0.5"
}  # a false memory ends the scheduler


class Installation(NamedTuple):
    """A chain, our scheduler on it, the proxy between the two, and our webhook."""

    cluster: Cluster
    scheduler: ProductProcess
    proxy: FaultProxy
    webhook: ProductProcess


@asynccontextmanager
async def run_installation(
    name: str,
    folder: Path,
    nodes: int,
    gpus: int = 8,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Installation]:
    """Run a chain with all processes, set up by the manifests; *settings* are the scheduler's."""
    async with running_cluster(Options(name=name)) as cluster, AsyncExitStack() as stack:
        await cluster.add_nodes(nodes, NodeShape(gpus=gpus))
        await install(cluster, port=webhook_port(cluster))
        webhook = await stack.enter_async_context(running(cluster, WEBHOOK, folder))
        await stack.enter_async_context(running(cluster, PODGROUPER, folder))
        proxy = await stack.enter_async_context(cluster.proxy())
        ours = await stack.enter_async_context(
            running(cluster, SCHEDULER, folder, {**_CONSISTENCY_CHECKS, **settings}, proxy.url)
        )
        yield Installation(cluster, ours, proxy, webhook)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return the chain that all tests here share, eight nodes of eight; none of them harms it."""
    folder = tmp_path_factory.mktemp("house")
    async with run_installation("test-house", folder, 8, settings=_SHIPPED_LEASE) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def room(house: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own."""
    async with namespace_in(house) as name:
        yield name


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def narrow(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with one node of six GPUs, for the tests of one module."""
    async with run_installation("test-narrow", tmp_path_factory.mktemp("narrow"), 1, 6) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def closet(narrow: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there; it is empty when the next test begins."""
    async with namespace_in(narrow) as name:
        yield name


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def battered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with two nodes, to do it harm that each test makes good again."""
    async with run_installation("test-battered", tmp_path_factory.mktemp("battered"), 2) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def cell(battered: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there; nothing is broken when the next one begins."""
    async with namespace_in(battered) as name:
        yield name
        battered.proxy.burst(503, 0)
        for process in (battered.cluster.process("kube-apiserver"), battered.scheduler.process):
            if process.identity is None:
                process.start()
        await battered.cluster.ready("kube-apiserver")
        await battered.scheduler.ready()


@pytest_asyncio.fixture(loop_scope="session")
async def own_house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Installation]:
    """Return a chain of the test's own with two nodes, to do it harm; settings may be given."""
    settings: Mapping[str, str] = getattr(request, "param", {})
    async with run_installation("test-own-house", tmp_path, 2, settings=settings) as own:
        await make_namespace(own.cluster, "room")
        yield own
        if failed(request.node):
            own.cluster.keep_logs()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def teams(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with one node of eight GPUs, of which a team owns all, and one none."""
    folder = tmp_path_factory.mktemp("teams")
    async with run_installation("test-teams", folder, 1, 8, _WITH_KUEUE) as shared:
        await make_queue(shared.cluster, "owner", 8)
        await make_queue(shared.cluster, "borrower", 0)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def court(teams: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there; it is empty when the next test begins."""
    async with namespace_in(teams, "owner", "borrower") as name:
        yield name


@asynccontextmanager
async def namespace_in(house: Installation, *queues: str) -> AsyncIterator[str]:
    """Return a namespace that may use some queues, empty again afterwards."""
    name = next_name()
    api = house.cluster.api
    await make_namespace(house.cluster, name)
    for queue in queues:
        await grant_queue_use(house.cluster, queue, name)
    yield name
    # A namespace that is deleted is emptied at leisure, for pods are said to need 30 s to end.
    await api.request("DELETE", TRAINJOBS.path(name))
    deadline = time.monotonic() + _EMPTY_S
    while await api.kill_pods(name):
        assert time.monotonic() < deadline, f"pods are left in {name}"
        await asyncio.sleep(0.1)
    await api.delete(NAMESPACES, None, name)
