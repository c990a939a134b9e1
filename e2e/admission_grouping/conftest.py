"""A cluster with our webhook and podgrouper, each under its own ServiceAccount."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.cluster.resources import NAMESPACES
from e2e.conftest import failed, make_namespace, next_name
from e2e.fixtures.installation import WebhookInstallation, run_webhook_installation


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def webhook_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WebhookInstallation]:
    """Return the chain that all tests here share and none harms; it ends with them."""
    async with run_webhook_installation("test-front", tmp_path_factory.mktemp("front")) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def damaged_webhook_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WebhookInstallation]:
    """Return such a chain to do it harm; each test starts again what it killed."""
    async with run_webhook_installation(
        "test-shared-front", tmp_path_factory.mktemp("shared")
    ) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def own_webhook_installation(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[WebhookInstallation]:
    """Return such a chain of the test's own, to do it harm; its mode may be a parameter."""
    mode: str = getattr(request, "param", "bundled")
    async with run_webhook_installation("test-own-front", tmp_path, mode) as own:
        yield own
        if failed(request.node):
            own.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def own_namespace(webhook_installation: WebhookInstallation) -> AsyncIterator[str]:
    """Return a namespace of the test's own on the shared chain."""
    name = next_name()
    await make_namespace(webhook_installation.cluster, name)
    yield name
    await webhook_installation.cluster.api.delete(NAMESPACES, None, name)
