"""What only the single connection does: requests wait for each other, and none holds up the end."""

import asyncio
from dataclasses import replace

import pytest

from tests.support.fakes.both_transports import (
    GET,
    LONG_S,
    POST,
    access_to,
    connected,
    never_answer,
)
from tests.support.fakes.http_server import (
    RawHttpServer,
    ReceivedRequest,
    ServerConnection,
    always_answer,
    http_answer,
)
from trainer_kai.kube.rest.command_transport import CommandTransport
from trainer_kai.kube.rest.response import ApiResponse, Unavailable


async def cancel(sending: asyncio.Task[object]) -> None:
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_requests_wait_for_each_other() -> None:
    """There is one connection, and one request on it."""
    at_once, most = 0, 0

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        await line.send(http_answer(200))

    async with connected(CommandTransport, answer) as the:
        await asyncio.gather(*(the.send() for _ in range(5)))

    assert (most, len(the.server.connections), len(the.server.requests)) == (1, 1, 5)


async def test_a_waiting_caller_may_leave() -> None:
    """Its request is never sent, and the one before it is left alone."""
    go_on = asyncio.Event()

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await go_on.wait()
        await line.send(http_answer(200))

    async with connected(CommandTransport, answer) as the:
        first = asyncio.create_task(the.send())
        await the.server.until_requests(1)
        second = asyncio.create_task(the.send(POST))
        await asyncio.sleep(0)
        await cancel(second)
        go_on.set()

        assert (await first).status == 200
        assert len(the.server.requests) == 1


async def test_an_answer_that_ends_with_its_connection() -> None:
    """Nothing says how long it is: it is whole when the other end says so."""

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\n\r\nsome ")
        await line.send(b"text")
        await line.close()

    async with connected(CommandTransport, answer) as the:
        assert (await the.send()).body == b"some text"
        assert (await the.send()).body == b"some text"
        assert len(the.server.connections) == 2


@pytest.mark.parametrize(
    "raw_response",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", id="no end of the headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhal", id="a part"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nha\r\n", id="a chunk"
        ),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="an announcement"),
        pytest.param(b"SSH-2.0-none\r\n", id="another protocol"),
    ],
)
async def test_an_answer_that_is_none(raw_response: bytes) -> None:
    """A connection that ends too early is no end of an answer."""

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(raw_response)
        await line.close()

    async with connected(CommandTransport, answer) as the:
        assert (await the.send_unanswered()).was_sent


async def test_an_answer_is_announced() -> None:
    """A status below 200 is not the answer yet."""
    announced = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n" + http_answer(200, b"it")
    async with connected(CommandTransport, lambda _asked, line: line.send(announced)) as the:
        assert await the.send() == ApiResponse(200, b"it")
        assert await the.send() == ApiResponse(200, b"it")
        assert len(the.server.connections) == 1


async def test_bytes_that_were_not_asked_for_answer_no_request() -> None:
    """Two answers to one request: the second is not that to the next request."""
    twice = http_answer(200, b"it") + http_answer(200, b"what?")
    async with connected(CommandTransport, lambda _asked, line: line.send(twice)) as the:
        assert (await the.send()).body == b"it"
        assert (await the.send()).body == b"it"
        assert len(the.server.connections) == 2


async def test_a_server_that_shakes_no_hands() -> None:
    """A server without TLS says nothing at all."""
    async with RawHttpServer.open(never_answer) as wire:  # it waits for a request in plain text
        transport = CommandTransport(access_to(wire))
        with pytest.raises(Unavailable) as raised:
            await transport.send(POST, 0.05)
        await transport.close()

    assert not raised.value.was_sent


async def test_without_tls() -> None:
    """A server on this machine may have none."""
    async with RawHttpServer.open(always_answer(200)) as wire:
        rest_config = access_to(wire)
        transport = CommandTransport(replace(rest_config, server=f"http://localhost:{wire.port}"))
        assert (await transport.send(GET, LONG_S)).status == 200
        await transport.close()

    assert wire.requests[0].headers["host"] == f"localhost:{wire.port}"
