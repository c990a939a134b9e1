"""Lines and pages of a watch, and what its consumer gets."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.fake_kube import FakeKube
from tests.support.fakes.watch_recorder import WatchRecorder
from trainer_kai.api.decode import DecodeError
from trainer_kai.api.meta import Meta
from trainer_kai.api.resources import Resource
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.request import ListTarget, Request
from trainer_kai.kube.rest.response import Unauthorized
from trainer_kai.kube.watch import (
    NO_BOOKMARKS,
    Delta,
    DeltaType,
    LineSplitter,
    UnreadableObject,
    Watch,
    WatchTiming,
    read_object,
    read_page,
)

CASES = [
    Case("a line in one piece", [b"one\n"], [b"one"]),
    Case("two lines in one piece", [b"one\ntwo\n"], [b"one", b"two"]),
    Case("a line in three pieces", [b"o", b"n", b"e\n"], [b"one"]),
    Case("an end of its own", [b"one", b"\n", b"two", b"\n"], [b"one", b"two"]),
    Case("a line that is never finished is none", [b"one\ntw", b"o"], [b"one"]),
    Case("empty lines are none", [b"\n\none\n\n"], [b"one"]),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_lines(case: Case[list[bytes], list[bytes]]) -> None:
    """Lines come out as soon as they are whole."""
    lines = LineSplitter()

    assert [line for piece in case.given for line in lines.feed(piece)] == case.want


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_it_does_not_matter_where_a_stream_is_cut(whole: list[bytes], data: st.DataObject) -> None:
    """The same bytes give the same lines, however they arrive."""
    rest = b"".join(line + b"\n" for line in whole)
    lines, found = LineSplitter(), []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += lines.feed(rest[:size])
        rest = rest[size:]

    assert found == whole


class Sized(msgspec.Struct, frozen=True):
    metadata: Meta
    size: int = 0


def _object(name: str, size: object) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": "7"}, "size": size}


def test_a_page_is_read_whole() -> None:
    page = {"metadata": {"resourceVersion": "9"}, "items": [_object("a", 1), _object("b", 2)]}

    read = read_page(Sized, json.dumps(page).encode())

    assert read.metadata.resource_version == "9"
    assert [item.size for item in read.items if isinstance(item, Sized)] == [1, 2]


def test_an_unreadable_object_is_set_aside() -> None:
    """The others of its page are read, and its key is known."""
    items = [_object("a", 1), _object("b", "many"), _object("c", 3)]
    page = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": items}

    read = read_page(Sized, json.dumps(page).encode())

    assert read.metadata.continue_token == "more"
    first, second, third = read.items
    assert isinstance(first, Sized)
    assert isinstance(third, Sized)
    assert isinstance(second, UnreadableObject)
    assert second.metadata.name == "b"
    assert second.error.fault.path == "size"


def test_a_list_without_items_is_empty() -> None:
    """Go writes null for a list of none."""
    assert (
        list(read_page(Sized, b'{"metadata": {"resourceVersion": "1"}, "items": null}').items) == []
    )


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"size": "many"}'])
def test_what_has_no_metadata_is_an_error(data: bytes) -> None:
    """Without so much as a name there is nothing to set aside."""
    with pytest.raises(DecodeError):
        read_object(Sized, data)


class Thing(msgspec.Struct, frozen=True):
    metadata: Meta
    size: int = 0


THINGS: Final = Resource("example.com", "v1", "things", "Thing", True, Thing)
TIMING: Final = WatchTiming(page_items=3, first_wait_s=0.1, longest_wait_s=30.0)
LONG_S: Final = 3600.0  # longer than any failure lasts

Step: TypeAlias = Callable[[FakeKube], None]


class WatchHarness:
    """A watch of the fake, and all that it reported."""

    def __init__(
        self,
        kube: FakeKube,
        consumer: WatchRecorder[Thing],
        *,
        timing: WatchTiming = TIMING,
        clock: VirtualClock | None = None,
        optional: bool = False,
    ) -> None:
        self.kube = kube
        self.clock = clock or VirtualClock()
        self.consumer = consumer
        rest_config = RestConfig("https://fake", StaticToken(""), origin="the test")
        client = Client(rest_config, kube, self.clock, NoRequestObserver())
        target = ListTarget(THINGS, "default")
        self.watch = Watch(
            client, target, self.consumer, timing=timing, jitter=lambda: 0.5, optional=optional
        )

    @property
    def reported(self) -> list[tuple[DeltaType, str]]:
        return [(change.type, change.key.name) for change in self.consumer.changes]

    @property
    def state(self) -> dict[str, str]:
        """Return name and version of every object, as the consumer knows them."""
        found = self.consumer.state.items()
        return {key.name: thing.metadata.resource_version for key, thing in found}


@asynccontextmanager
async def _running(
    kube: FakeKube, consumer: WatchRecorder[Thing] | None = None
) -> AsyncIterator[WatchHarness]:
    async with _running_harness(WatchHarness(kube, consumer or WatchRecorder())) as run:
        yield run


@asynccontextmanager
async def _running_harness(run: WatchHarness) -> AsyncIterator[WatchHarness]:
    task = asyncio.create_task(run.watch.run(run.consumer.change, run.consumer.has_synced))
    await run.clock.advance(0)
    try:
        yield run
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def test_a_list_comes_first() -> None:
    """What is there is reported as added, page by page, before the consumer is called synced."""
    kube = FakeKube()
    for number in range(7):
        kube.put(f"t-{number}")

    async with _running(kube) as run:
        assert run.reported == [(DeltaType.ADDED, f"t-{number}") for number in range(7)]
        assert run.consumer.reads == ["PAGE"] * 3
        assert run.consumer.synced == 1
        assert run.watch.synced


async def test_deletions_in_a_gap_are_reported_without_a_state() -> None:
    """A list after a gap shows what is gone; an object that came back is another one."""
    kube = FakeKube()
    for name in ("stays", "goes", "returns"):
        kube.put(name)
    async with _running(kube) as run:
        since = len(run.consumer.changes)
        kube.break_streams()
        kube.delete("goes")
        kube.delete("returns")
        kube.put("returns")
        kube.compact()
        await run.clock.advance(LONG_S)

        assert run.reported[since:] == [
            (DeltaType.DELETED, "returns"),
            (DeltaType.ADDED, "returns"),
            (DeltaType.DELETED, "goes"),
        ]
        assert run.consumer.changes[since].object is None
        assert run.consumer.synced == 2


async def test_a_watch_that_lags_by_its_stream_lists_again() -> None:
    """The refusal may come as a line of the stream instead of a status."""
    kube = FakeKube()
    async with _running(kube) as run:
        kube.put("a")
        kube.expire_streams()
        await run.clock.advance(LONG_S)

        assert run.reported == [(DeltaType.ADDED, "a")]
        assert run.consumer.synced == 2


class _Forgetful(WatchRecorder[Thing]):
    """A consumer during whose first page the list expires."""

    def __init__(self, kube: FakeKube) -> None:
        super().__init__()
        self._kube = kube

    def watch_read(self, resource: str, event: str) -> None:
        if not self.reads:
            self._kube.put("meanwhile")
            self._kube.compact()
        super().watch_read(resource, event)


async def test_an_expired_page_begins_the_list_anew() -> None:
    """Pages of a list that took too long are gone: larger ones come next, and nothing twice."""
    kube = FakeKube()
    for number in range(7):
        kube.put(f"t-{number}")
    async with _running(kube, _Forgetful(kube)) as run:
        await run.clock.advance(LONG_S)

        assert run.state == kube.versions
        assert [dict(asked.query).get("limit") for asked in kube.requests] == ["3", "3", "12", None]
        assert run.consumer.synced == 1


async def test_a_watch_continues_from_the_last_thing_it_reported() -> None:
    """After a broken line the event comes again; after a bookmark not even that is needed."""
    kube = FakeKube()
    async with _running(kube) as run:
        kube.put("a")
        await run.clock.advance(0)
        kube.bookmark()
        await run.clock.advance(0)
        kube.put("b")
        kube.break_streams(after_bytes=20)
        await run.clock.advance(LONG_S)

        assert run.reported == [(DeltaType.ADDED, "a"), (DeltaType.ADDED, "b")]
        versions = [dict(asked.query).get("resourceVersion") for asked in kube.requests]
        assert versions == [None, "0", "1"]
        assert run.consumer.synced == 1


async def test_failures_are_waited_out_longer_each_time() -> None:
    """An API server that is down is not asked more and more often, and success forgets that."""
    kube = FakeKube()
    async with _running(kube) as run:
        kube.refuse(*[503] * 5)
        kube.break_streams()
        waits = await _waits(run, 6)
        assert waits == pytest.approx([0.075 * 2**n for n in range(6)])
        assert run.watch.trouble == ""

        kube.put("a")
        await run.clock.advance(0)
        kube.break_streams()
        assert await _waits(run, 1) == pytest.approx([0.075])


async def test_a_version_that_is_gone_is_no_reason_to_wait_on() -> None:
    """After an outage it is how an API server says that it is back: list at once."""
    kube = FakeKube()
    async with _running(kube) as run:
        kube.refuse(*[0] * 8)
        kube.break_streams()
        kube.put("a")
        kube.compact()
        waits = await _waits(run, 10)
        await run.clock.advance(0)

        assert waits[-2:] == pytest.approx([0.075 * 2**8, 0.075])
        assert run.reported == [(DeltaType.ADDED, "a")]


async def test_lists_that_lead_nowhere_are_read_ever_less_often() -> None:
    """A lagging API server serves lists, and knows no watch from their version on."""
    kube = FakeKube()
    kube.put("a")
    async with _running(kube) as run:
        kube.is_behind = True
        kube.break_streams()
        await run.clock.advance(600)

        assert len(kube.requests) < 2 * 35  # after a minute it is one list in half a minute
        assert run.reported == [(DeltaType.ADDED, "a")]


async def test_an_api_server_that_is_away_at_the_start_is_reported_at_once() -> None:
    """The reason is known before the retry policy of a single request ends."""
    kube = FakeKube()
    kube.refuse(503, 503)
    async with _running(kube) as run:
        assert "503" in run.watch.not_synced_reason()
        assert len(run.consumer.failures) == 1
        await run.clock.advance(LONG_S)
        assert run.watch.not_synced_reason() == ""


async def test_an_optional_kind_that_is_not_served_has_no_objects() -> None:
    """Nothing waits for it, and it is found within a minute after its definition is there."""
    kube = FakeKube()
    kube.refuse(404, 404)
    harness = WatchHarness(kube, WatchRecorder(), optional=True)
    async with _running_harness(harness) as run:
        assert (run.consumer.synced, run.watch.not_synced_reason()) == (1, "")
        kube.put("a")
        assert await _waits(run, 2) == pytest.approx([45.0, 45.0])
        await run.clock.advance(0)

        assert run.reported == [(DeltaType.ADDED, "a")]
        assert run.consumer.failures == []
        assert len(kube.requests) == 4  # two lists in vain, one list, one watch


async def test_the_objects_of_a_definition_that_is_deleted_are_gone() -> None:
    """They are reported once, and so are those of the next definition."""
    kube = FakeKube()
    kube.put("a")
    async with _running_harness(WatchHarness(kube, WatchRecorder(), optional=True)) as run:
        kube.refuse(404)
        kube.break_streams()
        await run.clock.advance(1)
        assert run.reported == [(DeltaType.ADDED, "a"), (DeltaType.DELETED, "a")]
        await run.clock.advance(60)
        assert run.state == kube.versions


async def test_a_kind_that_has_to_be_served_is_waited_for() -> None:
    kube = FakeKube()
    kube.refuse(404)
    async with _running(kube) as run:
        assert run.consumer.synced == 0
        assert "is their CRD installed?" in run.watch.not_synced_reason()


async def _waits(run: WatchHarness, count: int) -> list[float]:
    waits = []
    for _ in range(count):
        await run.clock.advance(0)
        waits += run.clock.waits_s
        await run.clock.advance(run.clock.waits_s[0])
    return waits


async def test_a_stream_that_ends_at_once_is_not_asked_for_at_once() -> None:
    """Whatever stands before the API server and ends every stream does not make us spin."""
    kube = FakeKube()
    async with _running(kube) as run:
        for _ in range(3):
            await run.clock.advance(0)
            kube.end_streams()
            await run.clock.advance(0)
            assert len(run.clock.waits_s) == 1
            await run.clock.advance(run.clock.waits_s[0])
        assert len(kube.requests) == 5


class _SilentKube(FakeKube):
    """An API server without bookmarks: it ends each watch in time, unless its connection is dead.

    On a dead connection nothing comes, and the silence limit of the client ends the watch.
    """

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.is_dead = False
        self._clock = clock

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Serve a watch until its time is over, or until its client takes it for dead."""
        async with super().stream(request, silence_s) as pieces:
            end = asyncio.create_task(self._end(request, silence_s))
            try:
                yield pieces
            finally:
                end.cancel()

    async def _end(self, request: Request, silence_s: float) -> None:
        timeout_s = int(dict(request.query)["timeoutSeconds"])
        if self.is_dead or timeout_s > silence_s:
            await self._clock.sleep(silence_s)
            self.break_streams()
        else:
            await self._clock.sleep(timeout_s)
            self.end_streams()


