"""How fast victims are chosen, in one plan, from a snapshot in memory.

KAI's figures are its own benchmarks of v0.17 on this kind of machine. The floor is a loop in the
same Python that takes the running pods from a heap, the newest first, and adds up what they have,
without queues, shares, rules or placements.
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

from benchmarks.rounds import rounds
from scheduler.core.model.podgroup import AffinityTerm
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import PodRelations, PodState, Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.machine_speed import MachineSpeed
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

_GPUS: Final = 8
_ROUNDS: Final = 7
_LEAST_S: Final = 5.0
_POLICIES: Final = build_policies(PolicySelection())


class _Row(NamedTuple):
    """One measurement: its expected outcome, and how long it may take."""

    work: str
    build: Callable[[int], Snapshot]
    outcome: Callable[[int], tuple[int, int] | None]  # evicted pods, and nominated pods
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
    floor, result, speed = math.inf, Plan((), (), snapshot.queues.quota), MachineSpeed()
    gc.collect()
    gc.disable()  # a plan leaves no reference cycles
    for _ in rounds(_ROUNDS, _LEAST_S, lambda: min(took) <= most_s * speed.slowdown):
        speed.measure()
        began = time.perf_counter()
        result = plan(snapshot, _POLICIES)
        took.append(time.perf_counter() - began)
        wanted = row.outcome(nodes)
        assert wanted in (_outcome(result), None), (row.work, nodes, _outcome(result))
        began = time.perf_counter()
        _sum_running(snapshot)
        floor = min(floor, time.perf_counter() - began)
    gc.enable()
    if len(snapshot.podgroups) <= 1_500:  # it looks at every pod, in plain Python
        assert not [*plan_violations(snapshot, result)]
    kai = "" if kai_s is None else f"{kai_s}"
    figures = f"{min(took):.4f}", f"{most_s}", f"{speed.slowdown:.2f}", f"{floor:.4f}"
    table.add_row(row.work, str(nodes), kai, *figures, str(result.stats.truncated))
    if min(took) <= most_s * speed.slowdown:
        return []
    return [
        f"{row.work}, {nodes} nodes: {min(took):.4f} s, at most {most_s} s x {speed.slowdown:.2f}"
    ]


def _outcome(result: Plan) -> tuple[int, int]:
    evicted = sum(len(it.pods) for it in result.evictions)
    return evicted, sum(len(it.nominations) for it in result.allocations)


def _sum_running(snapshot: Snapshot) -> int:
    """Add up the GPUs of all running pods, the newest first."""
    pods, total = snapshot.pods, 0
    running = [-row for row, state in enumerate(pods.state.tolist()) if state == PodState.RUNNING]
    heapq.heapify(running)
    gpus = [one.queue_request[2] for one in snapshot.signatures]
    signatures = pods.signature.tolist()
    while running:
        total += gpus[signatures[-heapq.heappop(running)]]
    return total


def _filled_cluster(nodes: int, quota_a: float, quota_b: float) -> Builder:
    """Return nodes that pods of queue a fill, GPU by GPU."""
    machines = [SnapshotNode(cpu=640, memory=5120)] * nodes
    builder = Builder(
        machines, [SnapshotQueue("a", quota=quota_a), SnapshotQueue("b", quota=quota_b)]
    )
    for i in range(_GPUS * nodes):
        builder.running_podgroup([i // _GPUS], _ONE, queue="a")
    return builder


_ONE: Final = signature(gpu=1)


def _large_gang(nodes: int) -> Snapshot:
    builder = _filled_cluster(nodes, 0, _GPUS * nodes)
    builder.uniform_podgroup(nodes // 2, signature(gpu=8), queue="b")
    return builder.snapshot()


def _many_jobs(nodes: int) -> Snapshot:
    builder = _filled_cluster(nodes, 0, _GPUS * nodes)
    for _ in range(_GPUS * nodes):
        builder.uniform_podgroup(1, _ONE, queue="b")
    return builder.snapshot()


def _one_gpu_too_few(nodes: int) -> Snapshot:
    builder = _filled_cluster(nodes, _GPUS * nodes - 79, 80)
    builder.uniform_podgroup(10, signature(gpu=8), queue="b")
    return builder.snapshot()


def _one_rack_too_few(nodes: int) -> Snapshot:
    """Return a gang of ten that needs ten racks where there are nine."""
    machines = [SnapshotNode(cpu=640, memory=5120, labels=(i % 9,)) for i in range(nodes)]
    builder = Builder(
        machines, [SnapshotQueue("a", quota=_GPUS * nodes - 80), SnapshotQueue("b", quota=80)]
    )
    for i in range(_GPUS * nodes):
        builder.running_podgroup([i // _GPUS], _ONE, queue="a")
    exclusive = signature(
        gpu=8, matched_selectors=(0,), anti_affinity=(0,), existing_anti_affinity=(0,)
    )
    builder.uniform_podgroup(10, exclusive, queue="b")
    none = np.zeros((1, nodes), dtype=np.int32)
    return builder.snapshot(
        pod_relations=PodRelations(none, (AffinityTerm(0, 0),), none.copy(), (), ())
    )


def busy_cluster(nodes: int) -> Snapshot:
    """Return ten queues on three levels, and jobs of all sizes, of which a fifth wait."""
    random = Random(1)  # noqa: S311 - the same jobs each time
    total = nodes * _GPUS
    tops = [SnapshotQueue(name, quota=total // 2) for name in ("x", "y")]
    middle = [
        SnapshotQueue(f"{top.name}{i}", top.name, quota=total // 4) for top in tops for i in (0, 1)
    ]
    leaves = [
        SnapshotQueue(f"{middle[i].name}-{i}", middle[i].name, quota=total // 8 * (i % 2))
        for i in range(4)
    ]
    builder = Builder([SnapshotNode(cpu=640, memory=5120)] * nodes, [*tops, *middle, *leaves])
    names = [leaf.name for leaf in leaves]
    free_gpus = [node for node in range(nodes) for _ in range(_GPUS)]
    for _ in range(800):
        size = min(random.choice((1, 1, 1, 1, 1, 2, 4)), len(free_gpus))
        if size:
            used_nodes = [free_gpus.pop() for _ in range(size)]
            minimum = max(1, size // 2) if random.random() < 1 / 3 else size
            queue = random.choice(names[:2])
            builder.running_podgroup(
                used_nodes, _ONE, queue=queue, minimum=minimum, priority=random.choice((40, 50))
            )
    for _ in range(200):
        size = random.choice((1, 2, 4, 8, 16, 32, 64))
        builder.uniform_podgroup(
            size, _ONE, queue=random.choice(names), priority=random.choice((40, 50, 60))
        )
    return builder.snapshot()


_ROWS: Final = (
    _Row(
        "large: one gang takes back half of the cluster",
        _large_gang,
        lambda nodes: (4 * nodes, nodes // 2),
        {100: (0.75, 0.05), 500: (9.7, 0.3), 1000: (39.7, 0.8)},
    ),
    _Row(
        "many: jobs take back all of it, one by one",
        _many_jobs,
        lambda nodes: (8 * nodes, 8 * nodes),
        {50: (1.2, 0.05), 100: (4.3, 0.1), 200: (20.7, 0.25), 500: (197.0, 0.8)},
    ),
    _Row(
        "must fail: one GPU too few may be taken",
        _one_gpu_too_few,
        lambda _: (0, 0),
        {50: (3.9, 0.02), 100: (18.6, 0.02), 200: (121.0, 0.02), 500: (123.0, 0.02)},
    ),
    _Row(
        "must fail: ten racks are wanted, and there are nine",
        _one_rack_too_few,
        lambda _: (0, 0),
        {100: (19.4, 0.1)},
    ),
    _Row(
        "1,000 jobs, ten queues on three levels", busy_cluster, lambda _: None, {100: (None, 0.3)}
    ),
)
