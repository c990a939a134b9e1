"""Limits on connections and request bodies, so that no client keeps the API server out.

Every pod of the cluster may reach the port. So each step of a connection has a deadline, and above
the limit the oldest idle connection of the address with the most connections is aborted. Memory for
a body is reserved before the body is read, at most half of all memory for one address. When the
memory is full, incomplete bodies of the address that uses most are aborted.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Any, Final, cast

from aiohttp import web

from webhook.cache.owner_budget import OwnerBudget

__all__ = [
    "MAX_BODY_BYTES",
    "BodyMemory",
    "ClientConnection",
    "ConnectionState",
    "Connections",
]

MAX_BODY_BYTES: Final = 8 << 20  # an object may have 3 MiB, and an update has the old one as well
MAX_CONNECTIONS: Final = 512  # twice the number of concurrent reviews
_BODY_MEMORY_BYTES: Final = 64 << 20
_MIN_BODY_BYTES: Final = (
    256 << 10
)  # the least that a review reserves: at most 256 concurrent reviews
_BUFFER_BYTES: Final = 64 << 10  # of the kernel and of aiohttp, for each connection
_REQUEST_S: Final = 30.0  # from the headers of a request to the end of its response
_IDLE_S: Final = 100.0  # longer than the 90 s after which an API server closes it
_SWEEP_S: Final = 0.25
_GRACE_S: Final = 3.0  # for responses that are in progress when the server stops

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class ConnectionState(Enum):
    """The state of a connection."""

    WAITING = "no complete request header"
    READING = "the request body is read"
    ANSWERING = "a review is being answered"


class ClientConnection(web.RequestHandler):
    """One connection."""

    def __init__(self, server: web.Server, peer: str, read_s: float) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # as aiohttp's own runner does
            auto_decompress=False,
            lingering_time=1.0,
            read_bufsize=_BUFFER_BYTES,
        )
        self.peer: Final = peer
        self.state = ConnectionState.WAITING
        self.deadline_s = loop.time() + read_s
        self.handshake: asyncio.Task[None] | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self._time: Final = loop.time
        self._read_s: Final = read_s
        self._raw_transport: asyncio.Transport | None = None
        self._request_begun = True  # so that the handshake keeps its deadline

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to abort it later: aiohttp drops it when it closes a connection."""
        self._raw_transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.went_idle()  # an API server may open a connection before it needs one
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release the place of this connection."""
        super().connection_lost(exc)
        self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Set the deadline when a request begins to arrive."""
        if not self._request_begun:
            self._request_begun = True
            self.deadline_s = self._time() + self._read_s
        super().data_received(data)

    def headers_received(self) -> None:
        """Note that the headers of a request arrived."""
        self.state = ConnectionState.READING
        self._request_begun = True
        self.deadline_s = self._time() + _REQUEST_S

    def went_idle(self) -> None:
        """Note that a request was answered."""
        self.state = ConnectionState.WAITING
        self._request_begun = False
        self.deadline_s = self._time() + _IDLE_S

    def abort(self) -> None:
        """Abort the connection at once."""
        if self._raw_transport is not None:
            self._raw_transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()


class BodyMemory:
    """Memory for request bodies; the address that uses least gets memory next."""

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
        """Release the memory of a body."""
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


class Connections:
    """Listens, and accepts connections."""

    def __init__(self, handle: Handle, tls: ssl.SSLContext, read_s: float) -> None:
        self.body_memory: Final = BodyMemory()
        self._tls: Final = tls
        self._read_s: Final = read_s
        self._server: Final = web.Server(handle, request_factory=_make_request)
        self._budget: Final = OwnerBudget[ClientConnection](MAX_CONNECTIONS)
        self._clients: Final[dict[ClientConnection, None]] = {}
        self._listening_socket: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def listen(self, address: str, port: int) -> int:
        """Begin to listen, and return the port; raise `OSError` if that fails."""
        listening = self._listening_socket = _listen(address, port)
        listening.settimeout(0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(it) for it in (self._accept(listening), self._abort_expired())
        ]
        bound: int = listening.getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening, and finish the reviews that are being answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listening_socket is not None:
            self._listening_socket.close()
        for client in [it for it in self._clients if it.transport is None]:
            client.abort()
        self._server.pre_shutdown()
        await self._server.shutdown(_GRACE_S)

    def went_idle(self, client: ClientConnection) -> None:
        """Note that a request was answered: its connection is now the newest idle one."""
        client.went_idle()
        if client in self._clients:
            self._budget.put(client.peer, client, 1)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError:  # the client is gone, or no file descriptors are left
                await asyncio.sleep(_SWEEP_S)
                continue
            client = ClientConnection(self._server, str(address[0]), self._read_s)
            if self._make_room():
                self._clients[client] = None
                self._budget.put(client.peer, client, 1)
                client.on_lost = partial(self._forget, client)
                client.handshake = loop.create_task(self._handshake(connection, client))
            else:
                connection.close()
            await asyncio.sleep(0)  # let open connections run

    def _make_room(self) -> bool:
        if self._budget.has_room(1):
            return True
        evicted = self._budget.next_to_evict(
            0, lambda it: it.state is not ConnectionState.ANSWERING
        )
        if evicted is not None:
            self._forget(evicted[1])
            evicted[1].abort()
        return evicted is not None

    async def _handshake(self, connection: socket.socket, client: ClientConnection) -> None:
        """Do the TLS handshake of a connection."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: client, connection, ssl=self._tls, ssl_shutdown_timeout=1.0
            )
        except (OSError, asyncio.CancelledError):
            connection.close()
            self._forget(client)
        client.handshake = None

    async def _abort_expired(self) -> None:
        """Abort connections with a deadline in the past."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = loop.time()
            for client in [it for it in self._clients if it.deadline_s < now_s]:
                client.abort()

    def _forget(self, client: ClientConnection) -> None:
        self._clients.pop(client, None)
        self._budget.drop(client.peer, client)


def _listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens, on every interface of both families where there are two."""
    if address:
        addresses = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        family, socket_address = addresses[0][0], addresses[0][4]
        return socket.create_server(socket_address[:2], family=family, backlog=MAX_CONNECTIONS)
    is_dual = socket.has_dualstack_ipv6()
    return socket.create_server(
        ("", port),
        family=socket.AF_INET6 if is_dual else socket.AF_INET,
        backlog=MAX_CONNECTIONS,
        dualstack_ipv6=is_dual,
    )


def _make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: Any
) -> web.BaseRequest:
    """Make a request with a body of up to MAX_BODY_BYTES."""
    protocol.headers_received()
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )
