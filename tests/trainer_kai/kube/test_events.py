"""The event recorder and its correlator."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.scripted_transport import ScriptedTransport
from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.events import (
    CorrelatedEvent,
    EventApi,
    EventCorrelator,
    EventLimits,
    EventObject,
    EventRecorder,
    EventSettings,
    NewEvent,
    TokenBucket,
)
from trainer_kai.kube.rest.response import (
    AlreadyExists,
    ApiError,
    ErrorDetails,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD = EventObject("v1", "Pod", "team", "a", "uid-a")


class CorrelatorHarness:
    def __init__(self, limits: EventLimits | None = None) -> None:
        tokens = count(1)
        self.correlator = EventCorrelator(limits or EventLimits(), lambda: f"{next(tokens)}")
        self.now_s = 0.0
        self.written: list[tuple[str, str, int]] = []

    def post(self, message: str, regarding: EventObject = POD, reason: str = "Waiting") -> bool:
        now = NOON + timedelta(seconds=self.now_s)
        return self.correlator.post(NewEvent(regarding, reason, message, "Normal"), self.now_s, now)

    def write(self) -> list[CorrelatedEvent]:
        entries = []
        while (entry := self.correlator.first()) is not None:
            self.written.append((entry.name, entry.latest.message, entry.count))
            entries.append(entry)
            self.correlator.mark_written(entry, entry.count, self.now_s)
        return entries


def test_the_same_words_are_one_event() -> None:
    """It counts, also what is posted before it is first written."""
    harness = CorrelatorHarness()
    for _ in range(3):
        harness.post("no node has room")
    harness.write()
    harness.post("no node has room")
    harness.post("queue is full")
    harness.write()

    assert harness.written == [
        ("a.1", "no node has room", 3),
        ("a.1", "no node has room", 4),
        ("a.2", "queue is full", 1),
    ]


def test_the_same_words_about_others_are_other_events() -> None:
    """Object, reason and type each make a difference, and so does a namesake's uid."""
    harness = CorrelatorHarness()
    harness.post("x")
    harness.post("x", POD._replace(uid="uid-b"))
    harness.post("x", reason="Evicted")
    harness.correlator.post(NewEvent(POD, "Waiting", "x", "Warning"), 0, NOON)

    assert len(harness.write()) == 4


def test_many_similar_words_become_one_event() -> None:
    """The eleventh begins it; a pause of ten minutes ends it."""
    harness = CorrelatorHarness()
    for n in range(13):
        harness.post(f"{n} pods are missing")
    harness.write()
    harness.now_s = 601
    harness.post("13 pods are missing")
    harness.write()

    assert harness.written[9:] == [
        ("a.10", "9 pods are missing", 1),
        ("a.11", "(combined from similar events): 12 pods are missing", 3),
        ("a.12", "13 pods are missing", 1),
    ]


def test_one_object_cannot_flood_all() -> None:
    """25 writes at once, then one each five minutes; what is left out is counted in the next."""
    harness = CorrelatorHarness(EventLimits(similar_most=1000))
    taken = []
    for _ in range(40):
        taken.append(harness.post("again"))
        harness.write()
    other = harness.post("x", POD._replace(uid="uid-b"))
    harness.now_s = 299
    early = harness.post("again")
    harness.now_s = 300
    late = harness.post("again")
    harness.write()

    assert taken == [True] * 25 + [False] * 15
    assert (other, early, late) == (True, False, True)
    assert harness.written[-1] == ("a.1", "again", 42)


def test_what_is_posted_during_a_write_needs_a_write_of_its_own() -> None:
    """It goes on with the count, and to the end of the line."""
    harness = CorrelatorHarness()
    harness.post("x")
    harness.post("y")
    entry = harness.correlator.first()
    assert entry is not None
    written = entry.count
    harness.post("x")
    harness.correlator.mark_written(entry, written, 0)

    harness.write()

    assert harness.written == [("a.2", "y", 1), ("a.1", "x", 2)]


