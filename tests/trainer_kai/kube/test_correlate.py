"""What of all that is said is written."""

from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from trainer_kai.kube.correlate import (
    Bucket,
    Correlator,
    Entry,
    EventLimits,
    Regarding,
    Remark,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD = Regarding("v1", "Pod", "team", "a", "uid-a")


class Desk:
    """A correlator, and somebody who writes down what is to be written."""

    def __init__(self, limits: EventLimits | None = None) -> None:
        tokens = count(1)
        self.core = Correlator(limits or EventLimits(), lambda: f"{next(tokens)}")
        self.now_s = 0.0
        self.written: list[tuple[str, str, int]] = []

    def say(self, message: str, regarding: Regarding = POD, reason: str = "Waiting") -> bool:
        """Post a remark."""
        now = NOON + timedelta(seconds=self.now_s)
        return self.core.post(Remark(regarding, reason, message, "Normal"), self.now_s, now)

    def write(self) -> list[Entry]:
        """Write all that waits."""
        entries = []
        while (entry := self.core.first()) is not None:
            self.written.append((entry.name, entry.remark.message, entry.count))
            entries.append(entry)
            self.core.written(entry, entry.count, self.now_s)
        return entries


def test_the_same_words_are_one_event() -> None:
    """It counts, also what is said before it is first written."""
    desk = Desk()
    for _ in range(3):
        desk.say("no node has room")
    desk.write()
    desk.say("no node has room")
    desk.say("queue is full")
    desk.write()

    assert desk.written == [
        ("a.1", "no node has room", 3),
        ("a.1", "no node has room", 4),
        ("a.2", "queue is full", 1),
    ]


def test_the_same_words_about_others_are_other_events() -> None:
    """Object, reason and type each make a difference, and so does a namesake's uid."""
    desk = Desk()
    desk.say("x")
    desk.say("x", POD._replace(uid="uid-b"))
    desk.say("x", reason="Evicted")
    desk.core.post(Remark(POD, "Waiting", "x", "Warning"), 0, NOON)

    assert len(desk.write()) == 4


def test_many_similar_words_become_one_event() -> None:
    """The eleventh begins it; a pause of ten minutes ends it."""
    desk = Desk()
    for n in range(13):
        desk.say(f"{n} pods are missing")
    desk.write()
    desk.now_s = 601
    desk.say("13 pods are missing")
    desk.write()

    assert desk.written[9:] == [
        ("a.10", "9 pods are missing", 1),
        ("a.11", "(combined from similar events): 12 pods are missing", 3),
        ("a.12", "13 pods are missing", 1),
    ]


def test_one_object_cannot_flood_all() -> None:
    """25 writes at once, then one each five minutes; what is left out is counted in the next."""
    desk = Desk(EventLimits(similar_most=1000))
    taken = []
    for _ in range(40):
        taken.append(desk.say("again"))
        desk.write()
    other = desk.say("x", POD._replace(uid="uid-b"))
    desk.now_s = 299
    early = desk.say("again")
    desk.now_s = 300
    late = desk.say("again")
    desk.write()

    assert taken == [True] * 25 + [False] * 15
    assert (other, early, late) == (True, False, True)
    assert desk.written[-1] == ("a.1", "again", 42)


def test_what_is_said_during_a_write_needs_a_write_of_its_own() -> None:
    """It goes on with the count, and to the end of the line."""
    desk = Desk()
    desk.say("x")
    desk.say("y")
    entry = desk.core.first()
    assert entry is not None
    written = entry.count
    desk.say("x")
    desk.core.written(entry, written, 0)

    desk.write()

    assert desk.written == [("a.2", "y", 1), ("a.1", "x", 2)]


def test_what_is_forgotten_begins_anew() -> None:
    """The longest unused goes first, and never what still has to be written."""
    desk = Desk(EventLimits(remembered=3))
    for name in "abc":
        desk.say("x", POD._replace(uid=name))
    full = desk.say("x", POD._replace(uid="d"))
    desk.write()
    desk.say("x", POD._replace(uid="a"))
    desk.say("x", POD._replace(uid="d"))  # in the place of b
    desk.say("x", POD._replace(uid="b"))  # in the place of c
    desk.write()

    assert not full
    assert [(name, times) for name, _, times in desk.written[3:]] == [
        ("a.1", 2),
        ("a.4", 1),
        ("a.5", 1),
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.booleans()), max_size=300))
def test_memory_is_bounded(said: list[tuple[int, int, bool]]) -> None:
    """However many objects and words there are."""
    desk = Desk(EventLimits(remembered=8))
    for uid, words, written in said:
        desk.say(f"{words}", POD._replace(uid=f"{uid}"))
        if written:
            desk.write()

        core = desk.core
        entries = len(core._entries) + len(core._waiting)
        assert max(len(core._buckets), len(core._words), entries) <= 8


def test_an_event_as_the_api_has_it() -> None:
    """Beside its object, or in default; what is empty is left out."""
    desk = Desk()
    node = Regarding("v1", "Node", "", "n-1", "uid-n")
    desk.core.post(Remark(node, "Full", "no room", "Warning", {"k": "v"}), 0, NOON)
    desk.core.post(Remark(node, "Full", "no room", "Warning", {"k": "v"}), 0, NOON)
    (entry,) = desk.write()

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
    desk = Desk()
    desk.say("x", POD._replace(name="a" * 229 + "." + "b" * 23))
    (entry,) = desk.write()

    assert entry.name == "a" * 229 + ".1"


def test_a_bucket() -> None:
    """It says how long to wait, and is never fuller than full."""
    bucket = Bucket(2, 10)

    waits = [bucket.take(at_s) for at_s in (0, 0, 0, 5, 10, 10, 1000, 1000, 1000)]

    assert waits == [0, 0, 10, 5, 0, 10, 0, 0, 10]
