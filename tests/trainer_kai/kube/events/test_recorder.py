"""The recorder, with Events kept in memory and the time virtual."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.scripted_transport import ScriptedTransport
from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.events.correlator import EventLimits, EventObject
from trainer_kai.kube.events.recorder import EventApi, EventRecorder, EventSettings
from trainer_kai.kube.rest.errors import (
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

POD = EventObject("v1", "Pod", "team", "a", "uid-a")


def details(status: int, retry_after_s: float | None = None) -> ErrorDetails:
    """Write what the API server answered."""
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
        """Keep an Event."""
        await self._take_fault()
        name = body["metadata"]["name"]
        assert body["metadata"]["namespace"] == namespace
        if name in self.events:
            raise AlreadyExists(details(409))
        self.events[name] = dict(body)
        if self.loses_answers:
            raise Unavailable(details(0))

    async def change(self, key: Key, fields: Mapping[str, Any]) -> None:
        """Change an Event."""
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
        """Return message and count of every Event."""
        return [(event["message"], event["count"]) for event in self.events.values()]

    @property
    def logged(self) -> list[str]:
        """Return what was logged."""
        return [call.kwargs["event"] for call in self.log.calls]


@pytest.fixture
async def harness() -> AsyncIterator[RecorderHarness]:
    """Return a recorder that ends with the test."""
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
    """As everywhere."""
    harness = RecorderHarness()
    harness.faults = [Unauthorized(details(401))]
    harness.recorder.post(POD, "Waiting", "x")
    await harness.clock.advance(1)

    assert isinstance(harness.running.exception(), Unauthorized)


async def test_the_pace_of_all_together() -> None:
    """A burst, then so many a second."""
    harness = RecorderHarness(burst=10, per_s=2)
    for n in range(20):
        harness.recorder.post(POD._replace(uid=f"{n}"), "Waiting", "x")
    await harness.clock.advance(0)
    at_once = len(harness.attempts)
    await harness.clock.advance(60)

    assert (at_once, len(harness.attempts), harness.attempts[-1]) == (10, 20, 5)
    harness.running.cancel()
    await harness.clock.advance(0)


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
