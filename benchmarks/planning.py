"""How fast a plan is made, from a snapshot in memory: one core, no cluster.

KAI's figures are its own benchmarks of v0.17 on this kind of machine, less the 0.1 seconds that
their fixture always takes; they include opening its session. The floor is a loop in the same Python
that takes each job from a heap and puts it onto the first node with enough free, or the first GPU
for a share, without queues, fair shares, gangs or reasons.
"""

import gc
import heapq
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from operator import truediv
from random import Random
from statistics import median
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.rounds import rounds
from benchmarks.without_next import measure_without_next
from scheduler.core.model.podgroup import PodGroupInfo, PodSet, SchedulingSignature
from scheduler.core.model.resources import UNBOUND
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import GpuMode, Snapshot
from scheduler.core.model.topology import DomainConstraint
from scheduler.core.model.usage import Usage
from scheduler.core.plan import PlanLimits, plan
from scheduler.core.queues.fair_share import fair_share
from scheduler.core.queues.order import JobsOrderByQueues, QueueOrder, keys_by_queue
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.machine_speed import MachineSpeed
from tests.support.snapshot.builder import (
    Builder,
    SnapshotNode,
    SnapshotQueue,
    mig_signature,
    share_signature,
    signature,
)
from tests.support.snapshot.claim_devices import claim, claim_devices, claim_signature
from tests.support.snapshot.claim_devices import gpus as devices_of_nodes
from tests.support.snapshot.plan_violations import plan_violations

_GPUS: Final = 8
_ROUNDS: Final = 7
_LEAST_S: Final = 10.0
_POLICIES: Final = build_policies(PolicySelection())
_BY_FRAGMENTS: Final = build_policies(
    PolicySelection(gpu_placement="fragmentation", cpu_placement="fragmentation")
)
_TURNS: Final = 3
_MOST_TIMES: Final = 1.5
_MOST_TIMES_CHANGED: Final = 1.3
_MOST_TIMES_CHECKED: Final = 1.05
_CHECKS: Final = PlanLimits().remedy_checks
_ROOMY: Final = SnapshotNode(cpu=640, memory=5120)
# Two MIG nodes: 7 profiles of the smallest size on each GPU, and 4 of three sizes.
_EVEN_MIG: Final = SnapshotNode(
    cpu=640, memory=5120, gpu=0, gpu_mode=GpuMode.MIG_MIXED, mig=(7 * _GPUS, 0, 0)
)
_MIXED_MIG: Final = SnapshotNode(
    cpu=640, memory=5120, gpu=0, gpu_mode=GpuMode.MIG_MIXED, mig=(2 * _GPUS, _GPUS, _GPUS)
)
_OVER_A_LIMIT: Final = 64
_DEVICE: Final = -1  # stands for the column of one shared GPU


class _Row(NamedTuple):
    """One measurement: how it is set up at a scale, what must come out, how long it may take."""

    work: str
    build: Callable[[int], Snapshot]
    bound: Callable[[int], int]  # pods, at a scale
    nodes: int
    most_s: float
    kai_s: float | None = None
    most_growth: float = math.inf
    check: Callable[[Snapshot, Plan], str] | None = None  # of more; what is to be printed


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
    notes: list[str] = []
    for row in _ROWS:
        faults += _measure(row, table, notes)
    faults += _measure_queues(table)
    faults += _measure_claims(table)
    for comparison in _COMPARISONS:
        faults += _compare(comparison, table)
    faults += _measure_fragmentation(table)
    faults += _measure_checks(table)
    faults += measure_without_next(table)
    console = Console(width=115)
    console.print(table)
    for note in notes:
        console.print(note)
    assert not faults, faults


def _measure(row: _Row, table: Table, notes: list[str]) -> list[str]:
    once, growth, floor, slowdown = _seconds(row, notes)
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


def _seconds(row: _Row, notes: list[str]) -> tuple[float, float, float, float]:
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
    if row.check is not None:
        snapshot = snapshots[row.nodes]
        notes.append(f"{row.work}: {row.check(snapshot, plan(snapshot, _POLICIES))}")
    return min(once), growth(), floor, speed.slowdown


