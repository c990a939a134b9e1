"""A chain with all our processes on it, each under its own ServiceAccount."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
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
async def house_on(name: str, folder: Path, nodes: int) -> AsyncIterator[House]:
    """Run a chain with all processes, set up by the manifests and nothing else."""
    async with running_cluster(Options(name=name)) as cluster, AsyncExitStack() as stack:
        await cluster.add_nodes(nodes)
        await install(cluster, port=webhook_port(cluster))
        parts = [
            await stack.enter_async_context(running(cluster, part, folder))
            for part in (WEBHOOK, PODGROUPER, SCHEDULER)
        ]
        yield House(cluster, parts[-1])


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
