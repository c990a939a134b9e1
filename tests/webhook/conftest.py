"""An API server in memory that keeps a certificate, and a clock."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.clock import VirtualClock
from tests.webhook.fake_api_server import FakeApiServer


@pytest.fixture
def clock() -> VirtualClock:
    """Return a clock of the test's own."""
    return VirtualClock()


@pytest_asyncio.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    """Return an API server with a configuration that trusts nobody yet."""
    made = FakeApiServer()
    made.configure("", "")
    yield made
    for replica in made.replicas:
        await replica.kill()