def _check(snapshot: Snapshot, result: Plan, bound: int) -> None:
    assert sum(len(it.binds) for it in result.allocations) == bound
    started = {it.podgroup for it in result.allocations}
    waiting = {it.podgroup for it in result.rejections}
    assert started | waiting == set(range(len(snapshot.podgroups)))
    if len(snapshot.podgroups) <= 1_000:  # it looks at every pod, in plain Python
        assert not [*plan_violations(snapshot, result)]


def _first_fit(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Put each job onto the first node, or the first GPU for a share, with enough of one kind."""
    columns = range(snapshot.resources.pods + 1, len(snapshot.resources.names))
    free = {column: snapshot.nodes.idle[:, column].tolist() for column in columns}
    free[_DEVICE] = [1000] * (int(snapshot.nodes.idle[:, snapshot.resources.gpus[0]].sum()) // 1000)
    wanted = [_wanted(it, columns) for it in snapshot.signatures]
    signature_of = snapshot.pods.signature.tolist()
    pending = [(podgroup.queue, row) for row, podgroup in enumerate(snapshot.podgroups)]
    heapq.heapify(pending)
    node_of, placed = dict.fromkeys(free, 0), []
    while pending:
        _, row = heapq.heappop(pending)
        for pod in _pending_pods(snapshot.podgroups[row]):
            column, amount = wanted[signature_of[pod]]
            left, node = free[column], node_of[column]
            while node < len(left) and left[node] < amount:
                node += 1
            node_of[column] = node
            if node < len(left):
                left[node] -= amount
                placed.append((pod, node))
    return placed


def _wanted(one: SchedulingSignature, columns: range) -> tuple[int, int]:
    """Return the form in which a pod requests GPUs, and how much of it."""
    if one.shared_devices:
        return _DEVICE, one.device_share
    column = next(column for column in columns if one.request[column])
    return column, one.request[column]


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


def _shares(nodes: int) -> Snapshot:
    """Return jobs of one pod with a tenth of a GPU, two tenths and so on, in any order."""
    builder = Builder([_ROOMY] * nodes, _departments(nodes))
    sizes = [share_signature((1 + i % 9) / 10) for i in range(8 * nodes)]
    Random(1).shuffle(sizes)  # noqa: S311 - the same order each time
    for i, one in enumerate(sizes):
        builder.uniform_podgroup(1, one, queue=f"queue-{i % 4}")
    return builder.snapshot()


def _check_shares(snapshot: Snapshot, result: Plan) -> str:
    """Return how many GPUs the shares are on; none has more of them than there is of it."""
    used = Counter[tuple[int, int]]()
    for allocation in result.allocations:
        for bind in allocation.binds:
            share = snapshot.signatures[snapshot.pods.signature[bind.pod]].device_share
            used.update({(bind.node, slot): share for slot in bind.slots})
    assert max(used.values()) <= 1000
    least = -(-used.total() // 1000)
    return f"{len(used):,} GPUs, at least {least:,} are needed ({len(used) / least:.3f} times)"


def _mig_profiles(nodes: int) -> Snapshot:
    """Return nodes with MIG profiles of two kinds, and jobs of one pod for most of them."""
    machines = [_EVEN_MIG if i % 2 else _MIXED_MIG for i in range(nodes)]
    builder = Builder(machines, _departments(nodes))
    names = ["1g.5gb"] * 3 + ["2g.10gb", "3g.20gb"]
    jobs = [mig_signature(names[i % 5]) for i in range(20 * nodes)]
    Random(1).shuffle(jobs)  # noqa: S311 - the same order each time
    for i, one in enumerate(jobs):
        builder.uniform_podgroup(1, one, queue=f"queue-{i % 4}")
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


def _measure_claims(table: Table) -> list[str]:
    """Measure gangs with a claim for each GPU, in turns with the same gangs with whole GPUs."""
    nodes, gangs, pods = 500, 500, 4
    gpus = _pending_gangs(nodes, gangs, pods, signature(gpu=1), SnapshotNode(cpu=640, memory=5120))
    empty = SnapshotNode(cpu=640, memory=5120, gpu=0)
    claims = replace(
        _pending_gangs(nodes, gangs, pods, claim_signature(claim()), empty),
        claim_devices=claim_devices(devices_of_nodes(nodes, _GPUS)),
        total=gpus.total,
    )
    took: dict[bool, float] = {}
    for _ in range(_ROUNDS):
        for is_claimed, snapshot in ((False, gpus), (True, claims)):
            began = time.perf_counter()
            result = plan(snapshot, _POLICIES)
            took[is_claimed] = min(took.get(is_claimed, math.inf), time.perf_counter() - began)
            binds = [bind for it in result.allocations for bind in it.binds]
            assert len(binds) == gangs * pods
            assert len({bind.held for bind in binds}) == (len(binds) if is_claimed else 1)
    ratio = took[True] / took[False]
    work = f"claims: {nodes} nodes of 8 devices, {gangs * pods:,} claims in gangs of {pods}"
    table.add_row(
        work, "", f"{took[True]:.4f}", "2 x GPUs", "", "", f"{took[False]:.4f}", f"{ratio:.2f}", ""
    )
    return [f"{work}: {ratio:.2f} times as long as with GPUs, at most 2"] if ratio > 2 else []


def _pending_gangs(
    nodes: int, gangs: int, pods: int, one: SchedulingSignature, node: SnapshotNode
) -> Snapshot:
    builder = Builder([node] * nodes, _departments(nodes))
    for i in range(gangs):
        builder.uniform_podgroup(pods, one, queue=f"queue-{i % 4}")
    return builder.snapshot()


def _compare(comparison: "_Comparison", table: Table) -> list[str]:
    """Measure the same gangs without a constraint, and with it, in turns."""
    build, constraint = comparison.build, comparison.constraint
    snapshots = build(None), build(constraint)
    best = [math.inf, math.inf]
    gc.collect()
    gc.disable()

    def is_met() -> bool:
        return best[1] <= comparison.most_times * best[0]

    for _ in rounds(_ROUNDS, _LEAST_S, is_met):
        for i, snapshot in enumerate(snapshots):
            began = time.perf_counter()
            result = plan(snapshot, _POLICIES)
            best[i] = min(best[i], time.perf_counter() - began)
            assert sum(len(it.binds) for it in result.allocations) == len(snapshot.pods.node)
    gc.enable()
    times, most = best[1] / best[0], comparison.most_times
    work = f"{comparison.work} ({times:.2f} times the same without, at most {most})"
    table.add_row(work, "", f"{best[1]:.4f}", "", "", "", f"{best[0]:.4f}", f"{times:.1f}", "")
    return [] if is_met() else [work]


def _measure_fragmentation(table: Table) -> list[str]:
    """Measure plans by fragments in turns with the same by binpack, in processor time."""
    changed = _Row("one of 5,000 full nodes gets a GPU", _one_change, lambda _: 1, 5_000, 0.5)
    faults, policies = [], (_POLICIES, _BY_FRAGMENTS)
    for row, most in (*[(it, _MOST_TIMES) for it in _ROWS], (changed, _MOST_TIMES_CHANGED)):
        snapshot, best = row.build(row.nodes), [math.inf, math.inf]
        gc.collect()
        gc.disable()
        for _ in range(_TURNS):
            for i, it in enumerate(policies):
                began = time.process_time()
                result = plan(snapshot, it)
                best[i] = min(best[i], time.process_time() - began)
                _check(snapshot, result, row.bound(row.nodes))
        gc.enable()
        packed, ours = best
        work = f"by fragments: {row.work} ({ours / packed:.2f} times binpack, at most {most})"
        table.add_row(work, "", f"{ours:.4f}", "", "", "", f"{packed:.4f}", "", "")
        faults += [work] if ours > most * packed else []
    return faults


def _measure_checks(table: Table) -> list[str]:
    faults = []
    for nodes, shapes in ((n, m) for n in (100, 1_000, 5_000) for m in (1, _OVER_A_LIMIT)):
        without, checked, times = _checked_s(_over_a_limit(nodes, shapes))
        work = (
            f"{_CHECKS} remedies of {_OVER_A_LIMIT} gangs over a limit, shapes: {shapes}; "
            f"{nodes:,} nodes ({times:.3f} times without, at most {_MOST_TIMES_CHECKED})"
        )
        table.add_row(work, "", f"{checked:.4f}", "", "", "", f"{without:.4f}", "", "")
        faults += [work] if times > _MOST_TIMES_CHECKED else []
    return faults


def _checked_s(snapshot: Snapshot) -> tuple[float, float, float]:
    """Return the processor time of a plan that checks no remedies, of one that does, and the ratio.

    As with the growth, the smaller of two ratios counts.
    """
    took: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()

    def times() -> float:
        without, checked = took
        return float(min(median(map(truediv, checked, without)), min(checked) / min(without)))

    for _ in rounds(_TURNS, _LEAST_S, lambda: times() <= _MOST_TIMES_CHECKED):
        for seconds, checks in zip(took, (0, _CHECKS), strict=True):
            began = time.process_time()
            result = plan(snapshot, _POLICIES, PlanLimits(remedy_checks=checks))
            seconds.append(time.process_time() - began)
            assert sum(it.also_needed is not None for it in result.rejections) == checks
    gc.enable()
    return min(took[0]), min(took[1]), times()


def _over_a_limit(nodes: int, shapes: int) -> Snapshot:
    """Return jobs that fill a cluster, and gangs of a queue that may have nothing."""
    queues = [*_departments(nodes), SnapshotQueue("closed", limit=0)]
    builder, one = Builder([_ROOMY] * nodes, queues), signature(gpu=1)
    for i in range(_GPUS * nodes):
        builder.uniform_podgroup(1, one, queue=f"queue-{i % 4}")
    for i in range(_OVER_A_LIMIT):
        builder.uniform_podgroup(4, signature(gpu=8, cpu=1 + i % shapes), queue="closed")
    return builder.snapshot()


def _one_change(nodes: int) -> Snapshot:
    full = _full_cluster(nodes)
    idle = full.nodes.idle.copy()
    idle[nodes // 2, full.resources.gpus[0]] = 1000
    return replace(full, nodes=replace(full.nodes, idle=idle))


def _racks(nodes: int, racks: int, used_gpu: int = 0) -> list[SnapshotNode]:
    """Return nodes in racks, in blocks of five racks, in two zones."""
    found = []
    for i in range(nodes):
        rack = i * racks // nodes
        path = f"{rack * 2 // racks}", f"{rack // 5:02}", f"{rack:02}"
        found.append(SnapshotNode(cpu=640, memory=5120, used_gpu=used_gpu, path=path))
    return found


def _gangs_in_racks(constraint: DomainConstraint | None) -> Snapshot:
    builder = Builder(_racks(5_000, 50), _departments(5_000))
    one = signature(gpu=1)
    for i in range(2_000):
        pods = builder.waiting_pods(8, one)
        builder.podgroup(PodSet("default", 8, pods, domains=constraint), queue=f"queue-{i % 4}")
    return builder.snapshot()


def _gang_in_full_racks(constraint: DomainConstraint | None) -> Snapshot:
    builder = Builder(_racks(512, 64, used_gpu=6))
    pods = builder.waiting_pods(512, signature(gpu=1))
    builder.podgroup(PodSet("default", 512, pods, domains=constraint))
    return builder.snapshot()


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


class _Comparison(NamedTuple):
    """Gangs with a constraint of topology, and how many times as long as without they may take."""

    work: str
    build: Callable[[DomainConstraint | None], Snapshot]
    constraint: DomainConstraint
    most_times: float


_COMPARISONS: Final = (
    _Comparison(
        "2,000 gangs of 8, each in one of 50 racks, 5,000 nodes",
        _gangs_in_racks,
        DomainConstraint(0, required=2),
        1.5,
    ),
    _Comparison(
        "the same, of three levels the narrowest is preferred",
        _gangs_in_racks,
        DomainConstraint(0, preferred=2),
        2.0,
    ),
    _Comparison(
        "a gang of 512 into 64 racks, three quarters full",
        _gang_in_full_racks,
        DomainConstraint(0, preferred=2),
        3.0,
    ),
)
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
    _Row(
        "shares: 5,000 nodes of 8 GPUs, 40,000 jobs with 0.1 to 0.9 of one",
        _shares,
        lambda n: 8 * n,
        nodes=5_000,
        most_s=5.0,
        check=_check_shares,
    ),
    _Row(
        "MIG: 500 nodes of 8 GPUs, each 7 slices, 10,000 jobs of 3 profiles",
        _mig_profiles,
        lambda n: 20 * n,
        nodes=500,
        most_s=2.0,
    ),
)
