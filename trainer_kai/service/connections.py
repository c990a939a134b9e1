"""Limits on the connections of a server, so that no client keeps the others out.

Every pod of the cluster may reach the ports. So each step of a connection has a deadline, and above
the limit the oldest idle connection of the address with the most connections is aborted.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeAlias, cast

from aiohttp import web

from trainer_kai.owner_budget import OwnerBudget

Callback: TypeAlias = Callable[[], None]

_BUFFER_BYTES: Final = 64 << 10  # of the kernel and of aiohttp, for each connection
_SWEEP_S: Final = 0.25


class ConnectionLimits(NamedTuple):
    """How many connections a server has, and how long each step of one may last."""

    connections: int
    read_s: float  # until the headers of a request, or the handshake, are complete
    request_s: float  # from the headers of a request to the end of its response
    idle_s: float  # before and between requests
    grace_s: float  # for responses that are in progress when the server stops


class ConnectionState(Enum):
    WAITING = "no complete request header"
    READING = "a request arrived"
    ANSWERING = "a request is being answered, and is not given up for another connection"


class ClientConnection(web.RequestHandler):
    def __init__(self, server: web.Server, peer: str, limits: ConnectionLimits) -> None:
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
        self.deadline_s = loop.time() + limits.read_s
        self.handshake: asyncio.Task[None] | None = None
        self.on_lost: Callback = lambda: None
        self._time: Final = loop.time
        self._limits: Final = limits
        self._raw_transport: asyncio.Transport | None = None
        self._request_begun = True  # so that the handshake keeps its deadline

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to abort it later: aiohttp drops it when it closes a connection."""
        self._raw_transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.went_idle()  # a client may open a connection before it needs one
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Set the deadline when a request begins to arrive."""
        if not self._request_begun:
            self._request_begun = True
            self.deadline_s = self._time() + self._limits.read_s
        super().data_received(data)

    def headers_received(self) -> None:
        self.state = ConnectionState.READING
        self._request_begun = True
        self.deadline_s = self._time() + self._limits.request_s

    def answering(self) -> None:
        """Note progress of a long response: it is not given up for another connection."""
        self.state = ConnectionState.ANSWERING
        self.deadline_s = self._time() + self._limits.request_s

    def went_idle(self) -> None:
        self.state = ConnectionState.WAITING
        self._request_begun = False
        self.deadline_s = self._time() + self._limits.idle_s

    def abort(self) -> None:
        if self._raw_transport is not None:
            self._raw_transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()


class Connections:
    def __init__(
        self, server: web.Server, limits: ConnectionLimits, tls: ssl.SSLContext | None = None
    ) -> None:
        """Without *tls* in plain text."""
        self._server: Final = server
        self._limits: Final = limits
        self._tls: Final = tls
        self._budget: Final = OwnerBudget[ClientConnection](limits.connections)
        self._clients: Final[dict[ClientConnection, None]] = {}
        self._listening_socket: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def listen(self, address: str, port: int) -> int:
        """Return the port; raise `OSError` if listening fails."""
        listening = self._listening_socket = _listen(address, port, self._limits.connections)
        listening.settimeout(0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(it) for it in (self._accept(listening), self._abort_expired())
        ]
        bound: int = listening.getsockname()[1]
        return bound

    async def close(self) -> None:
        """Responses in progress are finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listening_socket is not None:
            self._listening_socket.close()
        for client in [it for it in self._clients if it.transport is None]:
            client.abort()
        self._server.pre_shutdown()
        await self._server.shutdown(self._limits.grace_s)

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
            client = ClientConnection(self._server, str(address[0]), self._limits)
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
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: client,
                connection,
                ssl=self._tls,
                ssl_shutdown_timeout=1.0 if self._tls else None,
            )
        except (OSError, asyncio.CancelledError):
            connection.close()
            self._forget(client)
        client.handshake = None

    async def _abort_expired(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = loop.time()
            for client in [it for it in self._clients if it.deadline_s < now_s]:
                client.abort()

    def _forget(self, client: ClientConnection) -> None:
        self._clients.pop(client, None)
        self._budget.drop(client.peer, client)


def _listen(address: str, port: int, backlog: int) -> socket.socket:
    """On every interface of both families where there are two."""
    if address:
        addresses = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        family, socket_address = addresses[0][0], addresses[0][4]
        return socket.create_server(socket_address[:2], family=family, backlog=backlog)
    is_dual = socket.has_dualstack_ipv6()
    return socket.create_server(
        ("", port),
        family=socket.AF_INET6 if is_dual else socket.AF_INET,
        backlog=backlog,
        dualstack_ipv6=is_dual,
    )
