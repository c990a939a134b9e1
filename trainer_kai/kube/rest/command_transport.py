"""The transport of a command: one connection to the API server, one request at a time.

It starts in a tenth of the time that the import of the pooled transport takes. Streams use the
pooled transport. `HttpConnection` writes requests and parses responses with httptools: to import
the standard library's http.client takes longer, it waits in threads that cannot be cancelled, and
it takes headers that are cut off for a whole response.
"""

import asyncio
import select
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httptools

from trainer_kai.kube.auth.rest_config import RestConfig, tls_context
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.kube.rest.transport import headers_for, unavailable, untrusted_server

if TYPE_CHECKING:
    from trainer_kai.kube.rest.pooled_transport import PooledTransport

_CONNECT_S: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}


class HttpConnection(asyncio.Protocol):
    """A connection; bytes between two responses, or its end, make it unusable.

    The parser prescribes the names of the methods that it calls.
    """

    def __init__(self, host: str) -> None:
        self._host = host  # for the Host header
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._response: asyncio.Future[ApiResponse] | None = None  # None before the first request
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._has_final_headers = False
        self._is_idle = True  # and can send the next request

    def is_usable(self) -> bool:
        """Say whether it is open, and nothing arrived after the last response, such as its end."""
        if not self._is_idle or self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    async def send(self, request: Request, path: str, headers: dict[str, str]) -> ApiResponse:
        """Send a request and read the response; a cancelled caller closes the connection."""
        self._is_idle = False
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(_request_bytes(request, path, {"Host": self._host, **headers}))
        try:
            return await self._response
        finally:
            if not self._is_idle:
                self.abort()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._is_idle = False
            if self._response is not None and not self._response.done():
                self._response.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response: with an error, unless it ends with the connection."""
        is_measured = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if self._response is None or self._response.done():
            return
        if exc is None and self._has_final_headers and not is_measured:
            self._finish(self._response)
        else:
            reason = "closed before the response was complete"
            self._response.set_exception(exc or ConnectionResetError(reason))

    def on_message_begin(self) -> None:
        self._is_idle = False
        self._headers, self._pieces, self._has_final_headers = {}, [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._has_final_headers = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """End the response; a status below 200 is followed by another response."""
        if self._has_final_headers and self._response is not None and not self._response.done():
            self._is_idle = self._parser.should_keep_alive()
            self._finish(self._response)

    def _finish(self, response: asyncio.Future[ApiResponse]) -> None:
        wait = self._headers.get(b"retry-after")
        retry_after = wait.decode("latin-1") if wait is not None else None
        status = self._parser.get_status_code()
        response.set_result(ApiResponse(status, b"".join(self._pieces), retry_after))


def _request_bytes(request: Request, path: str, headers: dict[str, str]) -> bytes:
    if request.body is not None:
        headers["Content-Length"] = str(len(request.body))
    lines = [f"{request.method} {path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, "", ""]).encode() + (request.body or b"")


class CommandTransport:
    def __init__(self, rest_config: RestConfig) -> None:
        self._rest_config = rest_config
        self._server = urlsplit(rest_config.server)
        self._lock = asyncio.Lock()
        self._connection: HttpConnection | None = None
        self._pooled: PooledTransport | None = None

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        headers = await headers_for(request, self._rest_config)
        was_sent = False
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    connection = await self._open_connection(request)
                    was_sent = True
                    path = self._server.path + request.target
                    return await connection.send(request, path, headers)
            except TimeoutError as error:
                message = f"{self._rest_config.server} did not respond in time"
                raise unavailable(request, message, was_sent=was_sent) from error
            except (OSError, httptools.HttpParserError) as error:
                message = f"the connection to {self._rest_config.server} broke: {error!r}"
                raise unavailable(request, message, was_sent=True) from error

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request over the pooled transport, and read the response while it arrives."""
        from trainer_kai.kube.rest.pooled_transport import PooledTransport  # noqa: PLC0415 - slow to import

        if self._pooled is None:
            self._pooled = PooledTransport(self._rest_config)
        async with self._pooled.stream(request, silence_s) as pieces:
            yield pieces

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        if self._pooled is not None:
            await self._pooled.close()

    async def _open_connection(self, request: Request) -> HttpConnection:
        if self._connection is None or not self._connection.is_usable():
            if self._connection is not None:
                self._connection.abort()
            self._connection = await self._connect(request)
        return self._connection

    async def _connect(self, request: Request) -> HttpConnection:
        rest_config, server = self._rest_config, self._server
        host, port = server.hostname or "", server.port or _PORTS[server.scheme]
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: HttpConnection(server.netloc), host, port, ssl=tls_context(rest_config)
                )
                return connection
        except ssl.SSLCertVerificationError as error:
            raise untrusted_server(rest_config, error.verify_message, error.verify_code) from error
        except OSError as error:  # also a timeout
            reason = str(error) or "it takes too long"
            message = f"cannot connect to {rest_config.server}, from {rest_config.origin}: {reason}"
            raise unavailable(request, message, was_sent=False) from error