@asynccontextmanager
async def _running_silent(timing: WatchTiming) -> AsyncIterator[tuple[WatchHarness, _SilentKube]]:
    """Follow a kind of which nothing is reported."""
    clock = VirtualClock()
    kube = _SilentKube(clock)
    harness = WatchHarness(kube, WatchRecorder(), timing=timing, clock=clock)
    async with _running_harness(harness) as run:
        yield run, kube


async def test_a_kind_without_bookmarks_is_followed_quietly() -> None:
    """Its streams end in time, also when the version has expired meanwhile; nothing is missed."""
    async with _running_silent(NO_BOOKMARKS) as (run, kube):
        for number in range(12):
            await run.clock.advance(300)
            kube.change_elsewhere()
            kube.compact()
            await run.clock.advance(300)
            kube.put(f"t-{number}")
        await run.clock.advance(300)

        assert run.consumer.failures == []
        assert run.watch.not_synced_reason() == ""
        assert len(run.reported) == 12
        assert run.consumer.synced == 13


async def test_a_dead_connection_without_bookmarks_is_found() -> None:
    """The API server does not end a stream either there: its client does, and reports it."""
    async with _running_silent(NO_BOOKMARKS) as (run, kube):
        kube.is_dead = True
        await run.clock.advance(2 * 60 + NO_BOOKMARKS.silence_s)
        kube.is_dead = False
        await run.clock.advance(600)

        assert [("broke" in it) for it in run.consumer.failures] == [True] * 2
        assert run.watch.not_synced_reason() == ""


