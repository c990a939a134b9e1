"""Which of the posted events are written."""

from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from trainer_kai.kube.events.correlator import (
    CorrelatedEvent,
    EventCorrelator,
    EventLimits,
    EventObject,
    NewEvent,
    TokenBucket,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD = EventObject("v1", "Pod", "team", "a", "uid-a")


class CorrelatorHarness:
    """A correlator, and a writer of what is to be written."""

    def __init__(self, limits: EventLimits | None = None) -> None:
        tokens = count(1)
        self.correlator = EventCorrelator(limits or EventLimits(), lambda: f"{next(tokens)}")
        self.now_s = 0.0
        self.written: list[tuple[str, str, int]] = []

    def post(self, message: str, regarding: EventObject = POD, reason: str = "Waiting") -> bool:
        """Post a remark."""
        now = NOON + timedelta(seconds=self.now_s)
        return self.correlator.post(NewEvent(regarding, reason, message, "Normal"), self.now_s, now)

    def write(self) -> list[CorrelatedEvent]:
        """Write all that waits."""
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
    """However many objects and words there are."""
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
