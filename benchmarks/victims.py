"""How fast it is decided whom to take room from, in one plan, from a snapshot in memory.

KAI's figures are its own benchmarks of v0.17 on this kind of machine. The floor is what nobody can
avoid who looks at everybody once: a loop in the same Python that takes those who run from a heap,
the newest first, and adds up what they have, without queues, shares, rules or placements.
"""

import gc
import heapq
import math
import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.pace import Pace
from benchmarks.rounds import rounds
from scheduler.core.decision import Plan
from scheduler.core.model import Neighbours, PodState, Snapshot, Term
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

__all__ = ["main"]

_GPUS: Final = 8
_ROUNDS: Final = 7
_LEAST_S: Final = 5.0
_POLICIES: Final = choose(Choice())


class _Row(NamedTuple):
    """One measurement: what is to come out of it, and how long it may take."""

    work: str
    build: Callable[[int], Snapshot]
    outcome: Callable[[int], tuple[int, int] | None]  # pods that go, and that get their room
    limits: dict[int, tuple[float | None, float]]  # by nodes: KAI's seconds, and the most of ours


async def main() -> None:
    """Measure each row at each size."""
    table = Table(title="whom to take room from, best of several, this run")
    for heading in ("work", "nodes", "KAI s", "ours s", "at most", "slower", "floor s", "cut"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    faults = [
        fault for row in _ROWS for nodes in row.limits for fault in _measure(row, nodes, table)
    ]
    Console(width=115).print(table)
    assert not faults, faults


def _measure(row: _Row, nodes: int, table: Table) -> list[str]:
    snapshot = row.build(nodes)
    kai_s, most_s = row.limits[nodes]
    took: list[float] = []
    floor, answer, pace = math.inf, Plan((), (), snapshot.queues.quota), Pace()
    gc.collect()
    gc.disable()  # a plan leaves no circles: whoever makes one need not look for any meanwhile
    for _ in rounds(_ROUNDS, _LEAST_S, lambda: min(took) <= most_s * pace.slower):
        pace.look()
        began = time.perf_counter()
        answer = plan(snapshot, _POLICIES)
        took.append(time.perf_counter() - began)
        wanted = row.outcome(nodes)
        assert wanted in (_outcome(answer), None), (row.work, nodes, _outcome(answer))
        began = time.perf_counter()
        _add_up(snapshot)
        floor = min(floor, time.perf_counter() - began)
    gc.enable()
    if len(snapshot.units) <= 1_500:  # it looks at every pod, in plain Python
        assert not [*violations(snapshot, answer)]
    kai = "" if kai_s is None else f"{kai_s}"
    figures = f"{min(took):.4f}", f"{most_s}", f"{pace.slower:.2f}", f"{floor:.4f}"
    table.add_row(row.work, str(nodes), kai, *figures, str(answer.stats.cut))
    if min(took) <= most_s * pace.slower:
        return []
    return [f"{row.work}, {nodes} nodes: {min(took):.4f} s, at most {most_s} s x {pace.slower:.2f}"]


def _outcome(answer: Plan) -> tuple[int, int]:
    gone = sum(len(it.pods) for it in answer.evictions)
    return gone, sum(len(it.nominations) for it in answer.decisions)


def _add_up(snapshot: Snapshot) -> int:
    """Take everybody who runs, the newest first."""
    pods, total = snapshot.pods, 0
    line = [-row for row, state in enumerate(pods.state.tolist()) if state == PodState.THERE]
    heapq.heapify(line)
    gpus = [one.counted[2] for one in snapshot.shapes]
    shapes = pods.shape.tolist()
    while line:
        total += gpus[shapes[-heapq.heappop(line)]]
    return total


def _taken(nodes: int, quota_a: float, quota_b: float) -> Builder:
    """Return nodes that A has taken, GPU by GPU."""
    machines = [Node(cpu=640, memory=5120)] * nodes
    builder = Builder(machines, [Queue("a", quota=quota_a), Queue("b", quota=quota_b)])
    for i in range(_GPUS * nodes):
        builder.runs([i // _GPUS], _ONE, queue="a")
    return builder


_ONE: Final = shape(gpu=1)


def _large(nodes: int) -> Snapshot:
    builder = _taken(nodes, 0, _GPUS * nodes)
    builder.gang(nodes // 2, shape(gpu=8), queue="b")
    return builder.snapshot()


def _many(nodes: int) -> Snapshot:
    builder = _taken(nodes, 0, _GPUS * nodes)
    for _ in range(_GPUS * nodes):
        builder.gang(1, _ONE, queue="b")
    return builder.snapshot()


def _must_fail(nodes: int) -> Snapshot:
    builder = _taken(nodes, _GPUS * nodes - 79, 80)
    builder.gang(10, shape(gpu=8), queue="b")
    return builder.snapshot()


def _racks(nodes: int) -> Snapshot:
    """Return a gang of ten that wants ten racks where there are nine."""
    machines = [Node(cpu=640, memory=5120, labels=(i % 9,)) for i in range(nodes)]
    builder = Builder(machines, [Queue("a", quota=_GPUS * nodes - 80), Queue("b", quota=80)])
    for i in range(_GPUS * nodes):
        builder.runs([i // _GPUS], _ONE, queue="a")
    hermit = shape(gpu=8, matches=(0,), apart=(0,), shunned=(0,))
    builder.gang(10, hermit, queue="b")
    none = np.zeros((1, nodes), dtype=np.int32)
    return builder.snapshot(neighbours=Neighbours(none, (Term(0, 0),), none.copy(), (), ()))


def _busy(nodes: int) -> Snapshot:
    """Return ten queues on three levels, and jobs of all sizes, of which a fifth wait."""
    random = Random(1)  # noqa: S311 - the same jobs each time
    total = nodes * _GPUS
    tops = [Queue(name, quota=total // 2) for name in ("x", "y")]
    middle = [Queue(f"{top.name}{i}", top.name, quota=total // 4) for top in tops for i in (0, 1)]
    leaves = [
        Queue(f"{middle[i].name}-{i}", middle[i].name, quota=total // 8 * (i % 2)) for i in range(4)
    ]
    builder = Builder([Node(cpu=640, memory=5120)] * nodes, [*tops, *middle, *leaves])
    names = [leaf.name for leaf in leaves]
    seats = [node for node in range(nodes) for _ in range(_GPUS)]
    for _ in range(800):
        size = min(random.choice((1, 1, 1, 1, 1, 2, 4)), len(seats))
        if size:
            taken = [seats.pop() for _ in range(size)]
            least = max(1, size // 2) if random.random() < 1 / 3 else size
            queue = random.choice(names[:2])
            builder.runs(taken, _ONE, queue=queue, minimum=least, priority=random.choice((40, 50)))
    for _ in range(200):
        size = random.choice((1, 2, 4, 8, 16, 32, 64))
        builder.gang(size, _ONE, queue=random.choice(names), priority=random.choice((40, 50, 60)))
    return builder.snapshot()


_ROWS: Final = (
    _Row(
        "large: one gang takes back half of the cluster",
        _large,
        lambda nodes: (4 * nodes, nodes // 2),
        {100: (0.75, 0.05), 500: (9.7, 0.3), 1000: (39.7, 0.8)},
    ),
    _Row(
        "many: jobs take back all of it, one by one",
        _many,
        lambda nodes: (8 * nodes, 8 * nodes),
        {50: (1.2, 0.05), 100: (4.3, 0.1), 200: (20.7, 0.25), 500: (197.0, 0.8)},
    ),
    _Row(
        "must fail: one GPU too few may be taken",
        _must_fail,
        lambda _: (0, 0),
        {50: (3.9, 0.02), 100: (18.6, 0.02), 200: (121.0, 0.02), 500: (123.0, 0.02)},
    ),
    _Row(
        "must fail: ten racks are wanted, and there are nine",
        _racks,
        lambda _: (0, 0),
        {100: (19.4, 0.1)},
    ),
    _Row("1,000 jobs, ten queues on three levels", _busy, lambda _: None, {100: (None, 0.3)}),
)
