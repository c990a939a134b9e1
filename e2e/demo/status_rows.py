"""The state of TrainJobs as rows: while they run, and at the end. Pure.

A TrainJob waits from its submission, its eviction or the end of a stage until a pod of its current
stage is on a node. `waited` is the sum of these times.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from e2e.cluster.resources import PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Moment, State, replay
from e2e.cluster.trainjobs import condition
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP, QUEUE
from trainer_kai.api.names import EVICTED_BY, GPU_DEVICES, GPU_FRACTION, RESERVED, STAGE

_ENDS = ("Complete", "Failed")
EVICTED = "evicted"
WAITING = ("accepted", "waits", EVICTED)


class Row(NamedTuple):
    """A TrainJob at one moment."""

    job: str
    queue: str
    stage: str
    pods: str
    state: str
    message: str

    @property
    def is_under_way(self) -> bool:
        """Say whether it has PodGroups and has not ended."""
        return self.pods != "-"


class Ended(NamedTuple):
    """What became of a TrainJob."""

    job: str
    queue: str
    waited: str
    evicted: str
    message: str
    nodes: str
    state: str


class _JobHistory:
    """A TrainJob from its first moment on."""

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._waits_since_s: float | None = None
        self._evictions = 0
        self._state = ""
        self._message = ""
        self._nodes: set[str] = set()

    def see(self, at_s: float, row: Row, nodes: Sequence[str]) -> None:
        """Take note of the TrainJob at a moment."""
        self._row = row
        is_evicted_now = row.state == EVICTED and self._state != EVICTED
        self._evictions += is_evicted_now
        if is_evicted_now or not self._message:
            self._message = row.message
        self._state = row.state
        self._nodes.update(nodes)
        self._count_wait(at_s, is_waiting=row.state in WAITING)

    def _count_wait(self, at_s: float, *, is_waiting: bool) -> None:
        if self._waits_since_s is not None:
            self._waited_s += at_s - self._waits_since_s
        self._waits_since_s = at_s if is_waiting else None

    def end(self) -> Ended:
        """Return what became of the TrainJob."""
        row, nodes = self._row, ", ".join(sorted(self._nodes)) or "-"
        evicted = f"{self._evictions}" if self._evictions else "-"
        waited = f"{self._waited_s:.1f} s"
        return Ended(row.job, row.queue, waited, evicted, self._message or "-", nodes, row.state)


class _PodGroupStatus(NamedTuple):
    """A PodGroup with its pods."""

    group: Obj
    pods: list[Obj]

    @property
    def stage(self) -> tuple[int, int]:
        """Return which stage it belongs to, and how many there are."""
        this, _, rest = self.group["metadata"]["annotations"][STAGE].partition("/")
        return int(this), int(rest.split()[0])

    @property
    def needed(self) -> int:
        """Return how many pods have to be placed before any may run."""
        podsets = [it for it in self.group["spec"].get("subGroups", ()) if "minMember" in it]
        return sum(it["minMember"] for it in podsets) or int(self.group["spec"]["minMember"])

    @property
    def placed(self) -> int:
        """Return how many pods are on a node."""
        return sum("nodeName" in pod["spec"] for pod in self.pods)

    @property
    def is_over(self) -> bool:
        """Say whether all of them have succeeded."""
        done = [pod for pod in self.pods if pod["status"].get("phase") == "Succeeded"]
        return len(done) >= self.needed

    @property
    def reason(self) -> str:
        """Return why the PodGroup waits, or ""."""
        conditions = self.group.get("status", {}).get("schedulingConditions") or ()
        last = [it["reasons"][-1] for it in conditions if it.get("reasons")]
        return f"{last[-1]['reason']}: {last[-1]['message']}" if last else ""

    @property
    def shared(self) -> str:
        """Return which parts of which GPUs its pods on nodes have, or ""."""
        placed = [pod for pod in self.pods if "nodeName" in pod["spec"]]
        notes = [pod["metadata"].get("annotations", {}) for pod in placed]
        return "; ".join(
            f"{it[GPU_FRACTION]} of {it[GPU_DEVICES]}" for it in notes if GPU_DEVICES in it
        )

    @property
    def reserved(self) -> str:
        """Return which nodes have places that are reserved for expected pods."""
        reserved_places = json.loads(self.group["metadata"]["annotations"].get(RESERVED) or "{}")
        return "; ".join(
            f"a place on {' and '.join(it['nodes'])} is reserved for its "
            f"{podset.rpartition('-replica-')[0]}"
            for podset, it in reserved_places.items()
        )


def rows_of(state: State) -> list[Row]:
    """Return a row for each TrainJob, in the order in which they came."""
    return [_row(state, job) for job in _jobs(state)]


def is_over(state: State, count: int) -> bool:
    """Say whether so many TrainJobs are Complete, or one never will be."""
    jobs = _jobs(state)
    ends = [_end(job) for job in jobs]
    return "Failed" in ends or (len(jobs) == count and all(ends))


def nodes_of(state: State, job: str) -> list[str]:
    """Return where the pods of a TrainJob are that have a node."""
    return [
        pod["spec"]["nodeName"]
        for part in _podgroup_statuses(state, job)
        for pod in part.pods
        if "nodeName" in pod["spec"]
    ]


def ended(history: Sequence[Moment]) -> list[Ended]:
    """Return what became of each TrainJob, from all that was seen."""
    stories: dict[str, _JobHistory] = {}
    for moment, state in replay(history):
        for row in rows_of(state):
            story = stories.setdefault(row.job, _JobHistory())
            story.see(moment.at_s, row, nodes_of(state, row.job))
    return [story.end() for story in stories.values()]


def _row(state: State, job: Obj) -> Row:
    name, labels = job["metadata"]["name"], job["metadata"].get("labels", {})
    record = job["metadata"].get("annotations", {}).get(EVICTED_BY)
    queue, parts = labels.get(QUEUE, "-"), _podgroup_statuses(state, name)
    if not parts:
        return Row(name, queue, "-", "-", _end(job) or "accepted", "")
    last = parts[0].stage[1]
    if record and not _end(job):
        return Row(name, queue, "-", "-", EVICTED, json.loads(record)["why"])
    if _end(job):
        return Row(name, queue, f"{last}/{last}", "-", _end(job), "")
    level = min((part.stage[0] for part in parts if not part.is_over), default=last)
    now = [part for part in parts if part.stage[0] == level]
    placed, needed = sum(part.placed for part in now), sum(part.needed for part in now)
    now_is = "runs" if placed >= needed else "starts" if placed else "waits"
    reasons = [part.reason for part in now if part.reason and not placed]
    reserved = [part.reserved for part in now if part.reserved and placed < needed]
    why = "; ".join(reasons or reserved or [part.shared for part in now if part.shared])
    return Row(name, queue, f"{level}/{last}", f"{placed} of {needed}", now_is, why)


def _podgroup_statuses(state: State, job: str) -> list[_PodGroupStatus]:
    pods = [obj for key, obj in state.items() if key.resource == PODS]
    return [
        _PodGroupStatus(group, [pod for pod in pods if _group_of(pod) == key.name])
        for key, group in state.items()
        if key.resource == PODGROUPS
        and any(owner["name"] == job for owner in group["metadata"].get("ownerReferences", ()))
    ]


def _group_of(pod: Obj) -> str:
    name: str = pod["metadata"].get("annotations", {}).get(PODGROUP, "")
    return name


def _jobs(state: State) -> list[Obj]:
    return [obj for key, obj in state.items() if key.resource == TRAINJOBS]


def _end(job: Obj) -> str:
    return next((name for name in _ENDS if condition(job, name)), "")
