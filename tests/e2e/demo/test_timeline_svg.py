"""The picture of the demo: its intervals are those of the run, and all of it is legible."""

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import Key, Moment
from e2e.demo.intervals import Bar, Place, Wait, intervals
from e2e.demo.timeline_svg import timeline_svg
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP, QUEUE
from e2e.fixtures.queues import queue
from tests.support.repository import ROOT
from trainer_kai.api.names import JOBSET_NAME, REPLICATED_JOB

_PICTURE = ROOT / "docs" / "demo.svg"
_QUEUES = (queue("guests", 0), queue("team-b", 16), queue("unused", 1))
_QUEUE_OF = {"night": "guests", "moe": "team-b"}
_RECORD = '{"why": "default/moe gets its resources: queue guests was over its fair share"}'
_PLACES = {"launcher-replica-0": {"nodes": {"n0": 1}, "cause": "anticipated"}}


def _moment(at_s: float, resource: Resource, name: str, **fields: Obj) -> Moment:
    obj: Obj = {"spec": {}, "status": {}} | fields
    obj["metadata"] = {"name": name} | obj["metadata"]
    key = Key(resource, "default", name)
    return Moment(at_s, int(at_s * 10), "MODIFIED", key, obj)


def _trainjob(at_s: float, job: str, evicted: str = "", end: str = "") -> Moment:
    annotations = {"trainer-kai.dev/evicted-by": evicted} if evicted else {}
    metadata = {"labels": {QUEUE: _QUEUE_OF[job]}, "annotations": annotations}
    conditions = [{"type": end, "status": "True"}] if end else []
    return _moment(at_s, TRAINJOBS, job, metadata=metadata, status={"conditions": conditions})


def _podgroup(at_s: float, job: str, reason: str = "", reserved: str = "") -> Moment:
    annotations = {"trainer-kai.dev/stage": "1/1", "trainer-kai.dev/reserved": reserved}
    metadata = {"annotations": annotations, "ownerReferences": [{"name": job}]}
    reasons = [{"reasons": [{"reason": reason, "message": "as it is"}]}] if reason else []
    status = {"schedulingConditions": reasons}
    return _moment(at_s, PODGROUPS, job, metadata=metadata, spec={"minMember": 1}, status=status)


def _pod(at_s: float, job: str, no: int, *, phase: str = "Running", role: str = "node") -> Moment:
    gpus = {"night": 8, "moe": 4}[job]
    labels = {JOBSET_NAME: job, QUEUE: _QUEUE_OF[job], REPLICATED_JOB: role}
    container = {"resources": {"limits": {GPU: f"{gpus}"}}}
    return _moment(
        at_s,
        PODS,
        f"{job}-{role}-{no}",
        metadata={"labels": labels, "annotations": {PODGROUP: job}},
        spec={"nodeName": "n0", "containers": [container]},
        status={"phase": phase},
    )


def _history() -> list[Moment]:
    """Return a run on one node: night is evicted for moe, whose launcher has a reserved place."""
    evicted = _trainjob(5, "night", evicted=_RECORD)
    reserved = json.dumps(_PLACES)
    return [
        *(_trainjob(1, "night"), _podgroup(1, "night"), _pod(2, "night", 0)),
        *(_trainjob(3, "moe"), _podgroup(4, "moe", reserved=reserved), evicted),
        _pod(7, "night", 0)._replace(type="DELETED"),
        *(_trainjob(7, "night"), _podgroup(8, "night", "NoCapacity")),
        *(_pod(8, "moe", 0), _pod(14, "moe", 1, role="launcher")),
        *(_podgroup(15, "moe"), _pod(20, "moe", 1, phase="Succeeded", role="launcher")),
        *(_pod(20, "moe", 0, phase="Succeeded"), _trainjob(21, "moe", end="Complete")),
        *(_pod(22, "night", 1), _pod(30, "night", 1, phase="Succeeded")),
        _trainjob(31, "night", end="Complete"),
    ]


