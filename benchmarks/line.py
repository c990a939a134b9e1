"""How long large gangs wait, and what keeping room for them costs: orders of queues compared.

A loop of plans, one for each 60 virtual seconds, on the jobs of Microsoft's Philly cluster: 14
days, 11 queues, on nodes with 8 GPUs sized to an offered load of 0.9. The quota of a queue is its
part of the GPU-hours. No job is evicted: each runs for as long as in the trace. *Known ends* are
enforced at 1.2 to 3 times the duration of a job; of none, half or all of them. In the list `raised`
gangs with 16 GPUs or more are drawn again until they have 30 % of the GPU-hours.

    python -m benchmarks line --data DIRECTORY [--days 14] [--seeds 1] [--arm A] [--known K]
"""

import argparse
import csv
import gzip
import heapq
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from scheduler.core.model.podgroup import PodGroupInfo, PodSet
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import PodState, Snapshot, SnapshotPods
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.scheduler_names import Action

if TYPE_CHECKING:
    from scheduler.core.model.line import LineRecord

_ARMS: Final = ("best-effort", "reserve")
_KNOWN: Final = {"none": 0.0, "half": 0.5, "all": 1.0}
_LISTS: Final = ("as it is", "raised")
_STEP_S: Final = 60
_DAY_S: Final = 86_400
_GPUS: Final = 8  # of a node
_LOAD: Final = 0.9
_LARGE: Final = 16
_RAISED: Final = 0.3  # of the GPU-hours
_MOST_GPUS: Final = 64  # of a job
_START_S: Final = 10**9  # virtual seconds since 1970
_ALLOCATE_ONLY: Final = {it.value: it is Action.ALLOCATE for it in Action}


