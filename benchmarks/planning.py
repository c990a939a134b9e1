"""How fast a plan is made, from a snapshot in memory: one core, no cluster.

KAI's figures are its own benchmarks of v0.17 on this kind of machine, less the 0.1 seconds that
their fixture always takes; they include opening its session. The floor is a loop in the same Python
that takes each job from a heap and puts it onto the first node with room, without queues, shares,
gangs or reasons.
"""

import gc
import heapq
import math
import time
from collections.abc import Callable
from operator import truediv
from statistics import median
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.machine_speed import MachineSpeed
from benchmarks.rounds import rounds
from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.resources import UNBOUND
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage
from scheduler.core.plan import plan
from scheduler.core.queues.fair_share import fair_share
from scheduler.core.queues.order import JobsOrderByQueues, QueueOrder, keys_by_queue
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

__all__ = ["main"]

_GPUS: Final = 8
_ROUNDS: Final = 7
_LEAST_S: Final = 10.0
_POLICIES: Final = build_policies(PolicySelection())
_ROOMY: Final = SnapshotNode(cpu=640, memory=5120)


class _Row(NamedTuple):
    """One measurement: how it is set up at a scale, what must come out, how long it may take."""

    work: str
    build: Callable[[int], Snapshot]
    bound: Callable[[int], int]  # pods, at a scale
    nodes: int
    most_s: float
    kai_s: float | None = None
    most_growth: float = math.inf


async def main() -> None:
    """Measure each row at its size and at twice the size; then the order of queues."""
    table = Table(title="plans from a snapshot, best of several, this run")
    for heading in (
        "work",
        "KAI s",
        "ours s",
        "at most",
        "slower",
        "pods/s",
        "floor s",
        "times floor",
        "growth",
    ):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    faults: list[str] = []
    for row in _ROWS:
        faults += _measure(row, table)
    faults += _measure_queues(table)
    Console(width=115).print(table)
    assert not faults, faults


def _measure(row: _Row, table: Table) -> list[str]:
    once, growth, floor, slowdown = _seconds(row)
    bound = row.bound(row.nodes)
    table.add_row(
        row.work,
        "" if row.kai_s is None else f"{row.kai_s:.2f}",
        f"{once:.4f}",
        f"{row.most_s}",
        f"{slowdown:.2f}",
        f"{bound / once:,.0f}" if bound else "",
        f"{floor:.4f}",
        f"{once / floor:.1f}",
        f"N^{growth:.2f}",
    )
    faults = []
    if once > row.most_s * slowdown:
        faults.append(f"{row.work}: {once:.3f} s, at most {row.most_s} s x {slowdown:.2f}")
    if growth > row.most_growth:
        faults.append(f"{row.work}: grows with N^{growth:.2f}, at most N^{row.most_growth}")
    return faults


def _seconds(row: _Row) -> tuple[float, float, float, float]:
    """Return the time of a plan, how it grows with its size, the floor's time and the machine's.

    Each plan is checked. The sizes are measured in turns: a machine that is slower for a while is
    slower for both. The ratio of the best of each and the median of the ratios err for different
    reasons, so what both of them say counts, which is the smaller.
    """
    sizes = row.nodes, 2 * row.nodes
    snapshots = {nodes: row.build(nodes) for nodes in sizes}
    took: dict[int, list[float]] = {nodes: [] for nodes in sizes}
    floor, speed = math.inf, MachineSpeed()
    gc.collect()
    gc.disable()  # a plan leaves no reference cycles
    once, twice = took.values()

    def growth() -> float:
        return math.log2(min(median(map(truediv, twice, once)), min(twice) / min(once)))

    def is_met() -> bool:
        return min(once) <= row.most_s * speed.slowdown and growth() <= row.most_growth

    for _ in rounds(_ROUNDS, _LEAST_S, is_met):
        speed.measure()
        for nodes, snapshot in snapshots.items():
            began = time.perf_counter()
            result = plan(snapshot, _POLICIES)
            took[nodes].append(time.perf_counter() - began)
            _check(snapshot, result, row.bound(nodes))
        began = time.perf_counter()
        _first_fit(snapshots[row.nodes])
        floor = min(floor, time.perf_counter() - began)
    gc.enable()
    return min(once), growth(), floor, speed.slowdown


def _check(snapshot: Snapshot, result: Plan, bound: int) -> None:
    assert sum(len(it.binds) for it in result.allocations) == bound
    started = {it.podgroup for it in result.allocations}
    waiting = {it.podgroup for it in result.rejections}
    assert started | waiting == set(range(len(snapshot.podgroups)))
    if len(snapshot.podgroups) <= 1_000:  # it looks at every pod, in plain Python
        assert not [*plan_violations(snapshot, result)]


def _first_fit(snapshot: Snapshot) -> list[tuple[int, int]]:
    column = snapshot.resources.gpus[0]
    free = snapshot.nodes.idle[:, column].tolist()
    signatures, signature_of = snapshot.signatures, snapshot.pods.signature.tolist()
    pending = [(podgroup.queue, row) for row, podgroup in enumerate(snapshot.podgroups)]
    heapq.heapify(pending)
    node, placed = 0, []
    while pending and node < len(free):
        _, row = heapq.heappop(pending)
        for pod in _pending_pods(snapshot.podgroups[row]):
            wanted = signatures[signature_of[pod]].request[column]
            while node < len(free) and free[node] < wanted:
                node += 1
            if node < len(free):
                free[node] -= wanted
                placed.append((pod, node))
    return placed


