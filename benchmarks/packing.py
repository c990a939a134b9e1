"""How much of a cluster's GPUs pods use when they come one after the other and none ends.

The protocol of the FGD paper (Weng et al., USENIX ATC '23) on Alibaba's trace: its nodes with GPUs,
shuffled; its pods, with more of them drawn until they request 130 % of the GPUs, shuffled; what is
allocated when pods have requested 100 %. Our placements are real plans. Each is of the next few
pods, and knows the pods that have come, not those that will. BestFit and FGD are beside it in the
same run, on the same pods and nodes, FGD with the typical pods of the whole list, as in the paper.

    python -m benchmarks packing --data DIRECTORY [--seeds 5] [--list default] [--only-ours]
"""

import argparse
import csv
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from scheduler.core.model.podgroup import PodSet, SchedulingSignature
from scheduler.core.model.resources import NONE, Bools, Floats, Ints
from scheduler.core.model.snapshot import PodState, SharedDevices, Snapshot, SnapshotPods
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from trainer_kai.api.scheduler_names import Action

_LISTS: Final = ("default", "multigpu50", "gpushare100")
_DRAWN: Final = 1.3  # of the GPUs
_COVERED: Final = 0.95  # by the typical pods of FGD
_MIB: Final = 2**20
_WHOLE: Final = 1000
_GPU: Final = 3  # the column of GPUs in a snapshot
_BATCH: Final = 20  # pods of one plan
_LEAST: Final = -0.2  # points that `fragmentation` may be behind FGD
_ALLOCATE_ONLY: Final = {it.value: it is Action.ALLOCATE for it in Action}

Slots: TypeAlias = list[list[int]]


T = TypeVar("T")


class _Shape(NamedTuple):
    cpu: int  # thousandths
    memory: int  # MiB
    gpus: int
    share: int  # thousandths of each GPU

    @property
    def amount(self) -> int:
        return self.gpus * self.share


class _Trial(NamedTuple):
    """Nodes and pods in the order of one seed."""

    nodes: Ints  # [node, (cpu, memory, gpus)]
    pods: list[_Shape]

    @property
    def capacity(self) -> int:
        return _WHOLE * int(self.nodes[:, 2].sum())


async def main() -> None:
    """Print a table of all placements for each list, and fail where ours is behind FGD."""
    options = _options()
    console, faults = Console(width=115), list[str]()
    placements = _PLACEMENTS
    if options.only_ours:
        placements = {it: _PLACEMENTS[it] for it in ("fragmentation", "FGD")}
    for name in options.list or _LISTS:
        found: dict[str, list[float]] = {it: [] for it in placements}
        seconds = dict.fromkeys(placements, 0.0)
        for seed in range(1, options.seeds + 1):
            trial = _trial(Path(options.data), name, seed)
            for it, allocated in placements.items():
                began = time.perf_counter()
                found[it].append(100 * allocated(trial) / trial.capacity)
                seconds[it] += time.perf_counter() - began
        console.print(_table(name, found, seconds))
        behind = [a - b for a, b in zip(found["fragmentation"], found["FGD"], strict=True)]
        console.print(f"{name}: fragmentation - FGD {mean(behind):+.2f} points ({_spread(behind)})")
        if mean(behind) < _LEAST:
            faults.append(f"{name}: {mean(behind):.2f} points behind FGD, at most {-_LEAST}")
    assert not faults, faults


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks packing")
    parser.add_argument("--data", required=True, help="the directory with the files of the trace")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only-ours", action="store_true", help="no other placement than FGD")
    parser.add_argument("--list", action="append", help="of pods; all of them if not given")
    return parser.parse_args(sys.argv[2:])


def _table(name: str, found: dict[str, list[float]], seconds: dict[str, float]) -> Table:
    table = Table(title=f"GPUs allocated on {name}, in % of all, this run")
    for heading in ("placement", "mean", "least", "most", "seconds for each seed"):
        table.add_column(heading, justify="left" if heading == "placement" else "right")
    for it, shares in found.items():
        each = seconds[it] / len(shares)
        row = f"{mean(shares):.2f}", f"{min(shares):.2f}", f"{max(shares):.2f}", f"{each:.1f}"
        table.add_row(it, *row)
    return table


def _spread(values: Sequence[float]) -> str:
    deviation = f", deviation {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{min(values):+.2f} to {max(values):+.2f}{deviation}"


