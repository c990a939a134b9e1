"""A recorded run as intervals: GPUs that pods had, places reserved for pods, and waits. Pure.

All times are seconds since the first TrainJob was submitted.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Moment, replay
from e2e.demo.status_rows import EVICTED, WAITING, rows_of
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import QUEUE
from trainer_kai.api.names import GPU_FRACTION, JOBSET_NAME, REPLICATED_JOB, RESERVED

_EVICTED_FOR: Final = re.compile(r"(?:\S*/)?(\S+) gets its resources")
_REASON: Final = re.compile(r"([A-Z]\w+): ")


class Bar(NamedTuple):
    """What a pod has of a node, from its binding to its end."""

    job: str
    queue: str
    role: str  # the name of its Job in the runtime: node, launcher
    node: str
    gpus: float
    begin_s: float
    end_s: float
    evicted_for: str = ""  # the TrainJob that got its GPUs


class Place(NamedTuple):
    """GPUs of a node that are reserved for a pod that is still to be created."""

    taken_by: Bar
    begin_s: float


class Wait(NamedTuple):
    """A TrainJob waits: from its submission, its eviction or the end of a stage on."""

    job: str
    queue: str
    reason: str  # that the scheduler gave for the longest time, or ""
    begin_s: float
    end_s: float
    evicted_for: str = ""


class Intervals(NamedTuple):
    """A whole run; each kind in the order in which its intervals begin."""

    bars: tuple[Bar, ...]
    places: tuple[Place, ...]
    waits: tuple[Wait, ...]
    end_s: float


def intervals(history: Sequence[Moment]) -> Intervals:
    """Return what happened, from all moments of TrainJobs, PodGroups and pods."""
    began_s = min(it.at_s for it in history if it.key.resource == TRAINJOBS)
    since = [it._replace(at_s=max(0.0, it.at_s - began_s)) for it in history]
    end_s = max(it.at_s for it in since)
    waits = sorted(_waits(since, end_s), key=lambda it: it.begin_s)
    bars = sorted(_bars(since, waits, end_s), key=lambda it: it.begin_s)
    return Intervals(tuple(bars), tuple(_places(since, bars)), tuple(waits), end_s)


def _waits(history: Sequence[Moment], end_s: float) -> Iterator[Wait]:
    begun: dict[str, Wait] = {}
    given: dict[str, list[tuple[float, str]]] = {}  # by TrainJob: its reasons, and their times
    for moment, state in replay(history):
        for row in rows_of(state):
            if row.state not in WAITING:
                if row.job in begun:
                    yield _ended(begun.pop(row.job), given.pop(row.job), moment.at_s)
                continue
            begun.setdefault(row.job, Wait(row.job, row.queue, "", moment.at_s, end_s))
            reasons = given.setdefault(row.job, [])
            reason, victim_of = _REASON.match(row.message), _EVICTED_FOR.match(row.message)
            if row.state == EVICTED and victim_of:
                begun[row.job] = begun[row.job]._replace(evicted_for=victim_of[1])
            elif reason and (not reasons or reasons[-1][1] != reason[1]):
                reasons.append((moment.at_s, reason[1]))
    for job, wait in begun.items():
        yield _ended(wait, given[job], end_s)


def _ended(wait: Wait, reasons: Sequence[tuple[float, str]], end_s: float) -> Wait:
    """Return the wait with its end, and with the reason that held longest."""
    seconds: dict[str, float] = defaultdict(float)
    for (begin_s, reason), (until_s, _) in pairwise([*reasons, (end_s, "")]):
        seconds[reason] += until_s - begin_s
    longest = max(seconds, key=seconds.__getitem__, default="")
    return wait._replace(reason=longest, end_s=end_s)


def _bars(history: Sequence[Moment], waits: Sequence[Wait], end_s: float) -> Iterator[Bar]:
    bars: dict[str, Bar] = {}
    ended: set[str] = set()
    for moment in history:
        pod, name = moment.obj, moment.key.name
        if moment.key.resource != PODS or name in ended or "nodeName" not in pod["spec"]:
            continue
        labels = pod["metadata"].get("labels", {})
        if JOBSET_NAME not in labels:
            continue  # it holds a GPU for pods with parts of it
        node, job = pod["spec"]["nodeName"], labels[JOBSET_NAME]
        bar = Bar(job, labels[QUEUE], labels[REPLICATED_JOB], node, _gpus(pod), moment.at_s, end_s)
        bars.setdefault(name, bar)
        if moment.type == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed"):
            bars[name] = bars[name]._replace(end_s=moment.at_s)
            ended.add(name)
    for bar in bars.values():
        evicted_for = [
            it.evicted_for
            for it in waits
            if it.job == bar.job and bar.begin_s < it.begin_s <= bar.end_s
        ]
        yield bar._replace(evicted_for="".join(evicted_for[:1]))


def _gpus(pod: Obj) -> float:
    if fraction := pod["metadata"].get("annotations", {}).get(GPU_FRACTION):
        return float(fraction)
    containers = pod["spec"].get("containers", ())
    return sum(float(it.get("resources", {}).get("limits", {}).get(GPU, 0)) for it in containers)


def _places(history: Sequence[Moment], bars: Sequence[Bar]) -> Iterator[Place]:
    """Yield the places that a pod took: its bar says how many GPUs each has."""
    taken: set[Bar] = set()
    for moment in history:
        if moment.key.resource != PODGROUPS:
            continue
        metadata = moment.obj["metadata"]
        jobs = [it["name"] for it in metadata.get("ownerReferences", ())]
        places = json.loads(metadata.get("annotations", {}).get(RESERVED) or "{}")
        for podset, reserved in places.items():
            role = podset.rpartition("-replica-")[0]
            for bar in bars:
                is_for_it = bar.job in jobs and bar.role == role and bar.node in reserved["nodes"]
                if is_for_it and bar not in taken and bar.begin_s > moment.at_s:
                    taken.add(bar)
                    yield Place(bar, moment.at_s)