def _pending_pods(podgroup: PodGroupInfo) -> tuple[int, ...]:
    waiting: tuple[int, ...] = getattr(podgroup.tree, "waiting", ())
    return waiting


def _departments(nodes: int) -> list[SnapshotQueue]:
    total = nodes * _GPUS
    tops = [SnapshotQueue(name, quota=total // 2) for name in ("dept-a", "dept-b")]
    teams = [SnapshotQueue(f"queue-{i}", tops[i // 2].name, quota=total // 4) for i in range(4)]
    return [*tops, *teams]


def _pending_jobs(nodes: int, jobs: int, pods: int = 1, gpus: int = 1) -> Snapshot:
    builder = Builder([_ROOMY] * nodes, _departments(nodes))
    one = signature(gpu=gpus)
    for i in range(jobs):
        builder.uniform_podgroup(pods, one, queue=f"queue-{i % 4}")
    return builder.snapshot()


def _full_cluster(nodes: int) -> Snapshot:
    builder = Builder([SnapshotNode(cpu=640, memory=5120, used_gpu=_GPUS)] * nodes)
    signatures = [signature(gpu=1 + i % 8, cpu=1 + i // 8) for i in range(20)]
    for i in range(2 * nodes):
        builder.uniform_podgroup(1, signatures[i % 20])
    return builder.snapshot()


def _measure_queues(table: Table) -> list[str]:
    """Measure a thousand queues in four levels: order of 20,000 PodGroups, built and popped."""
    builder = Builder([_ROOMY] * 2_600, _queue_tree())
    parents = {queue.parent for queue in builder.queues}
    leaves = [queue.name for queue in builder.queues if queue.name not in parents]
    one = signature(gpu=1)
    for i in range(20_000):
        builder.uniform_podgroup(1, one, queue=leaves[i % len(leaves)])
    snapshot = builder.snapshot()
    began = time.perf_counter()
    fair_shares = fair_share(snapshot.queues, snapshot.total)
    usage = Usage(snapshot.queues)
    queue_order = QueueOrder(snapshot.queues, usage, fair_shares, snapshot.total)
    requested = snapshot.signatures[0].queue_request
    pending = (
        (podgroup.queue, (-podgroup.priority, row))
        for row, podgroup in enumerate(snapshot.podgroups)
    )
    jobs_order = JobsOrderByQueues(
        snapshot.queues, queue_order.key, lambda _: requested, keys_by_queue(pending)
    )
    built = time.perf_counter() - began
    began, popped_rows = time.perf_counter(), []
    while (row := jobs_order.pop()) is not None:
        usage.charge(snapshot.podgroups[row].queue, requested, is_non_preemptible=False)
        popped_rows.append(row)
    popped = time.perf_counter() - began
    assert sorted(popped_rows) == list(range(20_000))
    faults, slowdown = [], MachineSpeed().slowdown
    for work, seconds, most in (
        (
            f"{len(builder.queues):,} queues in 4 levels, 20,000 units: division and order",
            built,
            0.3,
        ),
        ("the same: 20,000 turns, each charged to its queue", popped, 1.2),
    ):
        table.add_row(work, "", f"{seconds:.4f}", f"{most}", f"{slowdown:.2f}", "", "", "", "")
        if seconds > most * slowdown:
            faults.append(f"{work}: {seconds:.3f} s, at most {most} s x {slowdown:.2f}")
    return faults


def _queue_tree() -> list[SnapshotQueue]:
    queues = []
    for a in range(4):
        queues.append(SnapshotQueue(f"{a}", quota=5_000))
        for b in range(6):
            queues.append(SnapshotQueue(f"{a}.{b}", f"{a}", quota=800))
            for c in range(6):
                queues.append(SnapshotQueue(f"{a}.{b}.{c}", f"{a}.{b}", quota=130))
                leaves = [f"{a}.{b}.{c}.{d}" for d in range(6)]
                queues += [SnapshotQueue(name, f"{a}.{b}.{c}", quota=UNBOUND) for name in leaves]
    return queues


_ROWS: Final = (
    _Row(
        "allocate: 100 nodes, 500 one-GPU jobs, 4 queues in 2 departments",
        lambda n: _pending_jobs(n, 5 * n),
        lambda n: 5 * n,
        nodes=100,
        most_s=0.02,
        kai_s=0.19,
    ),
    _Row(
        "gangs: 50 nodes, 100 jobs of 4",
        lambda n: _pending_jobs(n, 2 * n, pods=4),
        lambda n: 8 * n,
        nodes=50,
        most_s=0.01,
        kai_s=0.11,
    ),
    _Row(
        "allocate: 1,000 nodes, 8,000 one-GPU jobs",
        lambda n: _pending_jobs(n, 8 * n),
        lambda n: 8 * n,
        nodes=1_000,
        most_s=0.4,
    ),
    _Row(
        "allocate: 5,000 nodes, 40,000 one-GPU jobs",
        lambda n: _pending_jobs(n, 8 * n),
        lambda n: 8 * n,
        nodes=5_000,
        most_s=3.0,
        most_growth=1.1,
    ),
    _Row(
        "gangs: 5,000 nodes, 2,000 of 4 pods of 4 GPUs",
        lambda n: _pending_jobs(n, 2 * n // 5, pods=4, gpus=4),
        lambda n: 8 * n // 5,
        nodes=5_000,
        most_s=8_000 / 4_000,
    ),
    _Row(
        "5,000 full nodes, 10,000 jobs of 20 shapes that cannot start",
        _full_cluster,
        lambda _: 0,
        nodes=5_000,
        most_s=0.3,
    ),
)