async def test_an_expiry_that_repeats_without_bookmarks_is_reported() -> None:
    """An API server that lags behind its own lists is no normal course."""
    async with _running_silent(NO_BOOKMARKS) as (run, kube):
        kube.is_behind = True
        await run.clock.advance(600)
        assert run.consumer.failures != []


def test_a_silent_stream_ends_before_it_counts_as_dead() -> None:
    """A request takes up to twice its time, and its end some more."""
    assert 2 * NO_BOOKMARKS.stream_s < NO_BOOKMARKS.silence_s - 10


async def test_an_unreadable_object_is_not_there() -> None:
    """It is reported, the watch continues, and once it can be read it is added."""
    kube = FakeKube()
    kube.put("a", size="many")
    kube.put("b")
    async with _running(kube) as run:
        assert run.reported == [(DeltaType.ADDED, "b")]
        kube.put("b", size="many")
        kube.put("a", size=1)
        await run.clock.advance(0)

        assert run.reported[1:] == [(DeltaType.DELETED, "b"), (DeltaType.ADDED, "a")]
        assert [skipped.metadata.name for skipped in run.consumer.skipped] == ["a", "b"]
        assert run.consumer.failures == []


async def test_refused_credentials_end_the_watch() -> None:
    """Nothing but a new start with other credentials helps against a 401."""
    kube = FakeKube()

    def act() -> None:
        kube.refuse(401)
        kube.break_streams()

    with pytest.raises(Unauthorized, match="renew it, or log in again"):
        await _follow(kube, WatchRecorder(), act)


