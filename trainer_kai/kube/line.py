"""One connection that carries one request at a time: what is written, and what comes back."""

import asyncio
import select
import ssl

import httptools

from trainer_kai.kube.answer import Answer
from trainer_kai.kube.request import Request

__all__ = ["Line", "open_line"]


class Line(asyncio.Protocol):
    """A connection. Whatever comes in between two answers makes it useless, and so does an end.

    The parser calls the methods that are named as it wants them.
    """

    def __init__(self, host: str) -> None:
        self._host = host  # as the header says it
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None  # None before the first request
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._has_headers = False
        self._is_free = True  # for the next request

    def is_usable(self) -> bool:
        """Say whether it is open and nothing came since the last answer: an end, most likely."""
        if not self._is_free or self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    async def ask(self, request: Request, path: str, headers: dict[str, str]) -> Answer:
        """Send a request and read the answer; the connection does not outlive who gives up."""
        self._is_free = False
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(_text(request, path, {"Host": self._host, **headers}))
        try:
            return await self._answer
        finally:
            if not self._is_free:
                self.cut()

    def cut(self) -> None:
        """End it at once."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what requests are written to."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read on."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._is_free = False
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer: an error, unless its end is the end of the connection."""
        is_measured = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if self._answer is None or self._answer.done():
            return
        if exc is None and self._has_headers and not is_measured:
            self._succeed(self._answer)
        else:
            why = "closed before the answer was whole"
            self._answer.set_exception(exc or ConnectionResetError(why))

    def on_message_begin(self) -> None:
        """Begin an answer."""
        self._is_free = False
        self._headers, self._pieces, self._has_headers = {}, [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Note that the body comes next."""
        self._has_headers = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        """Note a piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """End the answer, if it is one: whatever is below 200 announces another."""
        if self._has_headers and self._answer is not None and not self._answer.done():
            self._is_free = self._parser.should_keep_alive()
            self._succeed(self._answer)

    def _succeed(self, answer: asyncio.Future[Answer]) -> None:
        wait = self._headers.get(b"retry-after")
        retry_after = wait.decode("latin-1") if wait is not None else None
        status = self._parser.get_status_code()
        answer.set_result(Answer(status, b"".join(self._pieces), retry_after))


async def open_line(host: str, port: int, shown: str, tls: ssl.SSLContext | None) -> Line:
    """Connect; *shown* is how the server calls itself."""
    loop = asyncio.get_running_loop()
    _, line = await loop.create_connection(lambda: Line(shown), host, port, ssl=tls)
    return line


def _text(request: Request, path: str, headers: dict[str, str]) -> bytes:
    if request.body is not None:
        headers["Content-Length"] = str(len(request.body))
    lines = [f"{request.method} {path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, "", ""]).encode() + (request.body or b"")
