"""The shared chain with our definitions, roles, queues and classes, and without the webhook."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.conftest import failed
from e2e.fixtures.install import install
from e2e.install.service_accounts import ServiceAccounts, run_with_service_accounts


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed_cluster(cluster: Cluster) -> Cluster:
    """Return the shared chain after everything but the webhook was applied to it."""
    await install(cluster)
    return cluster


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def service_accounts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServiceAccounts]:
    """Return a chain with our processes whose rights can be taken away; all have them again."""
    async with run_with_service_accounts("test-staff", tmp_path_factory.mktemp("staff")) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()
