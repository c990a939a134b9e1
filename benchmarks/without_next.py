"""What a plan costs more where queues reserve and no PodGroup is the next one of the cluster.

The same snapshot is planned in turns: with queues of the order `best-effort`, and with all queues
of the order `reserve` when its PodGroups begin to wait, when they have waited for some minutes, and
when all of them gave up a place in the line before. Only two steps of a plan differ then, so these
are measured in each plan, and their part of the same plan is bounded: a machine that other work
slows down slows both. The ratio of the whole plans is printed beside it.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from rich.table import Table

from benchmarks.rounds import rounds
from benchmarks.victims import busy_cluster
from scheduler.core import plan as core_plan
from scheduler.core.actions import allocate
from scheduler.core.model.snapshot import Snapshot
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature

_MOST_TIMES: Final = 1.05
_TURNS: Final = 3
_LEAST_S: Final = 1.0
_POLICIES: Final = build_policies(PolicySelection())
_NOW: Final = 1_000_000
_QUEUES: Final = 10
_GPUS: Final = 8


class _Row(NamedTuple):
    work: str
    build: Callable[[], Snapshot]


def measure_without_next(table: Table) -> list[str]:
    return [fault for row in _ROWS for fault in _measure(row, table)]


class _Took(NamedTuple):
    plan_s: float
    line_s: float  # of that, for the line

    @property
    def times(self) -> float:
        return self.plan_s / (self.plan_s - self.line_s)


def _measure(row: _Row, table: Table) -> list[str]:
    cases = _cases(replace(row.build(), now=_NOW))
    took: dict[str, list[_Took]] = {name: [] for name in cases}

    def times(name: str) -> float:
        return median([it.times for it in took[name]])

    gc.collect()
    gc.freeze()
    gc.disable()
    for _ in rounds(_TURNS, _LEAST_S, lambda: all(times(it) <= _MOST_TIMES for it in took)):
        for name, snapshot in cases.items():
            took[name].append(_plan_s(snapshot))
    gc.enable()
    gc.unfreeze()
    best = {name: min([it.plan_s for it in all_took]) for name, all_took in took.items()}
    base, faults = best["best-effort"], []
    for name in [*cases][1:]:
        work = f"{row.work}: {name} ({times(name):.3f} times without, at most {_MOST_TIMES})"
        ratio = f"{best[name] / base:.2f}"
        table.add_row(work, "", f"{best[name]:.4f}", "", "", "", f"{base:.4f}", ratio, "")
        faults += [work] if times(name) > _MOST_TIMES else []
    return faults


def _plan_s(snapshot: Snapshot) -> _Took:
    line_s: list[float] = []
    with (
        _measured(allocate, "keep_room", line_s),
        _measured(core_plan, "line_changes", line_s),
    ):
        began = time.process_time()
        result = core_plan.plan(snapshot, _POLICIES)
        plan_s = time.process_time() - began
    assert result.line_note is None
    return _Took(plan_s, sum(line_s))


@contextmanager
def _measured(module: Any, name: str, seconds: list[float]) -> Iterator[None]:
    step: Callable[..., Any] = getattr(module, name)

    def measured(*args: Any) -> Any:
        began = time.process_time()
        result = step(*args)
        seconds.append(time.process_time() - began)
        return result

    with patch.object(module, name, measured):
        yield


def _cases(snapshot: Snapshot) -> dict[str, Snapshot]:
    queues = replace(snapshot.queues, reserving=frozenset(range(len(snapshot.queues.names))))
    new = replace(snapshot, queues=queues)
    lines = {
        it.podgroup: it.record
        for it in core_plan.plan(new, _POLICIES).line
        if it.record is not None
    }
    assert lines
    later = _NOW + _POLICIES.line.eligible_after_s
    old = {row: it._replace(again_at=later + 1800, tries=1) for row, it in lines.items()}
    return {
        "best-effort": snapshot,
        "reserve, new records": new,
        "reserve, young records": replace(new, lines=lines, now=_NOW + 300),
        "reserve, records that gave up": replace(new, lines=old, now=later),
    }


def _gangs_of_full_nodes(nodes: int, gangs: int) -> Snapshot:
    """Return gangs of 2 to 4 whole nodes that wait in ten queues, all of which are in use."""
    queues = [SnapshotQueue(f"q{i}", quota=_GPUS * nodes / _QUEUES) for i in range(_QUEUES)]
    builder, whole = Builder([SnapshotNode()] * nodes, queues), signature(gpu=_GPUS)
    for i in range(nodes):
        builder.running_podgroup([i], whole, queue=f"q{i % _QUEUES}", running_since=_NOW - 1000 - i)
    for i in range(gangs):
        builder.uniform_podgroup(2 + i % 3, whole, queue=f"q{i % _QUEUES}")
    return builder.snapshot()


_ROWS: Final = (
    _Row("50 gangs, 500 full nodes", lambda: _gangs_of_full_nodes(500, 50)),
    _Row("400 gangs, 500 full nodes", lambda: _gangs_of_full_nodes(500, 400)),
    _Row("1,500 gangs, 500 full nodes", lambda: _gangs_of_full_nodes(500, 1_500)),
    _Row("victims: 1,000 jobs, ten queues", lambda: busy_cluster(100)),
)