def test_what_is_forgotten_begins_anew() -> None:
    """The longest unused goes first, and never what still has to be written."""
    harness = CorrelatorHarness(EventLimits(remembered=3))
    for name in "abc":
        harness.post("x", POD._replace(uid=name))
    full = harness.post("x", POD._replace(uid="d"))
    harness.write()
    harness.post("x", POD._replace(uid="a"))
    harness.post("x", POD._replace(uid="d"))  # in the place of b
    harness.post("x", POD._replace(uid="b"))  # in the place of c
    harness.write()

    assert not full
    assert [(name, times) for name, _, times in harness.written[3:]] == [
        ("a.1", 2),
        ("a.4", 1),
        ("a.5", 1),
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.booleans()), max_size=300))
def test_memory_is_bounded(messages: list[tuple[int, int, bool]]) -> None:
    harness = CorrelatorHarness(EventLimits(remembered=8))
    for uid, words, written in messages:
        harness.post(f"{words}", POD._replace(uid=f"{uid}"))
        if written:
            harness.write()

        core = harness.correlator
        entries = len(core._entries) + len(core._waiting)
        assert max(len(core._buckets), len(core._similar), entries) <= 8


def test_an_event_as_the_api_has_it() -> None:
    """Beside its object, or in default; what is empty is left out."""
    harness = CorrelatorHarness()
    node = EventObject("v1", "Node", "", "n-1", "uid-n")
    harness.correlator.post(NewEvent(node, "Full", "no room", "Warning", {"k": "v"}), 0, NOON)
    harness.correlator.post(NewEvent(node, "Full", "no room", "Warning", {"k": "v"}), 0, NOON)
    (entry,) = harness.write()

    assert entry.body("kai-scheduler", "pod-1") == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default", "name": "n-1.1", "annotations": {"k": "v"}},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n-1", "uid": "uid-n"},
        "reason": "Full",
        "message": "no room",
        "type": "Warning",
        "count": 2,
        "firstTimestamp": "2026-01-01T12:00:00Z",
        "lastTimestamp": "2026-01-01T12:00:00Z",
        "source": {"component": "kai-scheduler"},
        "reportingComponent": "kai-scheduler",
        "reportingInstance": "pod-1",
    }


def test_the_name_of_an_event_is_one() -> None:
    """The name of its object may be as long as names get."""
    harness = CorrelatorHarness()
    harness.post("x", POD._replace(name="a" * 229 + "." + "b" * 23))
    (entry,) = harness.write()

    assert entry.name == "a" * 229 + ".1"


def test_a_bucket() -> None:
    """It says how long to wait, and is never fuller than full."""
    bucket = TokenBucket(2, 10)

    waits = [bucket.take(at_s) for at_s in (0, 0, 0, 5, 10, 10, 1000, 1000, 1000)]

    assert waits == [0, 0, 10, 5, 0, 10, 0, 0, 10]


def details(status: int, retry_after_s: float | None = None) -> ErrorDetails:
    return ErrorDetails("POST events", status, "", "no", retry_after_s)