def test_a_run_is_bars_and_a_reserved_place_and_waits() -> None:
    """In seconds since the first submission; a place lasts until its pod has it."""
    run = intervals(_history())
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


def test_a_pod_has_its_part_of_a_gpu_and_a_pod_of_no_trainjob_has_no_bar() -> None:
    """The latter only holds the GPU."""
    part, holder = _pod(2, "night", 0), _pod(2, "moe", 0)
    part.obj["metadata"]["annotations"]["gpu-fraction"] = "0.7"
    del holder.obj["metadata"]["labels"][JOBSET_NAME]

    run = intervals([_trainjob(1, "night"), part, holder])

    assert [(bar.job, bar.gpus) for bar in run.bars] == [("night", 0.7)]


def _committed() -> str:
    return _PICTURE.read_text()


def _drawn(later_s: float = 0) -> str:
    """Return the picture of the run above, had all from the eviction on been later."""
    history = [it._replace(at_s=it.at_s + later_s * (it.at_s >= 8)) for it in _history()]
    return timeline_svg(intervals(history), {"n0": 8}, _QUEUES)


@pytest.fixture(params=[_committed, _drawn, functools.partial(_drawn, 20)])
def text(request: pytest.FixtureRequest) -> str:
    """Return a picture: the committed one, of the run above, and of a slow run."""
    draw: Callable[[], str] = request.param
    return draw()


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, other: "_Box") -> bool:
        is_beside = self.left <= other.left and other.right <= self.right
        return is_beside and self.top <= other.top and other.bottom <= self.bottom

    def overlaps(self, other: "_Box") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def _texts(picture: ET.Element) -> Iterator[tuple[str, _Box]]:
    """Yield each text with where it is; no font is wider on average."""
    for it in picture.findall(".//{*}text"):
        words, x, y = "".join(it.itertext()), float(it.attrib["x"]), float(it.attrib["y"])
        width = len(words) * 7
        x -= width / 2 if it.attrib.get("text-anchor") else 0
        yield words, _Box(x, y - 10, x + width, y + 3)


def _bars(picture: ET.Element) -> Iterator[_Box]:
    """Yield where the bars and the reserved places are."""
    for it in picture.findall(".//{*}rect"):
        if it.attrib.get("class") == "cut" or "url" in it.attrib.get("fill", ""):
            x, y, width, height = (float(it.attrib[n]) for n in ("x", "y", "width", "height"))
            yield _Box(x + 0.1, y + 0.1, x + width - 0.1, y + height - 0.1)


def test_no_text_is_cut_off_and_nothing_covers_another(text: str) -> None:
    """Neither texts nor bars."""
    picture = ET.fromstring(text)
    width, height = (float(picture.attrib[name]) for name in ("width", "height"))

    for words, box in _texts(picture):
        assert _Box(0, 0, width, height).holds(box), words
    for (words, one), (others, other) in itertools.combinations(_texts(picture), 2):
        assert not one.overlaps(other), (words, others)
    for bar, beside in itertools.combinations(_bars(picture), 2):
        assert not bar.overlaps(beside), (bar, beside)


def test_a_picture_names_the_eviction_and_the_reserved_place(text: str) -> None:
    """And the reason of the wait after the eviction; a queue without TrainJobs is left out."""
    words = " ".join(it for it, _ in _texts(ET.fromstring(text)))

    for told in ("evicted for moe", "moe's launcher", "NoCapacity", "guests quota 0 GPU"):
        assert told in words
    assert "unused" not in words


def test_the_committed_picture_is_of_a_whole_run_and_loads_nothing() -> None:
    """`make recording` wrote it."""
    text = _committed()
    picture = ET.fromstring(text)

    assert len(text.encode()) <= 30_000
    assert picture.attrib["role"] == "img"
    words = " ".join(it for it, _ in _texts(picture))
    for job in ("night", "chat", "embed", "llm", "draft", "moe", "tune", "sft", "eval"):
        assert re.search(rf"\b{job}\b", words)
    assert "ExceedsLimit" in words
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"/(home|root|tmp|work)\b|@import|<script", text)
