"""The recorder, with Events kept in memory and the time virtual."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from tests.support.answers import ScriptedWire
from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.api.meta import Key
from trainer_kai.kube.access import Access, Token
from trainer_kai.kube.client import Client, Unobserved
from trainer_kai.kube.correlate import EventLimits
from trainer_kai.kube.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    Refusal,
    Throttled,
    Unauthorized,
    Unavailable,
)
from trainer_kai.kube.events import EventApi, EventSettings, Recorder, Regarding

POD = Regarding("v1", "Pod", "team", "a", "uid-a")


def refusal(status: int, retry_after_s: float | None = None) -> Refusal:
    """Write what the API server answered."""
    return Refusal("POST events", status, "", "no", retry_after_s)


class Shelf:
    """A recorder at work, and the Events that came of it."""

    def __init__(self, **settings: float) -> None:
        self.clock = VirtualClock()
        self.said = CapturingLogger()
        self.counts: Counter[str] = Counter()
        self.events: dict[str, dict[str, Any]] = {}
        self.tries: list[float] = []
        self.faults: list[ApiError] = []  # of the next writes
        self.loses_answers = False
        self.takes_s = 0.0
        self.recorder = Recorder(
            self,
            EventSettings("kai-scheduler", "pod-1", **settings),  # type: ignore[arg-type]
            self.clock,
            structlog.wrap_logger(self.said, processors=[]),
            count=lambda outcome: self.counts.update([outcome]),
            limits=EventLimits(object_burst=1000),
        )
        self.running = asyncio.create_task(self.recorder.run())

    async def create(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Keep an Event."""
        await self._admit()
        name = body["metadata"]["name"]
        assert body["metadata"]["namespace"] == namespace
        if name in self.events:
            raise AlreadyExists(refusal(409))
        self.events[name] = dict(body)
        if self.loses_answers:
            raise Unavailable(refusal(0))

    async def change(self, key: Key, fields: Mapping[str, Any]) -> None:
        """Change an Event."""
        await self._admit()
        if key.name not in self.events:
            raise NotFound(refusal(404))
        self.events[key.name] |= fields

    async def _admit(self) -> None:
        await self.clock.sleep(self.takes_s)
        self.tries.append(self.clock.monotonic_s())
        if self.faults:
            raise self.faults.pop(0)

    @property
    def counted(self) -> list[tuple[str, int]]:
        """Return message and count of every Event."""
        return [(event["message"], event["count"]) for event in self.events.values()]

    @property
    def logged(self) -> list[str]:
        """Return what was logged."""
        return [call.kwargs["event"] for call in self.said.calls]


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    """Return a recorder that ends with the test."""
    made = Shelf()
    yield made
    made.running.cancel()
    await made.clock.advance(100)
    await asyncio.wait([made.running])


async def test_a_post_is_written_soon_and_counted(shelf: Shelf) -> None:
    """Nobody waits for it; a burst of the same is one write."""
    for _ in range(1000):
        shelf.recorder.post(POD, "Waiting", "no room")
    before = len(shelf.events)
    await shelf.clock.advance(1)
    shelf.recorder.post(POD, "Waiting", "no room")
    await shelf.clock.advance(1)

    assert (before, shelf.counted, shelf.counts) == (0, [("no room", 1001)], {"posted": 2})
    (event,) = shelf.events.values()
    assert (event["source"], event["type"]) == ({"component": "kai-scheduler"}, "Normal")