class RecorderHarness:
    """A recorder at work, and the Events that came of it."""

    def __init__(self, **settings: float) -> None:
        self.clock = VirtualClock()
        self.log = CapturingLogger()
        self.counts: Counter[str] = Counter()
        self.events: dict[str, dict[str, Any]] = {}
        self.attempts: list[float] = []
        self.faults: list[ApiError] = []  # of the next writes
        self.loses_answers = False
        self.takes_s = 0.0
        self.recorder = EventRecorder(
            self,
            EventSettings("kai-scheduler", "pod-1", **settings),  # type: ignore[arg-type]
            self.clock,
            structlog.wrap_logger(self.log, processors=[]),
            count=lambda outcome: self.counts.update([outcome]),
            limits=EventLimits(object_burst=1000),
        )
        self.running = asyncio.create_task(self.recorder.run())

    async def create(self, namespace: str, body: Mapping[str, Any]) -> None:
        await self._take_fault()
        name = body["metadata"]["name"]
        assert body["metadata"]["namespace"] == namespace
        if name in self.events:
            raise AlreadyExists(details(409))
        self.events[name] = dict(body)
        if self.loses_answers:
            raise Unavailable(details(0))

    async def change(self, key: Key, fields: Mapping[str, Any]) -> None:
        await self._take_fault()
        if key.name not in self.events:
            raise NotFound(details(404))
        self.events[key.name] |= fields

    async def _take_fault(self) -> None:
        await self.clock.sleep(self.takes_s)
        self.attempts.append(self.clock.monotonic_s())
        if self.faults:
            raise self.faults.pop(0)

    @property
    def counted(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.events.values()]

    @property
    def logged(self) -> list[str]:
        return [call.kwargs["event"] for call in self.log.calls]


@pytest.fixture
async def harness() -> AsyncIterator[RecorderHarness]:
    made = RecorderHarness()
    yield made
    made.running.cancel()
    await made.clock.advance(100)
    await asyncio.wait([made.running])


async def test_a_post_is_written_soon_and_counted(harness: RecorderHarness) -> None:
    """No caller waits for it; a burst of the same is one write."""
    for _ in range(1000):
        harness.recorder.post(POD, "Waiting", "no room")
    before = len(harness.events)
    await harness.clock.advance(1)
    harness.recorder.post(POD, "Waiting", "no room")
    await harness.clock.advance(1)

    assert (before, harness.counted, harness.counts) == (0, [("no room", 1001)], {"posted": 2})
    (event,) = harness.events.values()
    assert (event["source"], event["type"]) == ({"component": "kai-scheduler"}, "Normal")