class _Job(NamedTuple):
    submit_s: int
    duration_s: int
    gpus: int
    queue: str
    lasts_s: int  # when its end is enforced; 0 is never

    @property
    def pods(self) -> int:
        return -(-self.gpus // _GPUS)

    @property
    def gpu_s(self) -> int:
        return self.duration_s * self.gpus


class _Result(NamedTuple):
    waits_s: dict[int, list[int]]  # by the GPUs of a job
    idle: float  # part of all GPU-seconds that were idle while some job waited that would fit
    gpu_hours: dict[str, float]  # of each queue
    kept_gpu_hours: float
    seconds: float


async def main() -> None:
    options = _options()
    console = Console(width=130)
    for name in options.list or _LISTS:
        table = _table(name)
        for known in options.known or _KNOWN:
            for seed in range(1, options.seeds + 1):
                jobs = _jobs(Path(options.data), name, _KNOWN[known], seed)
                until_s = min(jobs[-1].submit_s, int(options.days * _DAY_S))
                results = {arm: _Run(jobs, arm).result(until_s) for arm in options.arm or _ARMS}
                for arm, result in results.items():
                    table.add_row(arm, known, str(seed), *_figures(result))
                console.print(_queues(results), markup=False)
        console.print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks line")
    parser.add_argument("--data", required=True, help="the directory with the file of the trace")
    parser.add_argument("--days", type=float, default=14, help="of the trace")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--arm", action="append", choices=_ARMS)
    parser.add_argument("--known", action="append", choices=[*_KNOWN], help="enforced ends")
    parser.add_argument("--list", action="append", choices=_LISTS)
    return parser.parse_args(sys.argv[2:])


def _table(name: str) -> Table:
    table = Table(title=f"Philly, {name}: waits in minutes, this run")
    for heading in (
        *("order", "known ends", "seed", "mean ≥ 16 GPUs", "mean ≥ 8", "p95 of 1 GPU"),
        *("idle while one waits", "kept GPU-hours", "seconds"),
    ):
        table.add_column(heading, justify="right")
    return table


def _figures(result: _Result) -> Iterator[str]:
    waits = result.waits_s
    for least in (_LARGE, _GPUS):
        found = [it for gpus, each in waits.items() if gpus >= least for it in each]
        yield f"{mean(found) / 60:.1f}" if found else "-"
    yield f"{float(np.percentile(waits.get(1, [0]), 95)) / 60:.1f}"
    yield f"{100 * result.idle:.2f} %"
    yield f"{result.kept_gpu_hours:.0f}"
    yield f"{result.seconds:.0f}"


def _queues(results: dict[str, _Result]) -> str:
    first, *others = results.values()
    total = sum(first.gpu_hours.values()) or 1.0
    parts = []
    for queue, hours in sorted(first.gpu_hours.items(), key=lambda it: -it[1]):
        changes = [100 * (it.gpu_hours[queue] / hours - 1) for it in others if hours]
        parts.append(
            f"{queue[:6]} {hours / total:.0%}" + "".join([f" {it:+.1f} %" for it in changes])
        )
    return f"GPU-hours by queue, and how they change: {', '.join(parts)}"


def _jobs(data: Path, name: str, known: float, seed: int) -> list[_Job]:
    random = np.random.default_rng(seed)
    with gzip.open(data / "october-1.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    jobs = []
    for row in rows:
        duration_s, gpus = max(1, int(float(row["duration_s"]))), int(row["gpus"])
        factor, is_known = random.uniform(1.2, 3.0), random.random() < known
        lasts_s = int(duration_s * factor) if is_known else 0
        jobs.append(_Job(int(float(row["submit_s"])), duration_s, gpus, row["queue"], lasts_s))
    if name == "raised":
        jobs += _drawn(jobs, random)
    return sorted(jobs)


def _drawn(jobs: Sequence[_Job], random: np.random.Generator) -> Iterator[_Job]:
    """Yield more of the large gangs, at other times."""
    large = [it for it in jobs if it.gpus >= _LARGE]
    others = sum([it.gpu_s for it in jobs if it.gpus < _LARGE])
    missing = others * _RAISED / (1 - _RAISED) - sum([it.gpu_s for it in large])
    last_s = max(it.submit_s for it in jobs)
    while missing > 0:
        one = large[int(random.integers(len(large)))]
        missing -= one.gpu_s
        yield one._replace(submit_s=int(random.integers(last_s)))


class _Run:
    """One cluster from the first job on, plan by plan; its size is that for all jobs."""

    def __init__(self, jobs: Sequence[_Job], arm: str) -> None:
        self._jobs: Final = jobs
        span_s = max(it.submit_s for it in jobs) - min(it.submit_s for it in jobs)
        gpu_s = sum([it.gpu_s for it in jobs])
        self._gpus: Final = _GPUS * max(1, round(gpu_s / span_s / _LOAD / _GPUS))
        names = sorted({it.queue for it in jobs})
        by_queue: defaultdict[str, int] = defaultdict(int)
        for it in jobs:
            by_queue[it.queue] += it.gpu_s
        queues = [SnapshotQueue(it, quota=int(self._gpus * by_queue[it] / gpu_s)) for it in names]
        nodes = [SnapshotNode(gpu=_GPUS, cpu=1000, memory=4000)] * (self._gpus // _GPUS)
        self._queue_row: Final = {it: row for row, it in enumerate(names)}
        self._sizes: Final = sorted({-(-it.gpus // it.pods) for it in jobs})
        builder = Builder(nodes, queues)
        for size in self._sizes:
            builder.signature_row(signature(gpu=size))
        empty = builder.snapshot()
        if arm == "reserve":
            every = frozenset(range(len(names)))
            empty = replace(empty, queues=replace(empty.queues, reserving=every))
        self._empty: Final = empty
        self._policies: Final = build_policies(PolicySelection(actions=_ALLOCATE_ONLY))
        self._idle: Final = empty.nodes.idle.copy()
        self._allocated: Final = np.zeros((len(names), 3), dtype=np.int64)
        self._waiting: Final[dict[int, None]] = {}
        self._running: Final[dict[int, tuple[int, list[int]]]] = {}  # since when, on which nodes
        self._ends: Final[list[tuple[int, int]]] = []
        self._lines: dict[int, LineRecord] = {}  # by job
        self._waits_s: Final[dict[int, list[int]]] = defaultdict(list)
        self._gpu_s: Final[defaultdict[str, int]] = defaultdict(int)

    def result(self, until_s: int) -> _Result:
        began, idle_s, kept_s, at, coming = time.perf_counter(), 0.0, 0.0, 0, 0
        total_s = 0
        while at <= until_s:
            at += _STEP_S
            self._end_jobs(at)
            while coming < len(self._jobs) and self._jobs[coming].submit_s <= at:
                self._waiting[coming] = None
                coming += 1
            total_s += self._gpus * _STEP_S
            if not self._waiting:
                continue
            plan_ = self._plan(at)
            if self._waiting:
                idle_s += self._idle[:, 3].sum() / 1000 * _STEP_S
            if plan_.line_note is not None:
                kept_s += plan_.line_note.gpus / 1000 * _STEP_S
        for job, (since_s, _) in self._running.items():
            self._gpu_s[self._jobs[job].queue] += self._jobs[job].gpus * (at - since_s)
        for job in self._waiting:
            self._waits_s[self._jobs[job].gpus].append(at - self._jobs[job].submit_s)
        hours = {queue: it / 3600 for queue, it in self._gpu_s.items()}
        seconds = time.perf_counter() - began
        return _Result(dict(self._waits_s), idle_s / total_s, hours, kept_s / 3600, seconds)

    def _end_jobs(self, at: int) -> None:
        while self._ends and self._ends[0][0] <= at:
            end_s, job = heapq.heappop(self._ends)
            since_s, nodes = self._running.pop(job)
            self._gpu_s[self._jobs[job].queue] += self._jobs[job].gpus * (end_s - since_s)
            self._charge(job, nodes, -1)

    def _charge(self, job: int, nodes: Sequence[int], sign: int) -> None:
        one = self._empty.signatures[self._signature_row(job)]
        for node in nodes:
            self._idle[node] -= sign * np.array(one.request, dtype=np.int64)
            self._allocated[self._queue_row[self._jobs[job].queue]] += sign * np.array(
                one.queue_request, dtype=np.int64
            )

    def _signature_row(self, job: int) -> int:
        it = self._jobs[job]
        return self._sizes.index(-(-it.gpus // it.pods))

    def _plan(self, at: int) -> Plan:
        order = [*self._running, *self._waiting]
        snapshot = self._snapshot(at, order)
        found = plan(snapshot, self._policies)
        for allocation in found.allocations:
            job = order[allocation.podgroup]
            nodes = [it.node for it in allocation.binds]
            assert len(nodes) == self._jobs[job].pods
            self._charge(job, nodes, 1)
            del self._waiting[job]
            self._running[job] = at, nodes
            heapq.heappush(self._ends, (at + self._jobs[job].duration_s, job))
            self._waits_s[self._jobs[job].gpus].append(at - self._jobs[job].submit_s)
        for change in found.line:
            job = order[change.podgroup]
            self._lines.pop(job, None)
            if change.record is not None:
                self._lines[job] = change.record
        return found

    def _snapshot(self, at: int, order: Sequence[int]) -> Snapshot:
        columns: list[tuple[int, int, int, int]] = []
        podgroups = []
        requested = np.zeros_like(self._allocated)
        for row, job in enumerate(order):
            it, one = self._jobs[job], self._signature_row(job)
            queue = self._queue_row[it.queue]
            requested[queue] += it.pods * np.array(
                self._empty.signatures[one].queue_request, dtype=np.int64
            )
            if job in self._running:
                since_s, nodes = self._running[job]
                columns += [(one, node, row, PodState.RUNNING) for node in nodes]
                tree = PodSet("default", it.pods, running=it.pods)
                ends_at = _START_S + since_s + it.lasts_s if it.lasts_s else 0
                since = _START_S + since_s
                podgroups.append(_podgroup(job, queue, tree, ends_at=ends_at, since=since))
            else:
                pods = tuple(range(len(columns), len(columns) + it.pods))
                columns += [(one, NONE, row, PodState.PENDING)] * it.pods
                tree = PodSet("default", it.pods, pods)
                ends_at = _START_S + at + it.lasts_s if it.lasts_s else 0
                podgroups.append(_podgroup(job, queue, tree, ends_at=ends_at))
        table = np.array(columns, dtype=np.int32)
        empty, rows = self._empty, {job: row for row, job in enumerate(order)}
        pods_ = SnapshotPods(
            table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy(), table[:, 3].astype(np.int8)
        )
        return replace(
            empty,
            nodes=replace(empty.nodes, idle=self._idle.copy()),
            queues=replace(empty.queues, allocated=self._allocated.copy(), requested=requested),
            pods=pods_,
            podgroups=tuple(podgroups),
            now=_START_S + at,
            lines={rows[job]: it for job, it in self._lines.items() if job in rows},
        )


def _podgroup(
    job: int,
    queue: int,
    tree: PodSet,
    *,
    ends_at: int = 0,
    since: int = 0,
) -> PodGroupInfo:
    return PodGroupInfo(
        f"job-{job}",
        queue,
        50,
        is_preemptible=True,
        tree=tree,
        has_running=since > 0,
        running_since=since,
        ends_at=ends_at,
    )
