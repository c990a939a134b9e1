"""The shared chain with our definitions, roles, queues and classes, and without the webhook."""

import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.front.install import install


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed(cluster: Cluster) -> Cluster:
    """Return the shared chain after everything but the webhook was applied to it."""
    await install(cluster)
    return cluster
