"""What only the single connection does: requests wait for each other, and none holds up the end."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from tests.support.ways import GET, LONG_S, POST, access_to, never, way
from tests.support.wire import Asked, Line, Wire, answering, reply
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


async def test_who_leaves_before_the_thread_begins_closes_the_connection() -> None:
    """All threads are busy: the kept connection must not be left open by nobody."""
    free = Event()
    async with way(SingleTransport, answering(200)) as the:
        await the.send()
        with ThreadPoolExecutor(1) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            busy = asyncio.create_task(asyncio.to_thread(free.wait))
            await asyncio.sleep(0)
            sending = asyncio.create_task(the.send(POST))
            await asyncio.sleep(0)
            await cancel(sending)
            await the.wire.lines[0].until_over()
            free.set()
            await busy
            assert (await the.send()).status == 200

    assert [asked.method for asked in the.wire.asked] == ["GET", "GET"]


async def test_a_server_that_shakes_no_hands() -> None:
    """Whoever speaks no TLS says nothing at all; the thread is not waited for."""
    async with Wire.open(never) as wire:  # it waits for a request in plain text
        transport = SingleTransport(access_to(wire))
        began_s = time.monotonic()
        with pytest.raises(Unavailable) as raised:
            await transport.send(POST, 0.05)
        await asyncio.get_running_loop().shutdown_default_executor()
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