# faults of the first writes -> moments of all tries, what is there in the end, outcomes
FAULTS: list[Case[list[ApiError], tuple[int, list[tuple[str, int]], dict[str, int]]]] = [
    Case("an outage", [Unavailable(refusal(503))] * 3, (4, [("x", 1)], {"posted": 1})),
    Case("too much at once", [Throttled(refusal(429, 7))], (2, [("x", 1)], {"posted": 1})),
    Case("no permission", [Forbidden(refusal(403))], (1, [], {"failed": 1})),
    Case("no namespace any more", [NotFound(refusal(404))], (1, [], {"failed": 1})),
    Case("not good enough", [Invalid(refusal(422))], (1, [], {"failed": 1})),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
async def test_faults(
    shelf: Shelf,
    case: Case[list[ApiError], tuple[int, list[tuple[str, int]], dict[str, int]]],
) -> None:
    """What passes is waited for, what does not is dropped."""
    shelf.faults = list(case.given)
    shelf.recorder.post(POD, "Waiting", "x")
    await shelf.clock.advance(300)

    assert (len(shelf.tries), shelf.counted, dict(shelf.counts)) == case.want
    assert shelf.recorder.waiting == 0


async def test_a_wish_of_the_api_server_is_kept(shelf: Shelf) -> None:
    """It said how much later."""
    shelf.faults = [Throttled(refusal(429, 7))]
    shelf.recorder.post(POD, "Waiting", "x")
    await shelf.clock.advance(300)

    assert shelf.tries[1] >= 7


async def test_what_is_dropped_is_logged_once(shelf: Shelf) -> None:
    """A namespace that is gone has many objects."""
    shelf.faults = [NotFound(refusal(404))] * 5
    for n in range(5):
        shelf.recorder.post(POD._replace(uid=f"{n}"), "Waiting", "x")
    await shelf.clock.advance(1)

    assert (shelf.logged, shelf.counts) == (["events not taken"], {"failed": 5})


async def test_an_event_that_was_made_without_our_knowing_is_not_made_twice(shelf: Shelf) -> None:
    """Its name is ours: what exists by that name is what we made."""
    shelf.loses_answers = True
    shelf.recorder.post(POD, "Waiting", "x")
    await shelf.clock.advance(0)
    shelf.loses_answers = False
    await shelf.clock.advance(10)

    assert (shelf.counted, shelf.counts) == ([("x", 1)], {"posted": 1})


async def test_an_event_that_outlived_its_time_is_made_anew(shelf: Shelf) -> None:
    """The API server forgets them after an hour; the count goes on."""
    shelf.recorder.post(POD, "Waiting", "x")
    await shelf.clock.advance(1)
    shelf.events.clear()
    shelf.recorder.post(POD, "Waiting", "x")
    await shelf.clock.advance(1)

    assert shelf.counted == [("x", 2)]


async def test_bad_credentials_end_the_service() -> None:
    """As everywhere."""
    shelf = Shelf()
    shelf.faults = [Unauthorized(refusal(401))]
    shelf.recorder.post(POD, "Waiting", "x")
    await shelf.clock.advance(1)

    assert isinstance(shelf.running.exception(), Unauthorized)


async def test_the_pace_of_all_together() -> None:
    """A burst, then so many a second."""
    shelf = Shelf(burst=10, per_s=2)
    for n in range(20):
        shelf.recorder.post(POD._replace(uid=f"{n}"), "Waiting", "x")
    await shelf.clock.advance(0)
    at_once = len(shelf.tries)
    await shelf.clock.advance(60)

    assert (at_once, len(shelf.tries), shelf.tries[-1]) == (10, 20, 5)
    shelf.running.cancel()
    await shelf.clock.advance(0)


async def test_what_is_left_out_is_counted(shelf: Shelf) -> None:
    """Nobody is told, but somebody may look."""
    recorder = Recorder(
        shelf,
        EventSettings("c", "i"),
        shelf.clock,
        structlog.wrap_logger(shelf.said, processors=[]),
        limits=EventLimits(object_burst=0),
        count=lambda outcome: shelf.counts.update([outcome]),
    )
    recorder.post(POD, "Waiting", "x")

    assert (shelf.counts, recorder.waiting) == ({"dropped": 1}, 0)


async def test_a_stop_sends_the_rest_within_the_grace(shelf: Shelf) -> None:
    """A try that was cut short is made again; what takes too long is told."""
    shelf.takes_s = 1.25
    for n in range(5):
        shelf.recorder.post(POD._replace(uid=f"{n}"), "Waiting", "x")
    await shelf.clock.advance(0.5)
    shelf.running.cancel()
    await shelf.clock.advance(2.9)
    early = shelf.running.done()
    await shelf.clock.advance(0.1)

    assert (early, shelf.running.cancelled()) == (False, True)
    assert (len(shelf.events), shelf.recorder.waiting, shelf.logged) == (2, 3, ["events not sent"])


async def test_on_the_wire() -> None:
    """Made in its namespace; only what changed is sent afterwards."""
    wire = ScriptedWire({"metadata": {}}, {"metadata": {}})
    client = Client(Access("https://fake", Token("")), wire, VirtualClock(), Unobserved())
    store = EventApi(client)

    await store.create("team", {"kind": "Event"})
    await store.change(Key("team", "a.1"), {"count": 2})

    assert wire.sent == [
        ("POST /api/v1/namespaces/team/events", {"kind": "Event"}),
        ("PATCH /api/v1/namespaces/team/events/a.1", {"count": 2}),
    ]
