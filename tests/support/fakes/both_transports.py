"""Both transports of the client, each connected to a scripted HTTP server on loopback."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import pytest

from tests.support.certificates import authority_pem, server_tls
from tests.support.fakes.http_server import (
    Answerer,
    RawHttpServer,
    ReceivedRequest,
    ServerConnection,
    http_answer,
)
from trainer_kai.kube.auth.rest_config import RestConfig, ServerTrust, StaticToken
from trainer_kai.kube.rest.command_transport import CommandTransport
from trainer_kai.kube.rest.pooled_transport import PooledTransport
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse, Unavailable
from trainer_kai.kube.rest.transport import Transport

TransportFactory: TypeAlias = Callable[[RestConfig], Transport]

LONG_S: Final = 60.0
GET: Final = Request("GET", "/api/v1/pods", (("limit", "5"),), repeatable=True)
POST: Final = Request("POST", "/api/v1/pods", body=b"{}")
DELETE: Final = Request("DELETE", "/api/v1/namespaces/a/pods/b", body=b"{}")
BOTH_TRANSPORTS: Final = pytest.mark.parametrize("kind", [PooledTransport, CommandTransport])


class ConnectedTransport:
    """A transport, and the server at the other end."""

    def __init__(self, transport: Transport, wire: RawHttpServer) -> None:
        self.transport = transport
        self.server = wire

    async def send(self, request: Request = GET, timeout_s: float = LONG_S) -> ApiResponse:
        """Send a request."""
        return await self.transport.send(request, timeout_s)

    async def send_unanswered(
        self, request: Request = GET, timeout_s: float = LONG_S
    ) -> Unavailable:
        """Send a request that gets no answer."""
        with pytest.raises(Unavailable) as raised:
            await self.send(request, timeout_s)
        assert "\n" not in str(raised.value)
        return raised.value


def access_to(wire: RawHttpServer) -> RestConfig:
    """Return how the server is reached."""
    server = f"https://127.0.0.1:{wire.port}"
    return RestConfig(server, StaticToken("t"), ServerTrust(authority_pem()), origin="the test")


@asynccontextmanager
async def connected(
    kind: TransportFactory,
    answer: Answerer,
    change: Callable[[RestConfig], RestConfig] = lambda access: access,
) -> AsyncIterator[ConnectedTransport]:
    """Open a way to a server that answers like this."""
    async with RawHttpServer.open(answer, server_tls()) as wire:
        transport = kind(change(access_to(wire)))
        try:
            yield ConnectedTransport(transport, wire)
        finally:
            await transport.close()


async def never_answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
    """Say nothing until the other end gives up."""
    await line.is_closed.wait()


async def reset_connection(_asked: ReceivedRequest, line: ServerConnection) -> None:
    """Break the connection before a word."""
    await line.reset()


async def close_connection(_asked: ReceivedRequest, line: ServerConnection) -> None:
    """Close the connection before a word."""
    await line.close()


async def half_answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
    """Break off within the body."""
    await line.send(http_answer(200, b"half", "Content-Length: 8"))
    await line.reset()
