"""Connections of the server, and bodies that are under way: both bounded, and shared by address.

Every pod of the cluster may reach the port. So a connection has its time for each step; where there
are too many, the oldest that waits goes, of the address that has most. Bodies have their room
before they are read, an address at most half of it; where that is full, bodies that have not come
whole give way, of the address that takes most. So the API server is answered whatever a pod does.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Any, Final, cast

from aiohttp import web

from webhook.shares import Shares

__all__ = ["LONGEST_BODY", "MOST_CONNECTIONS", "Connections", "Line", "Room", "Step"]

LONGEST_BODY: Final = 8 << 20  # the API server takes objects of 3 MiB, and sends the old one along
MOST_CONNECTIONS: Final = 512  # twice as many as reviews at a time
_ROOM_BYTES: Final = 64 << 20
_LEAST_BYTES: Final = 256 << 10  # that a review counts for: so there are at most 256 at a time
_BUFFER_BYTES: Final = 64 << 10  # of the kernel and of aiohttp, for each connection
_REQUEST_S: Final = 30.0  # from its headers to the end of its answer
_IDLE_S: Final = 100.0  # an API server closes what it does not use after 90 s, and so goes first
_LOOK_S: Final = 0.25
_GRACE_S: Final = 3.0  # for answers that are under way when the server stops

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Step(Enum):
    """What happens on a connection."""

    WAITING = "nothing was asked, or not whole"
    READING = "the body is coming"
    ANSWERING = "a review is being answered"


class Line(web.RequestHandler):
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
        self.step = Step.WAITING
        self.until_s = loop.time() + read_s
        self.entering: asyncio.Task[None] | None = None
        self.is_lost: Callable[[], None] = lambda: None
        self._time: Final = loop.time
        self._read_s: Final = read_s
        self._opened: asyncio.Transport | None = None
        self._has_begun = True  # what will be a request has: it has its time

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of how to end it: aiohttp forgets that as soon as it is asked to close."""
        self._opened = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.rest()  # an API server may open one before it has a use for it
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Make room for another one."""
        super().connection_lost(exc)
        self.is_lost()

    def data_received(self, data: bytes) -> None:
        """Give what begins to come its time."""
        if not self._has_begun:
            self._has_begun = True
            self.until_s = self._time() + self._read_s
        super().data_received(data)

    def begin(self) -> None:
        """Be told that the headers of a request are there."""
        self.step = Step.READING
        self._has_begun = True
        self.until_s = self._time() + _REQUEST_S

    def rest(self) -> None:
        """Be told that a request was answered."""
        self.step = Step.WAITING
        self._has_begun = False
        self.until_s = self._time() + _IDLE_S

    def end(self) -> None:
        """End it at once."""
        if self._opened is not None:
            self._opened.abort()
        elif self.entering is not None:
            self.entering.cancel()


class Room:
    """Memory for bodies; the next turn has the address that holds least."""

    def __init__(self) -> None:
        self._shares: Final = Shares[Line](_ROOM_BYTES)
        self._waiting: Final[dict[asyncio.Future[None], tuple[str, int]]] = {}

    async def take(self, line: Line, length: int | None, within_s: float) -> None:
        """Wait until there is room for a body; of unknown length it may be the longest.

        `TimeoutError` says that there was none in time.
        """
        amount = max(LONGEST_BODY if length is None else length, _LEAST_BYTES)
        if not self._makes_room(line.peer, amount):
            async with asyncio.timeout(within_s):
                await self._wait(line.peer, amount)
        self._shares.put(line.peer, line, amount)
        if self._waiting:
            self._wake()

    def give_back(self, line: Line) -> None:
        """Be told that a body is not needed any more."""
        self._shares.drop(line.peer, line)
        if self._waiting:
            self._wake()

    async def _wait(self, peer: str, amount: int) -> None:
        while True:
            turn = asyncio.get_running_loop().create_future()
            self._waiting[turn] = (peer, amount)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()  # the turn was ours, and is another one's now
                raise
            finally:
                del self._waiting[turn]
            if self._makes_room(peer, amount):
                return

    def _makes_room(self, peer: str, amount: int) -> bool:
        needed = self._shares.held(peer) + amount
        if needed > _ROOM_BYTES // 2:
            return False
        while not self._shares.has_room(amount):
            gone = self._shares.surplus(needed, lambda it: it.step is Step.READING)
            if gone is None:
                return False
            self._shares.drop(*gone)
            gone[1].end()
        return True

    def _wake(self) -> None:
        """Let the next one look; it wakes another when it has its room."""
        waiting = sorted(self._waiting.items(), key=lambda it: self._shares.held(it[1][0]))
        for turn, (peer, amount) in waiting:
            is_within = self._shares.held(peer) + amount <= _ROOM_BYTES // 2
            if not turn.done() and is_within and self._shares.has_room(amount):
                turn.set_result(None)
                return


class Connections:
    """Listens, and lets connections in."""

    def __init__(self, handle: Handle, tls: ssl.SSLContext, read_s: float) -> None:
        self.room: Final = Room()
        self._tls: Final = tls
        self._read_s: Final = read_s
        self._server: Final = web.Server(handle, request_factory=_request)
        self._shares: Final = Shares[Line](MOST_CONNECTIONS)
        self._lines: Final[dict[Line, None]] = {}
        self._listening: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def listen(self, address: str, port: int) -> int:
        """Begin; return the port. `OSError` says why not."""
        listening = self._listening = _bound(address, port)
        listening.settimeout(0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(it) for it in (self._accept(listening), self._look())]
        bound: int = listening.getsockname()[1]
        return bound

    async def close(self) -> None:
        """Listen no more, and answer what is being answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        for line in [it for it in self._lines if it.transport is None]:
            line.end()
        self._server.pre_shutdown()
        await self._server.shutdown(_GRACE_S)

    def rest(self, line: Line) -> None:
        """Be told that a request was answered: its connection is the newest that waits."""
        line.rest()
        if line in self._lines:
            self._shares.put(line.peer, line, 1)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError:  # gone again, or there are no more files
                await asyncio.sleep(_LOOK_S)
                continue
            line = Line(self._server, str(address[0]), self._read_s)
            if self._makes_room():
                self._lines[line] = None
                self._shares.put(line.peer, line, 1)
                line.is_lost = partial(self._forget, line)
                line.entering = loop.create_task(self._enter(connection, line))
            else:
                connection.close()
            await asyncio.sleep(0)  # connections that are open have a turn

    def _makes_room(self) -> bool:
        if self._shares.has_room(1):
            return True
        gone = self._shares.surplus(0, lambda it: it.step is not Step.ANSWERING)
        if gone is not None:
            self._forget(gone[1])
            gone[1].end()
        return gone is not None

    async def _enter(self, connection: socket.socket, line: Line) -> None:
        """Shake hands."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: line, connection, ssl=self._tls, ssl_shutdown_timeout=1.0
            )
        except (OSError, asyncio.CancelledError):
            connection.close()
            self._forget(line)
        line.entering = None

    async def _look(self) -> None:
        """End what has had its time."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = loop.time()
            for line in [it for it in self._lines if it.until_s < now_s]:
                line.end()

    def _forget(self, line: Line) -> None:
        self._lines.pop(line, None)
        self._shares.drop(line.peer, line)


def _bound(address: str, port: int) -> socket.socket:
    """Return a socket that listens, on every interface of both families where there are two."""
    if address:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        family, where = found[0][0], found[0][4]
        return socket.create_server(where[:2], family=family, backlog=MOST_CONNECTIONS)
    is_dual = socket.has_dualstack_ipv6()
    return socket.create_server(
        ("", port),
        family=socket.AF_INET6 if is_dual else socket.AF_INET,
        backlog=MOST_CONNECTIONS,
        dualstack_ipv6=is_dual,
    )


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """Make a request whose body may be as long as a review is."""
    protocol.begin()
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=LONGEST_BODY
    )