def _trial(data: Path, name: str, seed: int) -> _Trial:
    random = np.random.default_rng(seed)
    listed = [*_rows(data / f"openb_pod_list_{name}.csv", _shape_of)]
    machines = [*_rows(data / "openb_node_list_gpu_node.csv", _node_of)]
    nodes = random.permutation(np.array(machines, dtype=np.int64))
    left = _DRAWN * _WHOLE * int(nodes[:, 2].sum()) - sum([it.amount for it in listed])
    pods = [*listed]
    while left > 0:
        pods.append(listed[int(random.integers(len(listed)))])
        left -= pods[-1].amount
    order = random.permutation(len(pods)).tolist()
    return _Trial(nodes, [pods[i] for i in order])


def _rows(path: Path, parsed: Callable[[dict[str, str]], T]) -> Iterator[T]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from map(parsed, csv.DictReader(file))


def _shape_of(row: dict[str, str]) -> _Shape:
    gpus = int(row["num_gpu"])
    share = int(row["gpu_milli"]) if gpus == 1 else _WHOLE
    return _Shape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, share)


def _node_of(row: dict[str, str]) -> tuple[int, int, int]:
    return int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"])


def _arriving(trial: _Trial) -> list[_Shape]:
    """Return the pods until they have requested all GPUs."""
    requested = np.cumsum([it.amount for it in trial.pods])
    return trial.pods[: int(np.searchsorted(requested, trial.capacity)) + 1]


