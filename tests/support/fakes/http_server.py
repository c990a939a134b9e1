"""An HTTP server on loopback under byte control, so that a test can break off anywhere."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, Self, TypeAlias

_PATIENCE_S: Final = 60.0


class ReceivedRequest(NamedTuple):
    """One request as it came in."""

    method: str
    target: str
    headers: dict[str, str]  # names in small letters
    body: bytes
    connection: int  # the first one is 1


class ServerConnection:
    """One connection, from the server's side."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self.is_closed = asyncio.Event()
        self._reader = reader
        self._writer = writer
        self._socket = writer.get_extra_info("socket")

    async def send(self, data: bytes) -> None:
        """Send some bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """Close it as a server does that has waited long enough."""
        self._writer.close()

    async def reset(self) -> None:
        """Break it: what is on its way is lost."""
        with suppress(OSError):  # it is closed already
            now = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        self._writer.transport.abort()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on all bytes between this connection and another one, to the end of both."""

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                target.write(data)
            target.close()

        await asyncio.gather(pass_on(self._reader, writer), pass_on(reader, self._writer))

    async def note_end(self) -> None:
        """Take note of the end, on whichever side it comes from."""
        with suppress(OSError):
            await self._writer.wait_closed()
        self.is_closed.set()

    async def until_closed(self) -> None:
        """Wait until it is closed."""
        async with asyncio.timeout(_PATIENCE_S):
            await self.is_closed.wait()


Answerer: TypeAlias = Callable[[ReceivedRequest, ServerConnection], Awaitable[None]]


class RawHttpServer:
    """A server that answers as it is told and remembers what it was asked."""

    def __init__(self, answer: Answerer) -> None:
        self.answer = answer
        self.requests: list[ReceivedRequest] = []
        self.connections: list[ServerConnection] = []
        self.port = 0
        self._has_request = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, answer: Answerer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> AsyncIterator[Self]:
        """Serve for as long as the context lasts."""
        wire = cls(answer)
        server = await asyncio.start_server(wire._serve, host, 0, ssl=tls)
        wire.port = server.sockets[0].getsockname()[1]
        try:
            yield wire
        finally:
            server.close()
            for line in wire.connections:
                await line.reset()
            await server.wait_closed()

    async def until_requests(self, count: int) -> None:
        """Wait until so many requests have come in whole."""
        async with asyncio.timeout(_PATIENCE_S):
            while len(self.requests) < count:
                self._has_request.clear()
                await self._has_request.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = ServerConnection(len(self.connections) + 1, reader, writer)
        self.connections.append(line)
        watching = asyncio.create_task(line.note_end())
        try:
            while True:
                asked = await _read(reader, line.number)
                self.requests.append(asked)
                self._has_request.set()
                await self.answer(asked, line)
        except (asyncio.IncompleteReadError, OSError):
            pass  # no more requests
        finally:
            writer.close()
            await watching


async def _read(reader: asyncio.StreamReader, connection: int) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in rest)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, target, headers, body, connection)


def http_answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    """Write an answer; without a length of its own it has that of the body."""
    lines = [f"HTTP/1.1 {status} Said", *headers]
    if not any(
        line.lower().startswith(("content-length", "transfer-encoding")) for line in headers
    ):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def always_answer(status: int, body: bytes = b"", *headers: str) -> Answerer:
    """Give every request the same answer."""

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(http_answer(status, body, *headers))

    return answer
