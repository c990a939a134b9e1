"""The HTTPS server: paths, methods, sizes, time-outs and the memory of bodies.

A `ReviewRouter` answers the bodies. An invalid request gets a 4xx response. A server that stops
still answers for `server.drain_s`.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, Self

from aiohttp import web

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.owner_budget import OwnerBudget
from trainer_kai.service.clock import Clock
from trainer_kai.service.connections import (
    ClientConnection,
    ConnectionLimits,
    Connections,
    ConnectionState,
)
from trainer_kai.service.settings import WebhookServerSettings
from webhook.admission.review import SERVICE_UNAVAILABLE
from webhook.reviews.router import HttpReply, ReviewRouter

MAX_BODY_BYTES: Final = 8 << 20  # an object may have 3 MiB, and an update has the old one as well
_BODY_MEMORY_BYTES: Final = 64 << 20
_MIN_BODY_BYTES: Final = 256 << 10  # that a review reserves: at most 256 are read at a time
_LIMITS: Final = ConnectionLimits(
    connections=512,  # twice the number of concurrent reviews
    read_s=0.0,  # a setting
    request_s=30.0,
    idle_s=100.0,  # longer than the 90 s after which an API server closes it
    grace_s=3.0,
)


class WebhookServer:
    """Serves reviews over HTTPS by a `ReviewRouter`, inside its `async with`."""

    def __init__(
        self,
        router: ReviewRouter,
        settings: WebhookServerSettings,
        tls: ssl.SSLContext,
        clock: Clock,
        on_stop: Callable[[], None],
    ) -> None:
        """Call *on_stop* when the server begins to stop: clients should send no more reviews."""
        self.port = 0  # the port that the server listens on, once started
        self._router = router
        self._settings = settings
        self._clock = clock
        self._on_stop = on_stop
        self._is_draining = False
        self._body_memory: Final = BodyMemory()
        self._connections: Final = Connections(
            web.Server(self._handle, request_factory=make_request),
            _LIMITS._replace(read_s=settings.read_s),
            tls,
        )

    async def __aenter__(self) -> Self:
        address, port = self._settings.address, self._settings.port
        if not (address or port):  # IPv4 and IPv6 would get different ports
            message = "port 0 needs server.address to be set as well"
            raise ConfigError([FieldError("server.port", message)])
        try:
            self.port = self._connections.listen(address, port)
        except OSError as error:
            where = f"{address or 'every interface'}, port {port}"
            fault = FieldError("server", f"cannot listen on {where}: {error.strerror or error}")
            raise ConfigError([fault]) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer for `drain_s` more, then finish only the reviews that are being answered."""
        self._is_draining = True
        self._on_stop()
        await self._clock.sleep(self._settings.drain_s)
        await self._connections.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        client = request.protocol
        assert isinstance(client, ClientConnection)
        try:
            reply = await self._reply(request, client)
        finally:
            self._body_memory.release(client)
            self._connections.went_idle(client)
        response = web.Response(
            body=reply.body, status=reply.status, content_type=reply.content_type
        )
        if reply.status == SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "1"
        if self._is_draining:
            response.force_close()  # so that the client connects to another replica
        return response

    async def _reply(self, request: web.BaseRequest, client: ClientConnection) -> HttpReply:
        if not self._router.has_route(request.path):
            paths = ", ".join(self._router.paths)
            return _text_reply(404, f"unknown path: reviews are answered at {paths}")
        if request.method != "POST":
            return _text_reply(405, "a review must be sent with POST")
        if (request.content_length or 0) > MAX_BODY_BYTES:
            return _text_reply(413, f"a review has at most {MAX_BODY_BYTES} bytes")
        read_s = self._settings.read_s
        try:
            await self._body_memory.acquire(client, request.content_length, read_s)
        except TimeoutError:
            return _text_reply(SERVICE_UNAVAILABLE, "too many reviews at the same time; try again")
        try:
            is_complete = request.content.is_eof()
            async with asyncio.timeout(None if is_complete else read_s):
                body = await request.read()
        except TimeoutError:
            return _text_reply(408, f"the request body did not arrive within {read_s:g} s")
        except web.HTTPRequestEntityTooLarge:
            return _text_reply(413, f"a review has at most {MAX_BODY_BYTES} bytes")
        except (web.RequestPayloadError, ConnectionError, ValueError):
            return _text_reply(400, "the request body cannot be read")
        client.state = ConnectionState.ANSWERING
        return await self._router.answer(request.path, body)


def _text_reply(status: int, message: str) -> HttpReply:
    return HttpReply(status, message.encode(), "text/plain")


def make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: Any
) -> web.BaseRequest:
    protocol.headers_received()
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )


class BodyMemory:
    """Memory for request bodies, so that no client keeps the API server out.

    It is reserved before a body is read, at most half of all memory for one address; the address
    that uses least gets memory next. When the memory is full, incomplete bodies of the address that
    uses most are aborted.
    """

    def __init__(self) -> None:
        self._budget: Final = OwnerBudget[ClientConnection](_BODY_MEMORY_BYTES)
        self._waiting: Final[dict[asyncio.Future[None], tuple[str, int]]] = {}

    async def acquire(self, client: ClientConnection, length: int | None, timeout_s: float) -> None:
        """Wait until there is memory for a body; one of unknown length counts as the longest.

        Raise `TimeoutError` if there is none in time.
        """
        amount = max(MAX_BODY_BYTES if length is None else length, _MIN_BODY_BYTES)
        if not self._make_room(client.peer, amount):
            async with asyncio.timeout(timeout_s):
                await self._wait(client.peer, amount)
        self._budget.put(client.peer, client, amount)
        if self._waiting:
            self._wake()

    def release(self, client: ClientConnection) -> None:
        self._budget.drop(client.peer, client)
        if self._waiting:
            self._wake()

    async def _wait(self, peer: str, amount: int) -> None:
        while True:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = (peer, amount)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # this waiter was woken: wake another one instead
                raise
            finally:
                del self._waiting[waiter]
            if self._make_room(peer, amount):
                return

    def _make_room(self, peer: str, amount: int) -> bool:
        needed = self._budget.used_by(peer) + amount
        if needed > _BODY_MEMORY_BYTES // 2:
            return False
        while not self._budget.has_room(amount):
            evicted = self._budget.next_to_evict(
                needed, lambda it: it.state is ConnectionState.READING
            )
            if evicted is None:
                return False
            self._budget.drop(*evicted)
            evicted[1].abort()
        return True

    def _wake(self) -> None:
        """Wake the next waiter, which wakes another one when it has its memory."""
        waiting = sorted(self._waiting.items(), key=lambda it: self._budget.used_by(it[1][0]))
        for waiter, (peer, amount) in waiting:
            is_within = self._budget.used_by(peer) + amount <= _BODY_MEMORY_BYTES // 2
            if not waiter.done() and is_within and self._budget.has_room(amount):
                waiter.set_result(None)
                return
