"""A chain with our webhook and podgrouper on it, each under its own ServiceAccount."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.resources import NAMESPACES
from e2e.conftest import failed, make_namespace, next_name
from e2e.front.install import install
from e2e.front.ours import WebhookInstallation
from e2e.front.processes import PODGROUPER, WEBHOOK, running, webhook_port


@asynccontextmanager
async def run_webhook_installation(
    name: str, folder: Path, mode: str = "bundled"
) -> AsyncIterator[WebhookInstallation]:
    """Run a chain with both processes, set up by the manifests and nothing else."""
    async with running_cluster(Options(name=name)) as cluster, AsyncExitStack() as stack:
        await cluster.add_nodes(8)
        await install(cluster, port=webhook_port(cluster))
        settings = {"TRAINER_KAI_MODE": mode}
        parts = [
            await stack.enter_async_context(running(cluster, part, folder, settings))
            for part in (WEBHOOK, PODGROUPER)
        ]
        yield WebhookInstallation(cluster, *parts)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WebhookInstallation]:
    """Return the chain that all tests here share and none harms; it ends with them."""
    async with run_webhook_installation("test-front", tmp_path_factory.mktemp("front")) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def worn_front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WebhookInstallation]:
    """Return such a chain to do it harm; each test starts again what it killed."""
    async with run_webhook_installation("test-worn-front", tmp_path_factory.mktemp("worn")) as worn:
        yield worn
        if failed(request.config):
            worn.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def own_front(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[WebhookInstallation]:
    """Return such a chain of the test's own, to do it harm; its mode may be a parameter."""
    mode: str = getattr(request, "param", "bundled")
    async with run_webhook_installation("test-own-front", tmp_path, mode) as own:
        yield own
        if failed(request.node):
            own.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def room(front: WebhookInstallation) -> AsyncIterator[str]:
    """Return a namespace of the test's own on the shared chain."""
    name = next_name()
    await make_namespace(front.cluster, name)
    yield name
    await front.cluster.api.delete(NAMESPACES, None, name)
