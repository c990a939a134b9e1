"""The virtual cluster of `line.py`: jobs of a trace on nodes with 8 GPUs, plan by plan.

One plan for each 60 virtual seconds. What would not change it is left out, because that is most of
the work: a plan where no job has come or ended since the last one, and no time that this named has
passed; and of equal jobs those behind more than could start, unless their known ends matter.
"""

import csv
import gzip
import heapq
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from scheduler.core.model.podgroup import PodGroupInfo, PodSet
from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import PodState, Snapshot, SnapshotPods
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.scheduler_names import Action

if TYPE_CHECKING:
    from scheduler.core.model.line import LineRecord

AS_IT_IS: Final = "as it is"
RAISED: Final = "raised"
LARGE: Final = 16  # GPUs of the gangs of which there are more in the list RAISED
_PART: Final = 0.3  # of the GPU-hours that they have there
_GPUS: Final = 8  # of a node
_LOAD: Final = 0.9
_STEP_S: Final = 60
_START_S: Final = 10**9  # virtual seconds since 1970
_ALLOCATE_ONLY: Final = {it.value: it is Action.ALLOCATE for it in Action}


class Job(NamedTuple):
    submit_s: int
    duration_s: int
    gpus: int
    queue: str
    lasts_s: int  # after it has run for so long its end is enforced; 0 is never

    @property
    def pods(self) -> int:
        return -(-self.gpus // _GPUS)

    @property
    def gpus_of_pod(self) -> int:
        return -(-self.gpus // self.pods)

    @property
    def gpu_s(self) -> int:
        return self.duration_s * self.gpus


class Result(NamedTuple):
    waits_s: dict[int, list[int]]  # by the GPUs of a job
    idle: float  # part of all GPU-seconds that were idle while a job waited
    gpu_hours: dict[str, float]  # by queue
    kept_gpu_hours: float
    plans: int
    seconds: float


def jobs_of(data: Path, name: str, known: float, seed: int) -> list[Job]:
    """Return the jobs of a list, of which a part has *known* ends."""
    random = np.random.default_rng(seed)
    with gzip.open(data / "october-1.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    jobs = []
    for row in rows:
        duration_s, gpus = max(1, int(float(row["duration_s"]))), int(row["gpus"])
        factor, is_known = random.uniform(1.2, 3.0), random.random() < known
        lasts_s = int(duration_s * factor) if is_known else 0
        jobs.append(Job(int(float(row["submit_s"])), duration_s, gpus, row["queue"], lasts_s))
    if name == RAISED:
        jobs += _drawn(jobs, random)
    return sorted(jobs)


def _drawn(jobs: Sequence[Job], random: np.random.Generator) -> Iterator[Job]:
    """Yield more of the large gangs, at other times."""
    large = [it for it in jobs if it.gpus >= LARGE]
    others = sum([it.gpu_s for it in jobs if it.gpus < LARGE])
    missing = others * _PART / (1 - _PART) - sum([it.gpu_s for it in large])
    last_s = max(it.submit_s for it in jobs)
    while missing > 0:
        one = large[int(random.integers(len(large)))]
        missing -= one.gpu_s
        yield one._replace(submit_s=int(random.integers(last_s)))


class _Running(NamedTuple):
    since_s: int
    nodes: list[int]
    podgroup: PodGroupInfo


class VirtualCluster:
    """Its size is that for all jobs, and the quota of a queue is its part of their GPU-hours."""

    def __init__(self, jobs: Sequence[Job], *, is_reserving: bool) -> None:
        self._jobs: Final = jobs
        span_s = max(it.submit_s for it in jobs) - min(it.submit_s for it in jobs)
        gpu_s = sum([it.gpu_s for it in jobs])
        self.nodes: Final = max(1, round(gpu_s / span_s / _LOAD / _GPUS))
        names = sorted({it.queue for it in jobs})
        self._empty: Final = self._empty_snapshot(names, gpu_s, is_reserving=is_reserving)
        self._policies: Final = build_policies(PolicySelection(actions=_ALLOCATE_ONLY))
        rows = {it: row for row, it in enumerate(names)}
        sizes = sorted({it.gpus_of_pod for it in jobs})
        self._queue_rows: Final = [rows[it.queue] for it in jobs]  # by job
        self._signature_rows: Final = [sizes.index(it.gpus_of_pod) for it in jobs]
        signatures = self._empty.signatures
        self._requests: Final = [np.array(it.request, dtype=np.int64) for it in signatures]
        self._counted: Final = [np.array(it.queue_request, dtype=np.int64) for it in signatures]
        self._idle: Final = self._empty.nodes.idle.copy()
        self._allocated: Final = np.zeros((len(names), 3), dtype=np.int64)
        self._requested: Final = np.zeros((len(names), 3), dtype=np.int64)
        self._waiting: Final[dict[int, None]] = {}
        self._running: Final[dict[int, _Running]] = {}
        self._ends: Final[list[tuple[int, int]]] = []
        self._lines: dict[int, LineRecord] = {}  # by job
        self._kept = 0  # thousandths of GPUs, by the last plan
        self._is_planned = False  # by it: what ends by force may start before others
        self._waits_s: Final[dict[int, list[int]]] = defaultdict(list)
        self._gpu_s: Final[defaultdict[str, int]] = defaultdict(int)

    def _empty_snapshot(self, names: list[str], gpu_s: int, *, is_reserving: bool) -> Snapshot:
        by_queue: defaultdict[str, int] = defaultdict(int)
        for it in self._jobs:
            by_queue[it.queue] += it.gpu_s
        gpus = self.nodes * _GPUS
        queues = [SnapshotQueue(it, quota=int(gpus * by_queue[it] / gpu_s)) for it in names]
        builder = Builder([SnapshotNode(gpu=_GPUS, cpu=1000, memory=4000)] * self.nodes, queues)
        for size in sorted({it.gpus_of_pod for it in self._jobs}):
            builder.signature_row(signature(gpu=size))
        empty = builder.snapshot()
        reserving = frozenset(range(len(names))) if is_reserving else frozenset[int]()
        return replace(empty, queues=replace(empty.queues, reserving=reserving))

    def run(self, until_s: int) -> Result:
        """Run from the first job on; jobs that wait at the end have waited until then."""
        began, idle_s, kept_s, at, coming, plans = time.perf_counter(), 0.0, 0.0, 0, 0, 0
        next_at: int | None = None
        while at < until_s:
            at += _STEP_S
            is_changed = self._end_jobs(at) or (next_at is not None and next_at <= _START_S + at)
            while coming < len(self._jobs) and self._jobs[coming].submit_s <= at:
                self._submit(coming)
                coming, is_changed = coming + 1, True
            if self._waiting and is_changed:
                next_at, plans = self._plan(at).line_at, plans + 1
            if self._waiting:
                idle_s += int(self._idle[:, 3].sum()) / 1000 * _STEP_S
                kept_s += self._kept / 1000 * _STEP_S
        for job, running in self._running.items():
            self._gpu_s[self._jobs[job].queue] += self._jobs[job].gpus * (at - running.since_s)
        for job in self._waiting:
            self._waits_s[self._jobs[job].gpus].append(at - self._jobs[job].submit_s)
        hours = {queue: it / 3600 for queue, it in self._gpu_s.items()}
        idle, seconds = idle_s / (self.nodes * _GPUS * at), time.perf_counter() - began
        return Result(dict(self._waits_s), idle, hours, kept_s / 3600, plans, seconds)

    def _submit(self, job: int) -> None:
        self._waiting[job] = None
        self._requested[self._queue_rows[job]] += self._counts(job)

    def _counts(self, job: int) -> Ints:
        return self._jobs[job].pods * self._counted[self._signature_rows[job]]

    def _end_jobs(self, at: int) -> bool:
        has_ended = False
        while self._ends and self._ends[0][0] <= at:
            end_s, job = heapq.heappop(self._ends)
            running = self._running.pop(job)
            self._gpu_s[self._jobs[job].queue] += self._jobs[job].gpus * (end_s - running.since_s)
            for node in running.nodes:
                self._idle[node] += self._requests[self._signature_rows[job]]
            self._allocated[self._queue_rows[job]] -= self._counts(job)
            self._requested[self._queue_rows[job]] -= self._counts(job)
            has_ended = True
        return has_ended

    def _attempted(self) -> Iterator[int]:
        """Yield the jobs that wait, and of equal ones so many that at least one finds no room."""
        idle = int(self._idle[:, 3].sum()) // 1000
        counts: defaultdict[tuple[int, int], int] = defaultdict(int)
        for job in self._waiting:
            it, equal = self._jobs[job], (self._queue_rows[job], self._jobs[job].gpus)
            counts[equal] += 1
            is_behind = counts[equal] > idle // it.gpus + 1
            if not is_behind or it.gpus >= _GPUS or (it.lasts_s and self._is_planned):
                yield job

    def _plan(self, at: int) -> Plan:
        waiting = [*self._attempted()]
        order = [*self._running, *waiting]
        found = plan(self._snapshot(at, order, waiting), self._policies)
        for allocation in found.allocations:
            self._start(order[allocation.podgroup], [it.node for it in allocation.binds], at)
        for change in found.line:
            job = order[change.podgroup]
            self._lines.pop(job, None)
            if change.record is not None:
                self._lines[job] = change.record
        note, was_planned = found.line_note, self._is_planned
        self._kept = note.gpus if note is not None else 0
        self._is_planned = note is not None and note.planned_at > 0
        return self._plan(at) if self._is_planned and not was_planned else found

    def _start(self, job: int, nodes: list[int], at: int) -> None:
        it = self._jobs[job]
        assert len(nodes) == it.pods
        for node in nodes:
            self._idle[node] -= self._requests[self._signature_rows[job]]
        self._allocated[self._queue_rows[job]] += self._counts(job)
        del self._waiting[job]
        tree = PodSet("default", it.pods, running=it.pods)
        podgroup = replace(self._podgroup(job, tree, at), has_running=True)
        self._running[job] = _Running(at, nodes, replace(podgroup, running_since=_START_S + at))
        heapq.heappush(self._ends, (at + it.duration_s, job))
        self._waits_s[it.gpus].append(at - it.submit_s)

    def _podgroup(self, job: int, tree: PodSet, at: int) -> PodGroupInfo:
        """Return what a job is if it has started just now, or starts just now."""
        lasts_s = self._jobs[job].lasts_s
        return PodGroupInfo(
            f"job-{job}",
            self._queue_rows[job],
            50,
            is_preemptible=True,
            tree=tree,
            ends_at=_START_S + at + lasts_s if lasts_s else 0,
        )

    def _snapshot(self, at: int, order: Sequence[int], waiting: Sequence[int]) -> Snapshot:
        podgroups = [it.podgroup for it in self._running.values()]
        nodes = [node for it in self._running.values() for node in it.nodes]
        on_nodes = len(nodes)
        counts = [self._jobs[job].pods for job in order]
        first = on_nodes
        for job in waiting:
            pods = self._jobs[job].pods
            tree = PodSet("default", pods, tuple(range(first, first + pods)))
            podgroups.append(self._podgroup(job, tree, at))
            first += pods
        state = np.full(first, PodState.PENDING, dtype=np.int8)
        state[:on_nodes] = PodState.RUNNING
        signatures = np.array([self._signature_rows[job] for job in order], dtype=np.int32)
        empty = self._empty
        rows = {job: row for row, job in enumerate(order) if job in self._lines}
        return replace(
            empty,
            nodes=replace(empty.nodes, idle=self._idle.copy()),
            queues=replace(
                empty.queues, allocated=self._allocated.copy(), requested=self._requested.copy()
            ),
            pods=SnapshotPods(
                np.repeat(signatures, counts),
                np.array(nodes + [NONE] * (first - on_nodes), dtype=np.int32),
                np.repeat(np.arange(len(order), dtype=np.int32), counts),
                state,
            ),
            podgroups=tuple(podgroups),
            now=_START_S + at,
            lines={row: self._lines[job] for job, row in rows.items()},
        )
