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

from trainer_kai.kube.access import Access
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.line import Line, open_line
from trainer_kai.kube.request import Request
from trainer_kai.kube.tls import tls_context
from trainer_kai.kube.transport import headers_for, unavailable, untrusted

if TYPE_CHECKING:
    from trainer_kai.kube.pooled import PooledTransport

__all__ = ["SingleTransport"]

_CONNECT_S: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}


class SingleTransport:
    """A transport for commands: requests wait for each other."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._server = urlsplit(access.server)
        self._turn = asyncio.Lock()
        self._kept: Line | None = None
        self._pooled: PooledTransport | None = None

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """Send a request and read the whole answer."""
        headers = await headers_for(request, self._access)
        was_sent = False
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s):
                    line = await self._line(request)
                    was_sent = True
                    return await line.ask(request, self._server.path + request.target, headers)
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
        if self._kept is not None:
            self._kept.cut()
        if self._pooled is not None:
            await self._pooled.close()

    async def _line(self, request: Request) -> Line:
        """Return the connection that is kept, or a new one to keep."""
        if self._kept is None or not self._kept.is_usable():
            if self._kept is not None:
                self._kept.cut()
            self._kept = await self._connect(request)
        return self._kept

    async def _connect(self, request: Request) -> Line:
        access, server = self._access, self._server
        host, port = server.hostname or "", server.port or _PORTS[server.scheme]
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await open_line(host, port, server.netloc, tls_context(access))
        except ssl.SSLCertVerificationError as error:
            raise untrusted(access, error.verify_message, error.verify_code) from error
        except OSError as error:  # a timeout is one
            why = str(error) or "it takes too long"
            message = f"cannot connect to {access.server}, from {access.origin}: {why}"
            raise unavailable(request, message, was_sent=False) from error
