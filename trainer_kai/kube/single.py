"""One connection for a command that asks a few things and ends: straight to the API server.

The standard library's HTTP client is there in a tenth of the time that the pooled transport takes
to import. Whatever is followed for longer is worth that time, and goes over the other one.
"""

import asyncio
import http.client
import select
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from trainer_kai.kube.access import Access
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.request import Request
from trainer_kai.kube.tls import tls_context
from trainer_kai.kube.transport import headers_for, unavailable, untrusted

if TYPE_CHECKING:
    from trainer_kai.kube.pooled import PooledTransport

__all__ = ["SingleTransport"]

_CONNECT_S: Final = 10.0


class SingleTransport:
    """A transport for commands: requests wait for each other."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._turn = asyncio.Lock()
        self._kept: http.client.HTTPConnection | None = None  # never touched by a thread
        self._pooled: PooledTransport | None = None

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """Send a request and read the whole answer, in a thread."""
        headers = await headers_for(request, self._access)
        async with self._turn:
            trip = _Trip(self._access, request, headers, self._kept)
            self._kept = None
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await asyncio.to_thread(trip.make)
            except TimeoutError as error:
                message = f"{self._access.server} did not answer in time"
                raise unavailable(request, message, was_sent=trip.was_sent) from error
            finally:
                self._kept = trip.end()
            return answer

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
            self._kept.close()
        if self._pooled is not None:
            await self._pooled.close()


class _Trip:
    """One request on its way in a thread, which can only be called back by cutting its line.

    1. `make` runs in the thread, `end` on the event loop, once, whether or not `make` has ended.
    2. The connection belongs to the trip until `end`, which returns it if it can be used again.
    3. Whoever of the two is last closes what cannot.
    """

    def __init__(
        self,
        access: Access,
        request: Request,
        headers: dict[str, str],
        kept: http.client.HTTPConnection | None,
    ) -> None:
        self.was_sent = False
        self._access = access
        self._request = request
        self._headers = headers
        self._connection = kept
        self._lock = Lock()
        self._has_begun = False
        self._is_made = False  # in time, so that the connection can be used again
        self._is_over = False

    def make(self) -> Answer:
        """Send the request and read the answer; every wait in here ends when its line is cut."""
        with self._lock:
            self._has_begun = True
        try:
            return self._ask(self._connect())
        finally:
            with self._lock:
                if not self._is_made:
                    self._close()

    def end(self) -> http.client.HTTPConnection | None:
        """Return the connection, whole; or cut it, so that the thread ends as well."""
        with self._lock:
            self._is_over = True
            if self._is_made:
                return self._connection
            if self._has_begun:
                self._cut()
            else:
                self._close()
            return None

    def _ask(self, connection: http.client.HTTPConnection) -> Answer:
        request, path = self._request, urlsplit(self._access.server).path
        self.was_sent = True
        try:
            connection.request(request.method, path + request.target, request.body, self._headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.read(), response.getheader("Retry-After"))
        except (OSError, http.client.HTTPException) as error:
            message = f"the connection to {self._access.server} broke: {error!r}"
            raise unavailable(request, message, was_sent=True) from error
        with self._lock:
            is_open = connection.sock is not None  # the other end may have had enough of it
            self._is_made = is_open and not self._is_over
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        self._go_on()
        if self._connection is not None:
            if _is_quiet(self._connection.sock):
                return self._connection
            self._connection.close()  # the other end did so while it was idle
        access = self._access
        connection = _connection_to(access)
        try:
            self._open(connection)
        except ssl.SSLCertVerificationError as error:
            raise untrusted(access, error.verify_message, error.verify_code) from error
        except OSError as error:
            message = f"cannot connect to {access.server}, from {access.origin}: {error}"
            raise unavailable(self._request, message, was_sent=False) from error
        connection.sock.settimeout(None)  # the event loop has the clock
        return connection

    def _open(self, connection: http.client.HTTPConnection) -> None:
        """Connect, step by step: what shakes hands for too long can be cut as well."""
        context = tls_context(self._access)
        sock = socket.create_connection((connection.host, connection.port), _CONNECT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock = context.wrap_socket(
                sock, server_hostname=connection.host, do_handshake_on_connect=False
            )
        connection.sock = sock
        with self._lock:
            self._connection = connection
        self._go_on()
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()

    def _go_on(self) -> None:
        with self._lock:
            if self._is_over:
                raise unavailable(self._request, "it was given up", was_sent=False)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _cut(self) -> None:
        """End every wait of the thread; it closes the socket, for a closed one wakes nobody."""
        if self._connection is not None and self._connection.sock is not None:
            with suppress(OSError):  # it is cut already
                # Not the method of the TLS socket, which would go on in plain text.
                socket.socket.shutdown(self._connection.sock, socket.SHUT_RDWR)


def _connection_to(access: Access) -> http.client.HTTPConnection:
    server = urlsplit(access.server)
    is_secure = server.scheme == "https"
    kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    return kind(server.netloc)


def _is_quiet(sock: socket.socket) -> bool:
    """Say whether nothing has come since the last answer: an end, most likely."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)
