"""Many concurrent requests to one API server, over pooled connections: aiohttp."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from trainer_kai.errors import TrainerKaiError
from trainer_kai.kube.auth.rest_config import RestConfig, tls_context
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import (
    ApiResponse,
    ErrorDetails,
    TooLarge,
    Unavailable,
    body_or_error,
)
from trainer_kai.kube.rest.transport import headers_for, unavailable, untrusted_server

# Users decide how large the objects of a page are; they must not exhaust the memory.
_MAX_RESPONSE_BYTES: Final = 32 * 2**20
_CONNECT_S: Final = 10.0
_KEEP_ALIVE_S: Final = 30.0  # less than the API server keeps an idle connection
# A dead machine sends nothing: the kernel detects it within half a minute.
_KEEP_ALIVE_OPTIONS: Final = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}


class PooledTransport:
    """A transport for processes; created inside a running event loop."""

    def __init__(self, rest_config: RestConfig) -> None:
        self._rest_config = rest_config
        connector = aiohttp.TCPConnector(
            ssl=tls_context(rest_config) or False,
            limit=0,  # the callers limit how many requests run at once
            keepalive_timeout=_KEEP_ALIVE_S,
            socket_factory=_keep_alive_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            middlewares=(_no_hidden_retry,),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Content-Type"),
            read_bufsize=1 << 18,
        )

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Send a request and read the whole response; raise `TooLarge` above 32 MiB."""
        limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S)
        options = await self._options(request, limits)
        with self._translated_errors(request):
            async with self._open(request, options) as response:
                return await _read(request, response)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=silence_s)
        options = await self._options(request, limits)
        with self._translated_errors(request):
            response = await self._open(request, options)
        try:
            if response.status >= 300:
                with self._translated_errors(request):
                    response_read = await _read(request, response)
                body_or_error(request, response_read)
            yield _BodyPieces(response, lambda error: self._translated(request, error))
        finally:
            response.close()

    async def close(self) -> None:
        await self._session.close()

    def _open(self, request: Request, options: dict[str, Any]) -> Any:
        url = URL(self._rest_config.server + request.target, encoded=True)
        return self._session.request(request.method, url, **options)

    async def _options(self, request: Request, limits: aiohttp.ClientTimeout) -> dict[str, Any]:
        return {
            "data": request.body,
            "headers": await headers_for(request, self._rest_config),
            "timeout": limits,
            "proxy": self._rest_config.proxy or None,
            "server_hostname": self._rest_config.trust.server_name or None,
            "allow_redirects": False,
        }

    @contextmanager
    def _translated_errors(self, request: Request) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._translated(request, error) from error

    def _translated(self, request: Request, error: Exception) -> TrainerKaiError:
        server = self._rest_config.server
        match error:
            case _BrokenConnection(__cause__=Exception() as cause):
                return self._translated(request, cause)
            case aiohttp.ClientConnectorCertificateError(certificate_error=ssl_error):
                reason = getattr(ssl_error, "verify_message", "") or str(ssl_error)
                return untrusted_server(
                    self._rest_config, reason, getattr(ssl_error, "verify_code", 0)
                )
            case aiohttp.ClientConnectorError():
                return self._cannot_connect(request, str(error.os_error))
            case aiohttp.ConnectionTimeoutError():
                return self._cannot_connect(request, "it takes too long")
            case aiohttp.ClientHttpProxyError():
                reason = f"the proxy answers {error.status} {error.message}"
                return self._cannot_connect(request, reason)
            case TimeoutError():
                return unavailable(request, f"{server} did not respond in time", was_sent=True)
        return unavailable(request, f"the connection to {server} broke: {error!r}", was_sent=True)

    def _cannot_connect(self, request: Request, reason: str) -> Unavailable:
        server, origin = self._rest_config.server, self._rest_config.origin
        through = " through its proxy" if self._rest_config.proxy else ""
        message = f"cannot connect to {server}{through}, from {origin}: {reason}"
        return unavailable(request, message, was_sent=False)


class _BrokenConnection(aiohttp.ClientError):
    """A connection that broke during a request."""


async def _no_hidden_retry(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a request again when its connection breaks.

    It does so for every GET, PUT and DELETE, and a repeated DELETE can delete a new object with the
    same name. It decides by the class of the error, so the error gets another class. The
    alternatives are a connection for each such request, or a private attribute of the session. A
    pooled connection that the server has closed meanwhile is detected and not used.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenConnection from error


class _BodyPieces:
    """The body as it arrives; not a generator, because an unfinished one would outlive the loop."""

    def __init__(
        self, response: aiohttp.ClientResponse, translate: Callable[[Exception], Exception]
    ) -> None:
        self._content = response.content
        self._translate = translate

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self._content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError, RuntimeError) as error:
            # RuntimeError: the connection was closed by this process meanwhile
            raise self._translate(error) from error
        if not piece:
            raise StopAsyncIteration
        return piece


async def _read(request: Request, response: aiohttp.ClientResponse) -> ApiResponse:
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_RESPONSE_BYTES:
            response.close()
            message = f"the response has more than {_MAX_RESPONSE_BYTES >> 20} MiB"
            raise TooLarge(ErrorDetails(str(request), response.status, "", message))
    return ApiResponse(response.status, b"".join(pieces), response.headers.get("Retry-After"))


def _keep_alive_socket(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE_OPTIONS.items():
        if hasattr(socket, name):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
