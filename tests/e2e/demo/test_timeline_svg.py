"""The picture of the demo: its intervals are those of the run, and all of it is legible."""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from e2e.demo.intervals import Bar, Place, Wait, intervals
from e2e.demo.timeline_svg import timeline_svg
from e2e.fixtures.queues import queue
from tests.e2e.demo.moments import pod, podgroup, trainjob, whole_run
from tests.support.repository import ROOT
from trainer_kai.api.names import JOBSET_NAME

_COMMITTED = (ROOT / "docs" / "demo.svg").read_text()
_QUEUES = (queue("guests", 0), queue("team-b", 16), queue("unused", 1))


def test_a_run_is_bars_and_a_reserved_place_and_waits() -> None:
    """In seconds since the first submission; a place lasts until its pod has it."""
    run = intervals(whole_run())
    launcher = Bar("moe", "team-b", "launcher", "n0", 4, 13, 19)

    assert run.bars == (
        Bar("night", "guests", "node", "n0", 8, 1, 6, evicted_for="moe"),
        Bar("moe", "team-b", "node", "n0", 4, 7, 19),
        launcher,
        Bar("night", "guests", "node", "n0", 8, 21, 29),
    )
    assert run.places == (Place(launcher, 3),)
    assert run.waits == (
        Wait("night", "guests", "", 0, 1),
        Wait("moe", "team-b", "", 2, 7),
        Wait("night", "guests", "NoCapacity", 4, 21, evicted_for="moe"),
    )
    assert run.end_s == 30


def test_a_wait_has_the_reason_that_held_longest() -> None:
    """However briefly another one was given after it."""
    waits = [(3, "NoCapacity"), (4, "ExceedsLimit"), (9, "WaitingForVictims")]
    given = [podgroup(at_s, "moe", reason) for at_s, reason in waits]

    run = intervals([trainjob(1, "moe"), *given, pod(11, "moe-1-node-0")])

    assert [it.reason for it in run.waits] == ["ExceedsLimit"]


def test_a_pod_has_its_part_of_a_gpu_and_a_pod_of_no_trainjob_has_no_bar() -> None:
    """The latter only holds the GPU."""
    part, holder = pod(2, "night-1-node", notes={"gpu-fraction": "0.7"}), pod(2, "moe-1-node")
    del holder.obj["metadata"]["labels"][JOBSET_NAME]

    run = intervals([trainjob(1, "night"), part, holder])

    assert [(bar.job, bar.gpus) for bar in run.bars] == [("night", 0.7)]


def _drawn(later_s: float) -> str:
    """Return the picture of the run, had all from the eviction on been later."""
    history = [it._replace(at_s=it.at_s + later_s * (it.at_s >= 8)) for it in whole_run()]
    return timeline_svg(intervals(history), {"n0": 8}, _QUEUES)


class _Box(NamedTuple):
    words: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "_Box") -> bool:
        is_above_it = self.left < other.right and other.left < self.right
        return is_above_it and self.top < other.bottom and other.top < self.bottom


def _texts(picture: ET.Element) -> Iterator[_Box]:
    """Yield each text with where it is; no font is wider on average."""
    upwards = picture.findall(".//{*}g[@transform]/{*}text")
    for it in picture.findall(".//{*}text"):
        words, x, y = "".join(it.itertext()), float(it.attrib["x"]), float(it.attrib["y"])
        width = len(words) * 7
        x -= width / 2 if it.attrib.get("text-anchor") else 0
        if it in upwards:
            yield _Box(words, x - 10, y - width, x + 3, y)
        else:
            yield _Box(words, x, y - 10, x + width, y + 3)


def _bars(picture: ET.Element) -> Iterator[_Box]:
    """Yield where the bars and the reserved places are."""
    for it in picture.findall(".//{*}rect"):
        if it.attrib.get("class") == "cut" or "url" in it.attrib.get("fill", ""):
            x, y, width, height = (float(it.attrib[n]) for n in ("x", "y", "width", "height"))
            yield _Box("", x + 0.1, y + 0.1, x + width - 0.1, y + height - 0.1)


@pytest.mark.parametrize("later_s", [None, 0, 20], ids=["committed", "of a run", "of a slow run"])
def test_a_picture_is_legible(later_s: float | None) -> None:
    """No text is cut off or covered; the picture names evictions, reserved places and reasons."""
    picture = ET.fromstring(_COMMITTED if later_s is None else _drawn(later_s))
    width, height = (float(picture.attrib[name]) for name in ("width", "height"))
    texts, bars = [*_texts(picture)], [*_bars(picture)]
    pairs = [*itertools.combinations(texts, 2), *itertools.combinations(bars, 2)]

    assert [it for it in texts if min(it[1:3]) < 0 or it.right > width or it.bottom > height] == []
    assert [(one, other) for one, other in pairs if one.overlaps(other)] == []
    words = " ".join(it.words for it in texts)
    for told in ("evicted for moe", "moe's launcher", "NoCapacity", "guests quota 0 GPU"):
        assert told in words
    assert "unused" not in words


def test_the_committed_picture_is_of_a_whole_run_and_loads_nothing() -> None:
    """`make recording` wrote it."""
    words = {word for it in _texts(ET.fromstring(_COMMITTED)) for word in it.words.split()}

    assert words >= {"night", "chat", "embed", "llm", "draft", "moe", "tune", "sft", "eval"}
    assert "ExceedsLimit" in words
    assert len(_COMMITTED.encode()) <= 30_000
    assert re.findall(r"https?://[^\"]*", _COMMITTED) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"/(home|root|tmp|work)\b|@import|<script", _COMMITTED)