class _Raising(WatchRecorder[Thing]):
    def change(self, change: Delta[Thing]) -> None:
        raise ValueError(change.key.name)


async def test_what_the_consumer_raises_ends_the_watch() -> None:
    """A mistake of the consumer is not waited out."""
    kube = FakeKube()
    with pytest.raises(ValueError, match="a"):
        await _follow(kube, _Raising(), lambda: kube.put("a"))


async def _follow(
    kube: FakeKube, consumer: WatchRecorder[Thing], act: Callable[[], object]
) -> None:
    async with _running(kube, consumer) as run:
        act()
        await run.clock.advance(LONG_S)


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS: Final[st.SearchStrategy[Step]] = st.one_of(
    NAMES.map(lambda name: lambda kube: kube.put(name)),
    NAMES.map(lambda name: lambda kube: kube.put(name, size="many")),
    NAMES.map(lambda name: lambda kube: kube.delete(name)),
    st.integers(0, 200).map(lambda size: lambda kube: kube.break_streams(size)),
    st.lists(st.sampled_from([0, 403, 404, 410, 429, 500, 503]), max_size=3).map(
        lambda statuses: lambda kube: kube.refuse(*statuses)
    ),
    st.sampled_from(
        [FakeKube.bookmark, FakeKube.compact, FakeKube.end_streams, FakeKube.expire_streams]
    ),
)


@given(
    st.lists(st.tuples(STEPS, st.sampled_from([0.0, 0.0, 0.05, 1.0, 60.0])), max_size=25),
    st.integers(1, 300),
)
def test_every_net_change_is_reported_exactly_once(
    steps: Sequence[tuple[Step, float]], piece_bytes: int
) -> None:
    """After any history the consumer knows what there is, and got nothing twice.

    `Heard` fails on a change that cannot follow what was reported before it.
    """

    async def live() -> None:
        kube = FakeKube(piece_bytes)
        kube.put("a")
        async with _running(kube) as run:
            for step, pause_s in steps:
                step(kube)
                await run.clock.advance(pause_s)
            await run.clock.advance(LONG_S)
            readable = {
                n: v for n, v in kube.versions.items() if kube.fields(n).get("size") != "many"
            }
            assert run.state == readable

    asyncio.run(live())
