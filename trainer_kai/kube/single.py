"""One connection for a command that asks a few things and ends: straight to the API server.

The standard library's HTTP client is there in a tenth of the time that the pooled transport takes
to import. Whatever is followed for longer is worth that time, and goes over the other one.
"""

import asyncio
import http.client
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from trainer_kai.kube.access import Access
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.request import Request
from trainer_kai.kube.tls import tls_context
from trainer_kai.kube.transport import headers_for, unavailable, untrusted

if TYPE_CHECKING:
    from trainer_kai.kube.pooled import PooledTransport

__all__ = ["SingleTransport"]

_CONNECT_S: Final = 10.0


class SingleTransport:
    """A transport for commands: requests wait for each other."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._turn = asyncio.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._pooled: PooledTransport | None = None

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """Send a request and read the whole answer, in a thread."""
        headers = await headers_for(request, self._access)
        async with self._turn:
            return await asyncio.to_thread(self._send, request, headers, timeout_s)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request over the other transport, and read while it is being answered."""
        from trainer_kai.kube.pooled import PooledTransport  # noqa: PLC0415 - slow to import

        if self._pooled is None:
            self._pooled = PooledTransport(self._access)
        async with self._pooled.stream(request, silence_s) as pieces:
            yield pieces

    async def close(self) -> None:
        """Close every connection."""
        if self._connection is not None:
            self._connection.close()
        if self._pooled is not None:
            await self._pooled.close()

    def _send(self, request: Request, headers: dict[str, str], timeout_s: float) -> Answer:
        kept = self._connection is not None
        connection = self._connection or self._connect(request)
        self._connection = None  # until the answer has been read whole
        try:
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            connection.request(request.method, self._path(request), request.body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.read(), response.getheader("Retry-After"))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if kept and request.repeatable and isinstance(error, http.client.RemoteDisconnected):
                return self._send(request, headers, timeout_s)  # it was closed while it was idle
            message = f"the connection to {self._access.server} broke: {error!r}"
            raise unavailable(request, message, was_sent=True) from error
        self._connection = connection
        return answer

    def _path(self, request: Request) -> str:
        return urlsplit(self._access.server).path + request.target

    def _connect(self, request: Request) -> http.client.HTTPConnection:
        access = self._access
        server, context = urlsplit(access.server), tls_context(access)
        connection: http.client.HTTPConnection
        if context is None:
            connection = http.client.HTTPConnection(server.netloc, timeout=_CONNECT_S)
        else:
            connection = http.client.HTTPSConnection(
                server.netloc, timeout=_CONNECT_S, context=context
            )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise untrusted(access, error.verify_message, error.verify_code) from error
        except (OSError, http.client.HTTPException) as error:
            message = f"cannot connect to {access.server}, from {access.origin}: {error}"
            raise unavailable(request, message, was_sent=False) from error
        return connection
