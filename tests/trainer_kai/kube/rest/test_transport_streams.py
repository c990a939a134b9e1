"""Answers that go on: both transports read them while they are written, and end when cancelled."""

import asyncio
from typing import Final

import pytest

from tests.support.case import Case, ids
from tests.support.fakes.both_transports import (
    BOTH_TRANSPORTS,
    GET,
    LONG_S,
    ConnectedTransport,
    TransportFactory,
    close_connection,
    connected,
    half_answer,
    never_answer,
)
from tests.support.fakes.http_server import (
    Answerer,
    ReceivedRequest,
    ServerConnection,
    always_answer,
    http_answer,
)
from trainer_kai.kube.rest.response import NotFound, Throttled, Unavailable
from trainer_kai.kube.rest.transport import Transport


async def read(transport: Transport, silence_s: float = LONG_S) -> bytes:
    async with transport.stream(GET, silence_s) as pieces:
        return b"".join([piece async for piece in pieces])


def pieces_of(*pieces: bytes) -> Answerer:
    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(http_answer(200, b"", "Transfer-Encoding: chunked"))
        for piece in pieces:
            await line.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        await line.is_closed.wait()

    return answer


@BOTH_TRANSPORTS
async def test_a_stream_comes_as_it_is_written(kind: TransportFactory) -> None:
    """What is there is read before the rest is written, to the end."""
    more = asyncio.Event()

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(http_answer(200, b"1\r\na\r\n", "Transfer-Encoding: chunked"))
        await more.wait()
        await line.send(b"2\r\nbc\r\n0\r\n\r\n")

    async with connected(kind, answer) as the, the.transport.stream(GET, LONG_S) as pieces:
        assert await anext(pieces) == b"a"
        more.set()
        assert b"".join([piece async for piece in pieces]) == b"bc"


@BOTH_TRANSPORTS
async def test_a_refused_stream(kind: TransportFactory) -> None:
    """It is an error of ours before anything is read, with the words of the server."""
    async with connected(kind, always_answer(404, b'{"reason":"NotFound","message":"m"}')) as the:
        with pytest.raises(NotFound, match="GET /api/v1/pods: 404 NotFound: m"):
            await read(the.transport)
        the.server.answer = always_answer(429, b"", "Retry-After: 3")
        with pytest.raises(Throttled) as raised:
            await read(the.transport)

    assert raised.value.retry_after_s == 3


SILENT: Final = "did not respond in time"
SILENCES: list[Case[Answerer, str]] = [
    Case("nothing at all", never_answer, SILENT),
    Case("nothing more", pieces_of(b"a"), SILENT),
    Case("closed before the answer", close_connection, "broke"),
    Case("reset within the answer", half_answer, "broke"),
]


@BOTH_TRANSPORTS
@pytest.mark.parametrize("case", SILENCES, ids=ids)
async def test_a_stream_that_breaks(kind: TransportFactory, case: Case[Answerer, str]) -> None:
    """The reader gets an error, as of a request; it was sent once."""
    async with connected(kind, case.given) as the:
        with pytest.raises(Unavailable, match=case.want):
            await read(the.transport, 0.05 if case.want == SILENT else LONG_S)

        assert len(the.server.requests) == 1


@BOTH_TRANSPORTS
@pytest.mark.parametrize("error", [TimeoutError("mine"), ValueError("mine"), OSError("mine")])
async def test_errors_of_the_reader_are_its_own(kind: TransportFactory, error: Exception) -> None:
    """They come out as they are, and the connection is closed."""

    async def fail(the: ConnectedTransport) -> None:
        async with the.transport.stream(GET, LONG_S) as pieces:
            assert await anext(pieces) == b"a"
            raise error

    async with connected(kind, pieces_of(b"a")) as the:
        with pytest.raises(type(error)) as raised:
            await fail(the)

        assert raised.value is error
        await the.server.connections[0].until_closed()


@BOTH_TRANSPORTS
async def test_a_reader_that_leaves_early_closes_the_connection(kind: TransportFactory) -> None:
    async with connected(kind, pieces_of(b"a")) as the:
        async with the.transport.stream(GET, LONG_S) as pieces:
            await anext(pieces)

        await the.server.connections[0].until_closed()


@BOTH_TRANSPORTS
async def test_a_stream_that_is_cancelled(kind: TransportFactory) -> None:
    async with connected(kind, pieces_of(b"a")) as the:
        reading = asyncio.create_task(read(the.transport))
        await the.server.until_requests(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await the.server.connections[0].until_closed()


@BOTH_TRANSPORTS
async def test_closing_cuts_off_what_still_streams(kind: TransportFactory) -> None:
    async with connected(kind, pieces_of(b"a")) as the, the.transport.stream(GET, LONG_S) as pieces:
        await anext(pieces)
        await the.transport.close()
        with pytest.raises(Unavailable, match="broke"):
            await anext(pieces)
