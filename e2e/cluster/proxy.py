"""A proxy before the API server that delays, cuts and refuses, to see who can live with that.

Only the answers it makes up itself need it to speak HTTP: it ends TLS with the cluster's own
certificate, so clients see what they would see of a busy API server and not of a broken wire.
Clients must log in with a token. HTTP/2 is not offered; Go's clients then use several connections.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from e2e.cluster.certificates import KeyPair

_BY_HOP: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "host", "upgrade"))
_REASONS: Final = {
    403: "Forbidden",
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Burst(NamedTuple):
    """Refusals to give out: how many, with which status, to whom."""

    status: int
    left: int
    applies: Callable[[str, str], bool]  # method, path
    retry_after_s: int | None


class Cut(NamedTuple):
    """An answer to break off: whose, and after how many more bytes."""

    left: int
    applies: Callable[[str, str], bool]  # method, path with query


class Strike(NamedTuple):
    """Something to do when a request was carried out: after how many, and which."""

    left: int
    applies: Callable[[str, str, bytes], bool]  # method, path, body
    action: Callable[[], None]


class FaultProxy:
    """The proxy; `async with` opens and closes it. Without any fault it only passes on."""

    def __init__(self, upstream: str, port: int, serving: KeyPair, authority: Path) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.answered: Counter[int] = Counter()  # by status, made-up answers included
        self.under_way = 0  # requests that were not answered yet
        self.most_under_way = 0
        self._upstream = upstream
        self._port = port
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(serving.certificate, serving.key)
        self._authority = ssl.create_default_context(cafile=str(authority))
        self._delay_s = 0.0
        self._burst: Burst | None = None
        self._cut: Cut | None = None
        self._strike: Strike | None = None
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._authority, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.shut()
        await self._session.close()

    async def open(self) -> None:
        """Listen."""
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,  # a client that is gone ends its watch upstream as well
            shutdown_timeout=0,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls)
        await site.start()

    async def shut(self) -> None:
        """Listen no more and cut every connection, as an API server that is restarted does."""
        self.reset()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def delay(self, seconds: float) -> None:
        """Hold back every request, and every piece of a stream, this long from now on."""
        self._delay_s = seconds

    def burst(
        self,
        status: int,
        count: int,
        *,
        applies: Callable[[str, str], bool] = lambda _method, _path: True,
        retry_after_s: int | None = 1,
    ) -> None:
        """Refuse the next *count* requests that *applies* picks by method and path."""
        self._burst = Burst(status, count, applies, retry_after_s)

    def cut(
        self, after_bytes: int, applies: Callable[[str, str], bool] = lambda _method, _path: True
    ) -> None:
        """Break off an answer that *applies* picks, new or under way, after so many more bytes."""
        self._cut = Cut(after_bytes, applies)

    @property
    def is_cut(self) -> bool:
        """Say whether the answer that was to be broken off has been."""
        return self._cut is None

    def strike(
        self, after: int, applies: Callable[[str, str, bytes], bool], action: Callable[[], None]
    ) -> None:
        """Act once the API server has done so many requests, before the client hears of the last.

        Writes that *applies* picks by method, path and body count, if they are not refused.
        """
        self._strike = Strike(after, applies, action)

    def withdraw_strike(self) -> None:
        """Do nothing after any request."""
        self._strike = None

    @property
    def has_struck(self) -> bool:
        """Say whether what was to be done after some requests has been done or withdrawn."""
        return self._strike is None

    @property
    def refusals_left(self) -> int:
        """Return how many refusals of the burst nobody has met yet."""
        return self._burst.left if self._burst else 0

    def reset(self) -> None:
        """Cut every connection now, in the middle of whatever it carries."""
        server = self._runner.server if self._runner else None
        for connection in list(server.connections) if server else []:
            if connection.transport is not None:
                connection.transport.abort()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return await self._answer(request)
        finally:
            self.under_way -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if (refusal := self._refusal(request)) is not None:
            self.answered[refusal.status] += 1
            return refusal
        try:
            return await self._ask_upstream(request)
        except aiohttp.ClientError:
            # What happened to the API server's connection happens to the client's.
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPBadGateway from None  # nobody hears it

    async def _ask_upstream(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with self._session.request(
            request.method,
            self._upstream + request.raw_path,
            data=body or None,
            headers=_end_to_end(request.headers),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            allow_redirects=False,
        ) as answer:
            self.answered[answer.status] += 1
            if answer.status < 400:
                self._count_for_strike(request, body)
            kept = _end_to_end(answer.headers)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                whole = self._uncut(request, piece)
                await response.write(whole)
                if len(whole) < len(piece) and request.transport is not None:
                    request.transport.close()  # after what was written, and before its end
                    return response
            await response.write_eof()
            return response

    def _count_for_strike(self, request: web.Request, body: bytes) -> None:
        strike = self._strike
        if strike is None or not strike.applies(request.method, request.path, body):
            return
        self._strike = strike._replace(left=strike.left - 1) if strike.left > 1 else None
        if self._strike is None:
            strike.action()

    def _uncut(self, request: web.Request, piece: bytes) -> bytes:
        """Return what may still pass of a piece."""
        cut = self._cut
        if cut is None or not cut.applies(request.method, request.path_qs):
            return piece
        if len(piece) <= cut.left:
            self._cut = cut._replace(left=cut.left - len(piece))
            return piece
        self._cut = None
        return piece[: cut.left]

    def _refusal(self, request: web.Request) -> web.Response | None:
        burst = self._burst
        if burst is None or not burst.left or not burst.applies(request.method, request.path):
            return None
        self._burst = burst._replace(left=burst.left - 1)
        wait = burst.retry_after_s
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "refused by the fault proxy",
            "reason": _REASONS.get(burst.status, ""),
            "code": burst.status,
            "details": {} if wait is None else {"retryAfterSeconds": wait},
        }
        headers = {} if wait is None else {"Retry-After": str(wait)}
        return web.json_response(status, status=burst.status, headers=headers)


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers meant for the other end, not for the next hop; repeated ones as well."""
    return CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in _BY_HOP)
