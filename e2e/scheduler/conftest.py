"""A chain with all our processes on it, each under its own ServiceAccount."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import NAMESPACES
from e2e.conftest import failed, make_namespace, next_name
from e2e.front.install import install
from e2e.front.processes import PODGROUPER, SCHEDULER, WEBHOOK, OurProcess, running, webhook_port


class House(NamedTuple):
    """A chain, and our scheduler on it."""

    cluster: Cluster
    scheduler: OurProcess


@asynccontextmanager
async def house_on(
    name: str, folder: Path, nodes: int, settings: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[House]:
    """Run a chain with all processes, set up by the manifests; *settings* are the scheduler's."""
    async with running_cluster(Options(name=name)) as cluster, AsyncExitStack() as stack:
        await cluster.add_nodes(nodes)
        await install(cluster, port=webhook_port(cluster))
        for part in (WEBHOOK, PODGROUPER):
            await stack.enter_async_context(running(cluster, part, folder))
        ours = await stack.enter_async_context(running(cluster, SCHEDULER, folder, settings))
        yield House(cluster, ours)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Return the chain that all tests here share; none of them harms it."""
    async with house_on("test-house", tmp_path_factory.mktemp("house"), 8) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def room(house: House) -> AsyncIterator[str]:
    """Return a namespace of the test's own."""
    name = next_name()
    await make_namespace(house.cluster, name)
    yield name
    await house.cluster.api.delete(NAMESPACES, None, name)


@pytest_asyncio.fixture(loop_scope="session")
async def own_house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """Return a chain of the test's own with two nodes, to do it harm; settings may be given."""
    settings: Mapping[str, str] = getattr(request, "param", {})
    async with house_on("test-own-house", tmp_path, 2, settings) as own:
        await make_namespace(own.cluster, "room")
        yield own
        if failed(request.node):
            own.cluster.keep_logs()
