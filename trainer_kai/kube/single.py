"""One connection for a command that asks a few things and ends: straight to the API server.

It is there in a tenth of the time that the pooled transport takes to import. Whatever is followed
for longer is worth that time, and goes over the other one.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httptools

from trainer_kai.kube.access import RestConfig
from trainer_kai.kube.answer import ApiResponse
from trainer_kai.kube.line import HttpConnection, open_connection
from trainer_kai.kube.request import Request
from trainer_kai.kube.tls import tls_context
from trainer_kai.kube.transport import headers_for, unavailable, untrusted_server

if TYPE_CHECKING:
    from trainer_kai.kube.pooled import PooledTransport

__all__ = ["CommandTransport"]

_CONNECT_S: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}


class CommandTransport:
    """A transport for commands: requests wait for each other."""

    def __init__(self, rest_config: RestConfig) -> None:
        self._access = rest_config
        self._server = urlsplit(rest_config.server)
        self._lock = asyncio.Lock()
        self._connection: HttpConnection | None = None
        self._pooled: PooledTransport | None = None

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Send a request and read the whole answer."""
        headers = await headers_for(request, self._access)
        was_sent = False
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    connection = await self._open_connection(request)
                    was_sent = True
                    return await connection.send(
                        request, self._server.path + request.target, headers
                    )
            except TimeoutError as error:
                message = f"{self._access.server} did not answer in time"
                raise unavailable(request, message, was_sent=was_sent) from error
            except (OSError, httptools.HttpParserError) as error:
                message = f"the connection to {self._access.server} broke: {error!r}"
                raise unavailable(request, message, was_sent=True) from error

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
            self._connection.abort()
        if self._pooled is not None:
            await self._pooled.close()

    async def _open_connection(self, request: Request) -> HttpConnection:
        """Return the connection that is kept, or a new one to keep."""
        if self._connection is None or not self._connection.is_usable():
            if self._connection is not None:
                self._connection.abort()
            self._connection = await self._connect(request)
        return self._connection

    async def _connect(self, request: Request) -> HttpConnection:
        rest_config, server = self._access, self._server
        host, port = server.hostname or "", server.port or _PORTS[server.scheme]
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await open_connection(host, port, server.netloc, tls_context(rest_config))
        except ssl.SSLCertVerificationError as error:
            raise untrusted_server(rest_config, error.verify_message, error.verify_code) from error
        except OSError as error:  # a timeout is one
            reason = str(error) or "it takes too long"
            message = f"cannot connect to {rest_config.server}, from {rest_config.origin}: {reason}"
            raise unavailable(request, message, was_sent=False) from error
