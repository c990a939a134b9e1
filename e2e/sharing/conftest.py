"""One chain with all our processes and simulated agents, for the tests of GPU sharing."""

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.patience import slowdown
from e2e.conftest import failed
from e2e.fixtures.gpu_agents import running_gpu_agents
from e2e.fixtures.installation import Installation, namespace_in, run_installation
from e2e.sharing.room import WATCHED, GpuRoom

_ALLOCATION_S: Final = 3.0
_DELAY_S: Final = 0.1  # of the agents, so that there is a time between the steps of a bind


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def sharing_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with one node, which has no GPU: each test adds nodes of its own."""
    folder = tmp_path_factory.mktemp("sharing")
    settings = {"TRAINER_KAI_RESERVATION_PODS_ALLOCATION_S": f"{_ALLOCATION_S * slowdown():g}"}
    async with (
        run_installation("test-sharing", folder, 1, 0, settings) as shared,
        running_gpu_agents(shared.cluster, folder, _DELAY_S),
    ):
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def room(sharing_installation: Installation) -> AsyncIterator[GpuRoom]:
    """Return namespaces of the test's own; at the end all was as it must be, and they are empty."""
    cluster = sharing_installation.cluster
    async with (
        namespace_in(sharing_installation) as name,
        namespace_in(sharing_installation) as other,
    ):
        async with cluster.timeline(*WATCHED) as seen:
            own = GpuRoom(sharing_installation, name, other, seen)
            yield own
            await own.leave()
        own.check()
