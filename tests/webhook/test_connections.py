"""Connections over real TLS, and their turns: each step has its time, each address its share."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import pytest
from aiohttp import web

from tests.support.closed_connection import is_closed
from tests.support.machine_speed import slowdown_now
from tests.webhook.objects import POD, pod, review
from tests.webhook.served_webhook import ServedWebhook, client_tls, serving
from trainer_kai.service.connections import ClientConnection, ConnectionState
from webhook import server
from webhook.server import MAX_BODY_BYTES, BodyMemory

PODS = "/mutate/pod"
HEAD = f"POST {PODS} HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
Open = Callable[..., Any]


@asynccontextmanager
async def opening(served: ServedWebhook) -> AsyncIterator[Open]:
    """Return what opens a connection from an address; they are closed at the end."""
    with_tls = client_tls()
    async with AsyncExitStack() as stack:

        async def connect(peer: str = "127.0.0.1", tls: ssl.SSLContext | None = with_tls) -> Any:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                served.server.port,
                ssl=tls,
                server_hostname="127.0.0.1" if tls else None,
                local_addr=(peer, 0),
            )
            stack.enter_context(closing(writer))
            return reader, writer

        yield connect


@pytest.mark.parametrize("text", [b"POST /mut", b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\n"])
async def test_half_a_request_is_not_waited_for(text: bytes) -> None:
    """What begins has its time."""
    async with serving(read_s=0.3) as served, opening(served) as connect:
        reader, writer = await connect()
        writer.write(text)

        assert await is_closed(reader)


async def test_a_connection_may_be_opened_before_it_is_used() -> None:
    """As an API server does, which would not ask again where such a one is closed."""
    body = review(pod(), POD)
    read_s = 0.3 * max(1.0, slowdown_now())  # on a slow machine a handshake takes longer too
    async with serving(read_s=read_s) as served, opening(served) as connect:
        reader, writer = await connect()
        await asyncio.sleep(1.5 * read_s)
        writer.write((HEAD % len(body)).encode() + body)

        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_handshake_that_does_not_come_is_not_waited_for() -> None:
    """Such a connection has not even shown that it is a client."""
    async with serving(read_s=0.3) as served, opening(served) as connect:
        reader, _ = await connect(tls=None)

        assert await is_closed(reader)


async def test_idle_is_another_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was answered once may rest, for so long, and what begins then has its time again."""
    body = review(pod(), POD)

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((HEAD % len(body)).encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await reader.readexactly(length)

    read_s = 0.3 * max(1.0, slowdown_now())
    monkeypatch.setattr(server, "_LIMITS", server._LIMITS._replace(idle_s=3 * read_s))
    async with serving(read_s=read_s) as served, opening(served) as connect:
        clients = [await connect() for _ in range(2)]
        for client in clients:
            await ask(*client)
        await asyncio.sleep(1.5 * read_s)
        await ask(*clients[1])
        clients[0][1].write(b"POST")

        assert await is_closed(clients[0][0])
        assert await is_closed(clients[1][0])


async def test_the_oldest_of_the_address_with_most_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What others have open stays."""
    monkeypatch.setattr(server, "_LIMITS", server._LIMITS._replace(connections=4))
    body = review(pod(), POD)
    async with serving() as served, opening(served) as connect:
        other, writer = await connect("127.0.0.2")
        many = [await connect("127.0.0.3", tls) for tls in (None, client_tls(), None, None)]

        assert await is_closed(many[0][0])
        writer.write((HEAD % len(body)).encode() + body)
        assert b" 200 " in await other.readline()
        assert not await is_closed(many[1][0], 0.1)


class _FakeConnection(ClientConnection):
    """A connection without a socket."""

    def __init__(self, peer: str, step: ConnectionState = ConnectionState.READING) -> None:
        async def handle(_: web.BaseRequest) -> web.StreamResponse:
            raise AssertionError("no request comes without a socket")

        super().__init__(web.Server(handle), peer, server._LIMITS)
        self.state = step
        self.was_aborted = False

    def abort(self) -> None:
        self.was_aborted = True


async def waits(
    memory: BodyMemory, client: ClientConnection, length: int | None = MAX_BODY_BYTES
) -> asyncio.Task[None]:
    task = asyncio.create_task(memory.acquire(client, length, 60))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_an_address_has_half_of_the_room() -> None:
    """Its next body waits for one that was answered; another address does not."""
    memory = BodyMemory()
    clients = [_FakeConnection("a", ConnectionState.ANSWERING) for _ in range(5)]
    tasks = [await waits(memory, client) for client in clients]
    other = await waits(memory, _FakeConnection("b"))
    before = [it.done() for it in tasks]
    memory.release(clients[0])
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert before == [True] * 4 + [False]
    assert other.done()
    assert tasks[4].done()


async def test_a_short_body_counts_for_more_than_its_length() -> None:
    """So there are so many reviews at a time, and no more."""
    memory = BodyMemory()
    tasks = [await waits(memory, _FakeConnection("a"), 10) for _ in range(129)]

    assert sum(it.done() for it in tasks) == 128
    tasks[-1].cancel()


async def test_unfinished_bodies_give_way() -> None:
    """The oldest first, and only of an address that has more; not a review that is answered."""
    memory = BodyMemory()
    own = [
        _FakeConnection("a", ConnectionState.ANSWERING),
        *(_FakeConnection("a") for _ in range(3)),
    ]
    others = [_FakeConnection("b") for _ in range(4)]
    for client in [*own, *others]:
        assert (await waits(memory, client)).done()

    assert (await waits(memory, _FakeConnection("c"), None)).done()
    assert [it.was_aborted for it in own] == [False, True, False, False]
    assert not any(it.was_aborted for it in others)


async def test_the_next_turn_has_the_address_that_holds_least() -> None:
    """Not the one that came first."""
    memory = BodyMemory()
    held = [_FakeConnection(peer, ConnectionState.ANSWERING) for peer in "aaabbbb"]
    for client in [*held, full := _FakeConnection("c", ConnectionState.ANSWERING)]:
        assert (await waits(memory, client)).done()
    first, second = (
        await waits(memory, _FakeConnection("a")),
        await waits(memory, _FakeConnection("d")),
    )
    cancelled = await waits(memory, _FakeConnection("e"))
    cancelled.cancel()
    await asyncio.wait([cancelled])
    memory.release(held[-1])
    await asyncio.wait([second], timeout=60)
    before = first.done()
    memory.release(full)
    await asyncio.wait([first], timeout=60)

    assert (before, first.done(), second.done()) == (False, True, True)
