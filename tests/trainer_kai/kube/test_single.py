"""What only the single connection does: requests wait for each other, and none holds up the end."""

import asyncio
import time
from dataclasses import replace

import pytest

from tests.support.ways import GET, LONG_S, POST, access_to, never, way
from tests.support.wire import Asked, Line, Wire, answering, reply
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.errors import Unavailable
from trainer_kai.kube.single import SingleTransport


async def cancel(sending: asyncio.Task[object]) -> None:
    """Cancel a request and see it end."""
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_requests_wait_for_each_other() -> None:
    """There is one connection, and one request on it."""
    at_once, most = 0, 0

    async def answer(_asked: Asked, line: Line) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        await line.send(reply(200))

    async with way(SingleTransport, answer) as the:
        await asyncio.gather(*(the.send() for _ in range(5)))

    assert (most, len(the.wire.lines), len(the.wire.asked)) == (1, 1, 5)


async def test_who_waits_may_leave() -> None:
    """Its request is never sent, and the one before it is left alone."""
    go_on = asyncio.Event()

    async def answer(_asked: Asked, line: Line) -> None:
        await go_on.wait()
        await line.send(reply(200))

    async with way(SingleTransport, answer) as the:
        first = asyncio.create_task(the.send())
        await the.wire.until_asked(1)
        second = asyncio.create_task(the.send(POST))
        await asyncio.sleep(0)
        await cancel(second)
        go_on.set()

        assert (await first).status == 200
        assert len(the.wire.asked) == 1


async def test_an_answer_that_ends_with_its_connection() -> None:
    """Nothing says how long it is: it is whole when the other end says so."""

    async def answer(_asked: Asked, line: Line) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\n\r\nsome ")
        await line.send(b"text")
        await line.close()

    async with way(SingleTransport, answer) as the:
        assert (await the.send()).body == b"some text"
        assert (await the.send()).body == b"some text"
        assert len(the.wire.lines) == 2


@pytest.mark.parametrize(
    "said",
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
async def test_an_answer_that_is_none(said: bytes) -> None:
    """A connection that ends too early is no end of an answer."""

    async def answer(_asked: Asked, line: Line) -> None:
        await line.send(said)
        await line.close()

    async with way(SingleTransport, answer) as the:
        assert (await the.fails()).was_sent


async def test_an_answer_is_announced() -> None:
    """A status below 200 is not the answer yet."""
    announced = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n" + reply(200, b"it")
    async with way(SingleTransport, lambda _asked, line: line.send(announced)) as the:
        assert await the.send() == Answer(200, b"it")
        assert await the.send() == Answer(200, b"it")
        assert len(the.wire.lines) == 1


async def test_nobody_is_answered_who_did_not_ask() -> None:
    """Two answers to one request: the second is not that to the next request."""
    twice = reply(200, b"it") + reply(200, b"what?")
    async with way(SingleTransport, lambda _asked, line: line.send(twice)) as the:
        assert (await the.send()).body == b"it"
        assert (await the.send()).body == b"it"
        assert len(the.wire.lines) == 2


async def test_a_server_that_shakes_no_hands() -> None:
    """Whoever speaks no TLS says nothing at all."""
    async with Wire.open(never) as wire:  # it waits for a request in plain text
        transport = SingleTransport(access_to(wire))
        began_s = time.monotonic()
        with pytest.raises(Unavailable) as raised:
            await transport.send(POST, 0.05)
        await transport.close()

    assert time.monotonic() - began_s < LONG_S / 2
    assert not raised.value.was_sent


async def test_without_tls() -> None:
    """A server on this machine may have none."""
    async with Wire.open(answering(200)) as wire:
        access = access_to(wire)
        transport = SingleTransport(replace(access, server=f"http://localhost:{wire.port}"))
        assert (await transport.send(GET, LONG_S)).status == 200
        await transport.close()

    assert wire.asked[0].headers["host"] == f"localhost:{wire.port}"
