"""Large objects of a tenant come in few at a time, so that a process that starts can read them."""

import asyncio
from contextlib import suppress
from typing import Final

import pytest

from tests.support.clock import VirtualClock
from tests.support.fakes.both_transports import connected
from tests.support.fakes.fake_kube import FakeKube
from tests.support.fakes.http_server import ReceivedRequest, ServerConnection
from tests.support.fakes.watch_recorder import WatchRecorder
from trainer_kai.api.meta import PartialObject
from trainer_kai.api.resources import Resource
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.pooled_transport import PooledTransport
from trainer_kai.kube.rest.request import ListTarget, Request
from trainer_kai.kube.rest.response import ApiResponse, ErrorDetails, TooLarge
from trainer_kai.kube.watch import Watch

_MIB: Final = 2**20
_MAX_ANSWER_BYTES: Final = 4 * _MIB  # of an answer, so that a test need not make 32
_THINGS: Final = Resource("example.com", "v1", "things", "Thing", True, PartialObject)


class _Narrow(FakeKube):
    """An API server, as it is seen through a transport that reads so much of an answer."""

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Answer a list; the API server knows a token as often as it is shown."""
        lists = dict(self._lists)
        answer = await super().send(request, timeout_s)
        if len(answer.body) <= _MAX_ANSWER_BYTES:
            return answer
        self._lists = lists
        raise TooLarge(ErrorDetails(str(request), 200, "", ""))


async def _limits(kube: FakeKube, objects: int) -> list[int]:
    """Follow the fake until all is known; return how many objects each page was to have."""
    heard = WatchRecorder[PartialObject]()
    access = RestConfig("https://fake", StaticToken(""), origin="the test")
    client = Client(access, kube, VirtualClock(), NoRequestObserver())
    watch = Watch(client, ListTarget(_THINGS, "default"), heard)
    task = asyncio.create_task(watch.run(heard.change, heard.has_synced))
    while not heard.synced:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert len(heard.state) == objects
    queries = (dict(it.query) for it in kube.requests)
    return [int(query["limit"]) for query in queries if "limit" in query]


async def test_no_page_is_larger_than_what_a_process_that_starts_can_read() -> None:
    """A page was of 500 objects, whatever their size: 750 MB of the largest that are stored."""
    kube = FakeKube()
    for number in range(60):
        kube.put(f"t{number}", text="x" * (_MIB // 2))

    first, *others = await _limits(kube, 60)

    assert first * 1.5 < 80  # MiB
    assert all(limit <= 16 for limit in others)


async def test_a_page_that_is_too_large_is_asked_for_in_parts() -> None:
    """Small objects come first, and then the large ones of a tenant."""
    kube = _Narrow()
    for number in range(150):
        kube.put(f"t{number:03}", text="x" * (_MIB // 10 if number >= 50 else 1))

    limits = await _limits(kube, 150)

    assert limits[:4] == [50, 500, 50, 5]


async def test_a_list_is_read_whole_all_the_same() -> None:
    """So the webhook lists the runtimes when it starts."""
    kube = _Narrow()
    for number in range(60):
        kube.put(f"t{number}", text="x" * (_MIB // 10))
    access = RestConfig("https://fake", StaticToken(""), origin="the test")
    client = Client(access, kube, VirtualClock(), NoRequestObserver())

    assert len(await client.list(ListTarget(_THINGS, "default"))) == 60


async def test_what_is_too_large_is_not_read_to_its_end() -> None:
    """A server that goes on for ever takes no memory."""

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                await line.send(b" " * _MIB)

    async with connected(PooledTransport, answer) as the:
        with pytest.raises(TooLarge, match="the response has more than 32 MiB"):
            await the.send()


async def test_small_objects_come_in_large_pages() -> None:
    """What is common costs one request more."""
    kube = FakeKube()
    for number in range(1_000):
        kube.put(f"t{number}")

    assert await _limits(kube, 1_000) == [50, 500, 500]