# faults of the first writes -> moments of all tries, what is there in the end, outcomes
FAULTS: list[Case[list[ApiError], tuple[int, list[tuple[str, int]], dict[str, int]]]] = [
    Case("an outage", [Unavailable(details(503))] * 3, (4, [("x", 1)], {"posted": 1})),
    Case("too much at once", [Throttled(details(429, 7))], (2, [("x", 1)], {"posted": 1})),
    Case("no permission", [Forbidden(details(403))], (1, [], {"failed": 1})),
    Case("no namespace any more", [NotFound(details(404))], (1, [], {"failed": 1})),
    Case("not good enough", [Invalid(details(422))], (1, [], {"failed": 1})),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
async def test_faults(
    harness: RecorderHarness,
    case: Case[list[ApiError], tuple[int, list[tuple[str, int]], dict[str, int]]],
) -> None:
    """What passes is waited for, what does not is dropped."""
    harness.faults = list(case.given)
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(300)

    assert (len(harness.attempts), harness.counted, dict(harness.counts)) == case.want
    assert harness.recorder.waiting == 0


async def test_a_retry_after_is_respected(harness: RecorderHarness) -> None:
    """The API server names the delay."""
    harness.faults = [Throttled(details(429, 7))]
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(300)

    assert harness.attempts[1] >= 7


async def test_what_is_dropped_is_logged_once(harness: RecorderHarness) -> None:
    """A namespace that is gone has many objects."""
    harness.faults = [NotFound(details(404))] * 5
    for n in range(5):
        harness.recorder.post(POD._replace(uid=f"{n}"), "Waiting", "x")
    await harness.clock.advance(1)

    assert (harness.logged, harness.counts) == (["event not written"], {"failed": 5})


async def test_an_event_that_was_made_without_our_knowing_is_not_made_twice(
    harness: RecorderHarness,
) -> None:
    """Its name is ours: what exists by that name is what we made."""
    harness.loses_answers = True
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(0)
    harness.loses_answers = False
    await harness.clock.advance(10)

    assert (harness.counted, harness.counts) == ([("x", 1)], {"posted": 1})


async def test_an_event_that_outlived_its_time_is_made_anew(harness: RecorderHarness) -> None:
    """The API server forgets them after an hour; the count goes on."""
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(1)
    harness.events.clear()
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(1)

    assert harness.counted == [("x", 2)]


async def test_bad_credentials_end_the_service() -> None:
    harness = RecorderHarness()
    harness.faults = [Unauthorized(details(401))]
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(1)

    assert isinstance(harness.running.exception(), Unauthorized)


async def test_the_pace_of_all_together() -> None:
    harness = RecorderHarness(burst=10, per_s=2)
    for n in range(20):
        harness.recorder.post(POD._replace(uid=f"{n}"), "Waiting", "x")
    await harness.clock.advance(0)
    at_once = len(harness.attempts)
    await harness.clock.advance(60)

    assert (at_once, len(harness.attempts), harness.attempts[-1]) == (10, 20, 5)
    harness.running.cancel()
    await harness.clock.advance(0)


async def test_new_events_wait_for_more_urgent_writes(harness: RecorderHarness) -> None:
    """For ten seconds at most; what an Event counts does not wait, and a stop waits for nothing."""
    busy_until_s = 4.0
    harness.recorder.is_busy = lambda now_s: now_s < busy_until_s
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(3.9)
    assert harness.attempts == []
    await harness.clock.advance(0.6)
    assert len(harness.attempts) == 1

    busy_until_s = 1000.0
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(0.1)
    assert harness.counted == [("x", 2)]
    harness.recorder.post(POD, "Waiting", "y")
    await harness.clock.advance(9.9)
    assert harness.counted == [("x", 2)]
    await harness.clock.advance(0.6)
    assert harness.counted == [("x", 2), ("y", 1)]

    harness.recorder.post(POD, "Waiting", "z")
    await harness.clock.advance(0.1)
    harness.running.cancel()
    await harness.clock.advance(0.1)
    assert harness.counted[2:] == [("z", 1)]


async def test_what_is_left_out_is_counted(harness: RecorderHarness) -> None:
    """It raises nothing; the count shows it."""
    recorder = EventRecorder(
        harness,
        EventSettings("c", "i"),
        harness.clock,
        structlog.wrap_logger(harness.log, processors=[]),
        limits=EventLimits(object_burst=0),
        count=lambda outcome: harness.counts.update([outcome]),
    )
    recorder.post(POD, "Waiting", "x")

    assert (harness.counts, recorder.waiting) == ({"dropped": 1}, 0)


async def test_a_stop_sends_the_rest_within_the_grace(harness: RecorderHarness) -> None:
    """A try that was cut short is made again; what takes too long is logged."""
    harness.takes_s = 1.25
    for n in range(5):
        harness.recorder.post(POD._replace(uid=f"{n}"), "Waiting", "x")
    await harness.clock.advance(0.5)
    harness.running.cancel()
    await harness.clock.advance(2.9)
    early = harness.running.done()
    await harness.clock.advance(0.1)

    assert (early, harness.running.cancelled()) == (False, True)
    assert (len(harness.events), harness.recorder.waiting, harness.logged) == (
        2,
        3,
        ["events not sent"],
    )


async def test_on_the_wire() -> None:
    """Made in its namespace; only what changed is sent afterwards."""
    wire = ScriptedTransport({"metadata": {}}, {"metadata": {}})
    client = Client(
        RestConfig("https://fake", StaticToken("")), wire, VirtualClock(), NoRequestObserver()
    )
    store = EventApi(client)

    await store.create("team", {"kind": "Event"})
    await store.change(Key("team", "a.1"), {"count": 2})

    assert wire.sent == [
        ("POST /api/v1/namespaces/team/events", {"kind": "Event"}),
        ("PATCH /api/v1/namespaces/team/events/a.1", {"count": 2}),
    ]