class _Cluster:
    """What is allocated of a cluster after some plans, as the snapshots of more of them."""

    def __init__(self, trial: _Trial) -> None:
        self._shapes: Final = sorted(set(trial.pods))
        self._row: Final = {shape: row for row, shape in enumerate(self._shapes)}
        nodes = [
            SnapshotNode(gpu=gpus, cpu=cpu // 1000, memory=memory // 1024, pods=1000)
            for cpu, memory, gpus in trial.nodes.tolist()
        ]
        self._empty: Final = replace(
            Builder(nodes).snapshot(), signatures=tuple(map(_signature, self._shapes))
        )
        self._idle: Final[Ints] = self._empty.nodes.idle.copy()
        self._used: Final[Slots] = [[] for _ in nodes]  # thousandths of shared GPUs, by node
        self._rows: Final[list[int]] = []  # of the signatures of all pods

    def snapshot(self, coming: Sequence[_Shape]) -> Snapshot:
        """Return the snapshot with some more pods, which wait."""
        first = len(self._rows)
        self._rows.extend([self._row[shape] for shape in coming])
        count = len(self._rows)
        builder = Builder()
        for at in range(first, count):
            builder.podgroup(PodSet("default", 1, (at,)))
        podgroup, state = np.full(count, NONE), np.full(count, PodState.RUNNING)
        podgroup[first:], state[first:] = np.arange(count - first), PodState.PENDING
        return replace(
            self._empty,
            nodes=replace(self._empty.nodes, idle=self._idle.copy()),
            devices=self._devices(),
            podgroups=tuple(builder.podgroups),
            pods=SnapshotPods(
                np.array(self._rows, dtype=np.int32),
                np.full(count, NONE, dtype=np.int32),
                podgroup.astype(np.int32),
                state.astype(np.int8),
            ),
        )

    def bind(self, pod: int, node: int, slots: tuple[int, ...]) -> int:
        """Put a pod onto a node; return the thousandths of GPUs that it has."""
        shape, used = self._shapes[self._rows[pod]], self._used[node]
        request = self._empty.signatures[self._rows[pod]].request
        self._idle[node] -= np.array(request, dtype=np.int64)
        for slot in slots:
            if slot == len(used):
                used.append(0)
                self._idle[node, _GPU] -= _WHOLE
                self._idle[node, self._empty.resources.pods] -= 1  # for the reservation pod
            used[slot] += shape.share
            assert used[slot] <= _WHOLE
        assert (self._idle[node] >= 0).all()
        return shape.amount

    def _devices(self) -> SharedDevices:
        rows = [
            (node, slot, it) for node, used in enumerate(self._used) for slot, it in enumerate(used)
        ]
        return SharedDevices(
            ids=tuple([f"gpu-{slot:03}" for _, slot, _ in rows]),
            node=np.array([node for node, _, _ in rows], dtype=np.int32),
            used=np.array([it for _, _, it in rows], dtype=np.int64),
            releasing=np.zeros(len(rows), dtype=np.int64),
        )


def _signature(shape: _Shape) -> SchedulingSignature:
    is_share = shape.gpus == 1 and shape.share < _WHOLE
    one = signature(gpu=0 if is_share else shape.gpus)
    return replace(
        one,
        request=(shape.cpu, shape.memory * _MIB, 1, one.request[_GPU]),
        has_gpu=shape.gpus > 0,
        shared_devices=1 if is_share else 0,
        device_share=shape.share if is_share else 0,
        queue_request=(shape.cpu, shape.memory * _MIB, shape.amount),
    )


def _planned(placement: str) -> Callable[[_Trial], int]:
    policies = build_policies(
        PolicySelection(gpu_placement=placement, cpu_placement=placement, actions=_ALLOCATE_ONLY)
    )

    def allocated(trial: _Trial) -> int:
        cluster, pods, found = _Cluster(trial), _arriving(trial), 0
        for first in range(0, len(pods), _BATCH):
            snapshot = cluster.snapshot(pods[first : first + _BATCH])
            for allocation in plan(snapshot, policies).allocations:
                for bind in allocation.binds:
                    found += cluster.bind(bind.pod, bind.node, bind.slots)
        return found

    return allocated


class _Baseline:
    """Nodes as the simulator of the paper has them: what is left of CPU, memory and each GPU."""

    def __init__(self, trial: _Trial) -> None:
        self.cpu: Final[Ints] = trial.nodes[:, 0].copy()
        self.memory: Final[Ints] = trial.nodes[:, 1].copy()
        self.left: Final[Ints] = _WHOLE * (np.arange(8) < trial.nodes[:, 2:]).astype(np.int64)

    def fits(self, pod: _Shape) -> Bools:
        rooms = (self.left >= max(pod.share, 1)).sum(axis=1)
        fits: Bools = (self.cpu >= pod.cpu) & (self.memory >= pod.memory) & (rooms >= pod.gpus)
        return fits

    def place(self, pod: _Shape, node: int, gpus: Ints) -> None:
        self.cpu[node] -= pod.cpu
        self.memory[node] -= pod.memory
        self.left[node, gpus] -= pod.share

    def tightest(self, pod: _Shape, node: int) -> Ints:
        left = np.where(self.left[node] >= max(pod.share, 1), self.left[node], 2 * _WHOLE)
        return left.argsort(kind="stable")[: pod.gpus]


def _by_score(score: Callable[[_Baseline, _Shape], Floats]) -> Callable[[_Trial], int]:
    """Place each pod on the first node with the best score, and on its GPUs with the least left."""

    def allocated(trial: _Trial) -> int:
        nodes, found = _Baseline(trial), 0
        for pod in _arriving(trial):
            mask = nodes.fits(pod)
            if mask.any():
                best = int(np.where(mask, score(nodes, pod), -np.inf).argmax())
                nodes.place(pod, best, nodes.tightest(pod, best))
                found += pod.amount
        return found

    return allocated


def _best_fit(nodes: _Baseline, _pod: _Shape) -> Floats:
    left: Floats = nodes.cpu / 128_000 + nodes.left.sum(axis=1) / (8 * _WHOLE)
    return -left


def _whole_gpus(nodes: _Baseline, pod: _Shape) -> Floats:
    """Score as our binpack does: GPUs that are shared already first, then the fewest whole ones."""
    if not pod.gpus:
        return -nodes.cpu.astype(np.float64)
    is_shared = (nodes.left < _WHOLE) & (nodes.left >= max(pod.share, 1))
    beside = is_shared.any(axis=1) & (pod.share < _WHOLE)
    found: Floats = 1000.0 * beside - (nodes.left == _WHOLE).sum(axis=1)
    return found


def _with_cpu_ties(nodes: _Baseline, pod: _Shape) -> Floats:
    return _whole_gpus(nodes, pod) - nodes.cpu / 1e7


def _with_parts_of_gpus(nodes: _Baseline, pod: _Shape) -> Floats:
    parts = (nodes.left % _WHOLE).sum(axis=1) / 1e4
    return _whole_gpus(nodes, pod) - (parts if pod.gpus else 0.0)


class _Fgd:
    """FGD with scores cut to whole hundredths, as its simulator has them."""

    def __init__(self, trial: _Trial) -> None:
        self._nodes: Final = _Baseline(trial)
        counts = Counter([it._replace(memory=0) for it in trial.pods]).most_common()
        covered = np.cumsum([count for _, count in counts])
        size = int(np.searchsorted(covered, _COVERED * len(trial.pods))) + 1
        self._typical: Final = np.array([shape for shape, _ in counts[:size]], dtype=np.int64)
        self._weight: Final = np.array([n for _, n in counts[:size]]) / covered[size - 1]
        self._fragments: Final[Floats] = self._of(self._nodes.cpu, self._nodes.left)
        self._changed: Final[list[int]] = []
        # By pod shape: the score and the GPU on each node, and how many changes it knows.
        self._scores: Final[dict[_Shape, tuple[Floats, Ints]]] = {}
        self._seen: Final[dict[_Shape, int]] = {}

    def allocated(self, trial: _Trial) -> int:
        nodes, found = self._nodes, 0
        for pod in _arriving(trial):
            mask = nodes.fits(pod)
            if not mask.any():
                continue
            scores, gpu = self._scored(pod)
            best = int(np.where(mask, scores, -np.inf).argmax())
            whole = np.flatnonzero(nodes.left[best] == _WHOLE)[: pod.gpus]
            is_share = pod.gpus == 1 and pod.share < _WHOLE
            nodes.place(pod, best, gpu[best : best + 1] if is_share else whole)
            self._fragments[best] = self._of(nodes.cpu[[best]], nodes.left[[best]])[0]
            self._changed.append(best)
            found += pod.amount
        return found

    def _scored(self, pod: _Shape) -> tuple[Floats, Ints]:
        """Return the scores, anew for the nodes that have changed."""
        count = len(self._nodes.cpu)
        if pod not in self._scores:
            self._scores[pod] = np.zeros(count), np.zeros(count, dtype=np.int64)
            changed = np.arange(count)
        else:
            changed = np.array([*set(self._changed[self._seen[pod] :])], dtype=np.int64)
        self._seen[pod] = len(self._changed)
        scores, gpu = self._scores[pod]
        changed = changed[self._nodes.fits(pod)[changed]]
        if len(changed):
            scores[changed], gpu[changed] = self._new_scores(pod, changed)
        return scores, gpu

    def _new_scores(self, pod: _Shape, at: Ints) -> tuple[Floats, Ints]:
        nodes, rows = self._nodes, np.arange(len(at))
        left, cpu, before = nodes.left[at], nodes.cpu[at] - pod.cpu, self._fragments[at]
        if pod.gpus == 1 and pod.share < _WHOLE:
            least, gpu = np.full(len(at), np.inf), np.zeros(len(at), dtype=np.int64)
            for slot in range(left.shape[1]):
                after = left.copy()
                after[rows, slot] -= pod.share
                grown = np.where(left[:, slot] >= pod.share, self._of(cpu, after), np.inf)
                gpu, least = np.where(grown < least, slot, gpu), np.minimum(grown, least)
        else:
            is_whole = left == _WHOLE
            taken = is_whole & (is_whole.cumsum(axis=1) <= pod.gpus)
            least, gpu = self._of(cpu, left - _WHOLE * taken), np.zeros(len(at), dtype=np.int64)
        return np.floor(100 / (1 + np.exp((least - before) / _WHOLE))), gpu

    def _of(self, cpu: Ints, left: Ints) -> Floats:
        """Return what typical pods cannot use of the GPUs of nodes, [node]."""
        needed_cpu, _, gpus, share = self._typical.T
        each, at = np.unique(share, return_inverse=True)
        is_enough = left[:, :, None] >= each
        rooms = is_enough.sum(axis=1)[:, at]
        fits = (cpu[:, None] >= needed_cpu) & (rooms >= gpus) & (gpus > 0)
        total = left.sum(axis=1)[:, None]
        too_small = (total - (left[:, :, None] * is_enough).sum(axis=1))[:, at]
        found: Floats = np.where(fits, too_small, total) @ self._weight
        return found


def _fgd(trial: _Trial) -> int:
    return _Fgd(trial).allocated(trial)


_PLACEMENTS: Final[dict[str, Callable[[_Trial], int]]] = {
    "fragmentation": _planned("fragmentation"),
    "FGD": _fgd,
    "BestFit: binpack of CPU and GPUs": _by_score(_best_fit),
    "binpack": _planned("binpack"),
    "binpack, as plain scores": _by_score(_whole_gpus),
    "the same, ties by the least CPU": _by_score(_with_cpu_ties),
    "the same, ties by parts of GPUs": _by_score(_with_parts_of_gpus),
}
