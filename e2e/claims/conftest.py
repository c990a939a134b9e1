"""A chain with all our processes, nodes without GPUs as resources, and slices of devices."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.claims.devices import device, device_class, resource_slice
from e2e.conftest import failed
from e2e.fixtures.installation import Installation, namespace_in, run_installation


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def claims_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with two nodes of two devices each."""
    folder = tmp_path_factory.mktemp("claims")
    async with run_installation("test-claims", folder, 2, 0) as shared:
        await shared.cluster.api.create(device_class())
        for node in ("node-0", "node-1"):
            devices = [device(f"gpu-{n}") for n in range(2)]
            await shared.cluster.api.create(resource_slice(node, devices))
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def claims_namespace(claims_installation: Installation) -> AsyncIterator[str]:
    async with namespace_in(claims_installation) as name:
        yield name
