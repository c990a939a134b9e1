"""Both transports of the client, each to a server on loopback that answers as it is told."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import pytest

from tests.support.authority import authority_pem, server_tls
from tests.support.wire import Asked, Line, Reply, Wire, reply
from trainer_kai.kube.access import Access, Token, Trust
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.errors import Unavailable
from trainer_kai.kube.pooled import PooledTransport
from trainer_kai.kube.request import Request
from trainer_kai.kube.single import SingleTransport
from trainer_kai.kube.transport import Transport

__all__ = [
    "BOTH",
    "DELETE",
    "GET",
    "LONG_S",
    "POST",
    "Kind",
    "Way",
    "access_to",
    "close",
    "half",
    "never",
    "reset",
    "way",
]

Kind: TypeAlias = Callable[[Access], Transport]

LONG_S: Final = 10.0
GET: Final = Request("GET", "/api/v1/pods", (("limit", "5"),), repeatable=True)
POST: Final = Request("POST", "/api/v1/pods", body=b"{}")
DELETE: Final = Request("DELETE", "/api/v1/namespaces/a/pods/b", body=b"{}")
BOTH: Final = pytest.mark.parametrize("kind", [PooledTransport, SingleTransport])


class Way:
    """A transport, and the server at the other end."""

    def __init__(self, transport: Transport, wire: Wire) -> None:
        self.transport = transport
        self.wire = wire

    async def send(self, request: Request = GET, timeout_s: float = LONG_S) -> Answer:
        """Send a request."""
        return await self.transport.send(request, timeout_s)

    async def fails(self, request: Request = GET, timeout_s: float = LONG_S) -> Unavailable:
        """Send a request that gets no answer."""
        with pytest.raises(Unavailable) as raised:
            await self.send(request, timeout_s)
        assert "\n" not in str(raised.value)
        return raised.value


def access_to(wire: Wire) -> Access:
    """Return how the server is reached."""
    server = f"https://127.0.0.1:{wire.port}"
    return Access(server, Token("t"), Trust(authority_pem()), origin="the test")


@asynccontextmanager
async def way(
    kind: Kind, answer: Reply, change: Callable[[Access], Access] = lambda access: access
) -> AsyncIterator[Way]:
    """Open a way to a server that answers like this."""
    async with Wire.open(answer, server_tls()) as wire:
        transport = kind(change(access_to(wire)))
        try:
            yield Way(transport, wire)
        finally:
            await transport.close()


async def never(_asked: Asked, line: Line) -> None:
    """Say nothing until the other end gives up."""
    await line.is_over.wait()


async def reset(_asked: Asked, line: Line) -> None:
    """Break the connection before a word."""
    await line.reset()


async def close(_asked: Asked, line: Line) -> None:
    """Close the connection before a word."""
    await line.close()


async def half(_asked: Asked, line: Line) -> None:
    """Break off within the body."""
    await line.send(reply(200, b"half", "Content-Length: 8"))
    await line.reset()
