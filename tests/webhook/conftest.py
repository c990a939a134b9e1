"""A fake API server with a certificate, and a clock."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.clock import VirtualClock
from tests.webhook.fake_api_server import FakeApiServer


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest_asyncio.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    """Return an API server with a configuration that trusts no authority yet."""
    server = FakeApiServer()
    server.configure("", "")
    yield server
    for replica in server.replicas:
        await replica.kill()
