"""Builds snapshots for tests and benchmarks: each call states only what is not the default.

GPUs and CPUs are whole here, memory is in GiB; -1 stays -1.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from scheduler.core.model.podgroup import PodGroupInfo, PodSet, SchedulingSignature, SubGroupTree
from scheduler.core.model.rejections import PreFilterFailure
from scheduler.core.model.resources import NONE, UNBOUND, Ints, ResourceColumns
from scheduler.core.model.snapshot import (
    GpuMode,
    PodRelations,
    PodState,
    ReleasingAmount,
    SharedDevices,
    Snapshot,
    SnapshotNodes,
    SnapshotPods,
    SnapshotQueues,
)
from scheduler.core.model.topology import SnapshotTopology

GIB: Final = 2**30
AXES: Final = ResourceColumns(
    names=("cpu", "memory", "pods", "nvidia.com/gpu"),
    kinds=(0, 1, NONE, 2),
    weights=(1, 1, 0, 1),
    cpu=0,
    pods=2,
    gpus=(3,),
)
_MIG_PROFILES: Final = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3}  # and their GPUs
MIG_AXES: Final = ResourceColumns(
    names=(*AXES.names, *(f"nvidia.com/mig-{profile}" for profile in _MIG_PROFILES)),
    kinds=(*AXES.kinds, *(2 for _ in _MIG_PROFILES)),
    weights=(*AXES.weights, *(1000 * gpus for gpus in _MIG_PROFILES.values())),
    cpu=AXES.cpu,
    pods=AXES.pods,
    gpus=AXES.gpus,
)


@dataclass(frozen=True)
class SnapshotNode:
    """A node, and what of it is taken.

    Each GPU that pods share is one of `gpu`, and not of `used_gpu` or `releasing_gpu`.
    """

    gpu: int = 8
    cpu: int = 64
    memory: int = 512
    pods: int = 110
    used_gpu: int = 0
    used_cpu: int = 0
    releasing_gpu: int = 0
    prefilter_fault: int = 0
    labels: tuple[int, ...] = ()
    taints: tuple[bool, ...] = ()
    gpu_mode: int = GpuMode.WHOLE
    gpu_memory: int = 0  # MiB of one GPU
    mig: tuple[int, ...] = ()  # of each profile of MIG_AXES
    is_closed_to_mig: bool = False
    path: tuple[str, ...] = ()  # its values of the labels of the topology; () is in no domain
    # By slot: thousandths of a shared GPU that stay in use, and thousandths that are releasing.
    # Pods that are added with slots come on top.
    shares: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SnapshotQueue:
    """A queue; of CPU and memory it may have what it wants."""

    name: str
    parent: str = ""
    quota: float = 0
    limit: float = UNBOUND
    weight: float = 1
    priority: int = 100
    allocated: float = 0
    non_preemptible: float = 0
    preempt_min_runtime_s: int = NONE
    reclaim_min_runtime_s: int = NONE
    is_quota_only: bool = False
    is_strict: bool = False
    is_reserving: bool = False


def share_signature(
    share: float, devices: int = 1, *, cpu: float = 1, **more: Any
) -> SchedulingSignature:
    """Return the signature of a pod that requests shares of GPUs."""
    thousandths = round(share * 1000)
    amounts = (round(cpu * 1000), GIB, 1, 0)
    counted = (amounts[0], GIB, (thousandths + 5) // 10 * 10 * devices)
    return SchedulingSignature(
        request=amounts,
        queue_request=counted,
        has_gpu=True,
        shared_devices=devices,
        device_share=thousandths,
        **more,
    )


def mig_signature(
    profile: str, number: int = 1, *, cpu: float = 1, **more: Any
) -> SchedulingSignature:
    """Return the signature of a pod that requests a MIG profile."""
    amounts = (round(cpu * 1000), GIB, 1, 0)
    profiles = (number if one == profile else 0 for one in _MIG_PROFILES)
    return SchedulingSignature(
        request=(*amounts, *profiles),
        queue_request=(amounts[0], GIB, 1000 * number * _MIG_PROFILES[profile]),
        has_gpu=True,
        requests_mig=True,
        **more,
    )


def signature(
    *, gpu: float = 0, cpu: float = 1, memory: float = 1, **more: Any
) -> SchedulingSignature:
    """Return the signature of a pod."""
    amounts = (round(cpu * 1000), round(memory * GIB), 1, round(gpu * 1000))
    counted = (amounts[0], amounts[1], amounts[3])
    return SchedulingSignature(request=amounts, queue_request=counted, has_gpu=gpu > 0, **more)


@dataclass
class Builder:
    """Collects what a snapshot is made of."""

    nodes: Sequence[SnapshotNode] = ()
    queues: Sequence[SnapshotQueue] = (SnapshotQueue("team", quota=UNBOUND),)
    signatures: list[SchedulingSignature] = field(default_factory=list)
    podgroups: list[PodGroupInfo] = field(default_factory=list)
    terminating: list[ReleasingAmount] = field(default_factory=list)
    _pods: list[tuple[int, int, int, int]] = field(default_factory=list)
    _slots: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by pod
    _known: dict[SchedulingSignature, int] = field(default_factory=dict)

    def signature_row(self, one: SchedulingSignature) -> int:
        """Return the row of a signature."""
        if one not in self._known:
            self._known[one] = len(self.signatures)
            self.signatures.append(one)
        return self._known[one]

    def memory_signature(self, mib: int, devices: int = 1) -> SchedulingSignature:
        """Return the signature of a pod that requests memory of GPUs, charged by these nodes."""
        shares = [-(-100 * mib // it.gpu_memory) * 10 for it in self.nodes if it.gpu_memory]
        most, least = (min(of(shares, default=1000), 1000) * devices for of in (max, min))
        one = share_signature(0, devices)
        return replace(
            one,
            device_memory=mib,
            queue_request=(*one.queue_request[:2], most),
            least_queue_request=(*one.queue_request[:2], least) if least != most else None,
        )

    def waiting_pods(self, number: int, one: SchedulingSignature) -> tuple[int, ...]:
        """Add waiting pods of the PodGroup that comes next."""
        row = self.signature_row(one)
        first = len(self._pods)
        self._pods += [(row, NONE, len(self.podgroups), PodState.PENDING)] * number
        return tuple(range(first, first + number))

    def uniform_podgroup(self, number: int, one: SchedulingSignature, **more: Any) -> int:
        """Add a PodGroup of equal pods, all of them needed unless *minimum* says otherwise."""
        minimum = more.pop("minimum", number)
        there = more.pop("there", 0)
        podset = PodSet("default", minimum, self.waiting_pods(number, one), running=there)
        return self.podgroup(podset, **more)

    def pod_on_node(self, node: int, row: int, slots: tuple[int, ...] = ()) -> None:
        """Add a pod on a node, of the PodGroup that comes next; one with shares has slots."""
        if slots:
            self._slots[len(self._pods)] = slots
        self._pods.append((row, node, len(self.podgroups), PodState.RUNNING))

    def running_podgroup(
        self,
        nodes: Sequence[int],
        one: SchedulingSignature,
        *,
        minimum: int = -1,
        slots: Sequence[tuple[int, ...]] = (),
        **more: Any,
    ) -> int:
        """Add a PodGroup of pods on these nodes, all needed unless *minimum* says otherwise.

        Pods with shares of GPUs have *slots* there, an entry each.
        """
        row, first = self.signature_row(one), len(self._pods)
        for node, slots_of_pod in zip(nodes, slots or [()] * len(nodes), strict=True):
            self.pod_on_node(node, row, slots_of_pod)
        pods = tuple(range(first, first + len(nodes)))
        least = len(nodes) if minimum < 0 else minimum
        podset = PodSet(
            "default", least, running=len(nodes), running_pods=pods if least < len(nodes) else ()
        )
        return self.podgroup(podset, is_kept=True, **more)

    def podgroup(
        self,
        tree: SubGroupTree,
        *,
        queue: str = "",
        priority: int = 50,
        is_preemptible: bool = True,
        prefilter_failure: PreFilterFailure | None = None,
        is_kept: bool = False,
        **more: Any,
    ) -> int:
        """Add a PodGroup; its pods have been added just before."""
        row = [it.name for it in self.queues].index(queue) if queue else len(self.queues) - 1
        name = f"unit-{len(self.podgroups)}"
        self.podgroups.append(
            PodGroupInfo(
                name, row, priority, is_preemptible, tree, prefilter_failure, is_kept, **more
            )
        )
        return len(self.podgroups) - 1

    def snapshot(self, **more: Any) -> Snapshot:
        """Return the snapshot."""
        has_mig = any(it.mig for it in self.nodes) or any(it.requests_mig for it in self.signatures)
        axes = MIG_AXES if has_mig else AXES
        signatures = tuple(_padded_signature(it, len(axes.names)) for it in self.signatures)
        nodes = _nodes(self.nodes, len(axes.names))
        idle, devices = nodes.idle.copy(), self._devices()
        for one, node, _, _ in self._pods:
            if node != NONE:
                idle[node] -= signatures[one].request
        for node, used, releasing in zip(
            devices.node, devices.used, devices.releasing, strict=True
        ):
            idle[node, axes.gpus[0]] -= 1000
            nodes.releasing[node, axes.gpus[0]] += 1000 * (releasing == used)
        nodes = replace(nodes, idle=idle)
        sums = nodes.allocatable[nodes.fault == 0].sum(axis=0) * axes.weights
        columns = np.array(self._pods, dtype=np.int32).reshape(-1, 4)
        table: dict[str, Any] = {
            "resources": axes,
            "nodes": nodes,
            "devices": devices,
            "pod_relations": _no_pod_affinity(len(self.nodes)),
            "queues": self._queues(),
            "signatures": signatures,
            "pods": SnapshotPods(
                columns[:, 0].copy(),
                columns[:, 1].copy(),
                columns[:, 2].copy(),
                columns[:, 3].astype(np.int8),
            ),
            "podgroups": tuple(self.podgroups),
            "departing": tuple(
                row for row, it in enumerate(self.podgroups) if it.departure is not None
            ),
            "total": (int(sums[0]), int(sums[1]), int(sums[3:].sum())),
            "now": 0,
            "topologies": _topologies(self.nodes),
        }
        return Snapshot(**{**table, **more})

    def _devices(self) -> SharedDevices:
        """Return the shared GPUs, and which of them running pods share."""
        shares: defaultdict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
        for node, it in enumerate(self.nodes):
            shares.update({(node, slot): amounts for slot, amounts in enumerate(it.shares)})
        for pod, slots in self._slots.items():
            one, node, _, _ = self._pods[pod]
            for slot in slots:
                stays, releasing = shares[node, slot]
                shares[node, slot] = stays + self.signatures[one].device_share, releasing
        rows = sorted(shares)
        assert all(slot == 0 or (node, slot - 1) in shares for node, slot in rows), "a gap"
        return SharedDevices(
            ids=tuple(f"gpu-{slot:03}" for _, slot in rows),
            node=np.array([node for node, _ in rows], dtype=np.int32),
            used=np.array([sum(shares[row]) for row in rows], dtype=np.int64),
            releasing=np.array([shares[row][1] for row in rows], dtype=np.int64),
            slots_of_pod=dict(self._slots),
        )

    def _queues(self) -> SnapshotQueues:
        """Return the queues; what waits and what is there is requested, on all levels."""
        rows = {queue.name: i for i, queue in enumerate(self.queues)}
        parent = tuple(rows[q.parent] if q.parent else NONE for q in self.queues)
        requested = np.zeros((len(self.queues), 3), dtype=np.int64)
        for row, queue in enumerate(self.queues):
            requested[row, 2] += round(queue.allocated * 1000)
        allocated = _gpu_amounts([queue.allocated for queue in self.queues])
        fixed = _gpu_amounts([queue.non_preemptible for queue in self.queues])
        for one, node, podgroup, _ in self._pods:
            queue_row, counted = self.podgroups[podgroup].queue, self.signatures[one].queue_request
            while queue_row != NONE:
                requested[queue_row] += counted
                if node != NONE:
                    allocated[queue_row] += counted
                if node != NONE and not self.podgroups[podgroup].is_preemptible:
                    fixed[queue_row] += counted
                queue_row = parent[queue_row]
        return SnapshotQueues(
            names=tuple(rows),
            parent=parent,
            priority=tuple(queue.priority for queue in self.queues),
            quota=_gpu_limits([queue.quota for queue in self.queues]),
            limit=_gpu_limits([queue.limit for queue in self.queues]),
            weight=np.array([[queue.weight] * 3 for queue in self.queues], dtype=np.float64),
            allocated=allocated,
            non_preemptible=fixed,
            requested=requested,
            preempt_min_s=tuple(queue.preempt_min_runtime_s for queue in self.queues),
            reclaim_min_s=tuple(queue.reclaim_min_runtime_s for queue in self.queues),
            is_quota_only=tuple(queue.is_quota_only for queue in self.queues),
            releasing=tuple(self.terminating),
            strict=frozenset(rows[queue.name] for queue in self.queues if queue.is_strict),
            reserving=frozenset(rows[queue.name] for queue in self.queues if queue.is_reserving),
        )


def _topologies(nodes: Sequence[SnapshotNode]) -> tuple[SnapshotTopology, ...]:
    """Return the one topology of the nodes, if any node is in a domain."""
    depth = max((len(it.path) for it in nodes), default=0)
    domains = np.full((depth, len(nodes)), NONE, dtype=np.int32)
    paths = []
    for level in range(depth):
        known = sorted({it.path[: level + 1] for it in nodes if it.path})
        paths.append(tuple(known))
        for row, it in enumerate(nodes):
            if it.path:
                domains[level, row] = known.index(it.path[: level + 1])
    levels = ("zone", "block", "rack")[3 - depth :] if depth else ()
    return (SnapshotTopology("dc", levels, domains, tuple(paths)),) if depth else ()


def _gpu_limits(gpus: Sequence[float]) -> np.ndarray[Any, Any]:
    rows = [(UNBOUND, UNBOUND, UNBOUND if n == UNBOUND else round(n * 1000)) for n in gpus]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _gpu_amounts(gpus: Sequence[float]) -> np.ndarray[Any, Any]:
    return np.array([(0, 0, round(n * 1000)) for n in gpus], dtype=np.int64).reshape(-1, 3)


def _padded_signature(one: SchedulingSignature, width: int) -> SchedulingSignature:
    missing = width - len(one.request)
    return replace(one, request=(*one.request, *[0] * missing)) if missing else one


def _nodes(nodes: Sequence[SnapshotNode], width: int) -> SnapshotNodes:
    def amounts(rows: list[tuple[int, ...]]) -> Ints:
        padded = [_padded(row, width, 0) for row in rows]
        return np.array(padded, dtype=np.int64).reshape(-1, width)

    allocatable = amounts(
        [(n.cpu * 1000, n.memory * GIB, n.pods, n.gpu * 1000, *n.mig) for n in nodes]
    )
    taken = amounts([(n.used_cpu * 1000, 0, 0, n.used_gpu * 1000) for n in nodes])
    releasing = amounts([(0, 0, 0, n.releasing_gpu * 1000) for n in nodes])
    keys = max((len(n.labels) for n in nodes), default=0)
    taints = max((len(n.taints) for n in nodes), default=0)
    return SnapshotNodes(
        names=tuple(f"node-{i}" for i in range(len(nodes))),
        allocatable=allocatable,
        idle=allocatable - taken - releasing,
        releasing=releasing,
        fault=np.array([n.prefilter_fault for n in nodes], dtype=np.int8),
        labels=np.array([_padded(n.labels, keys, NONE) for n in nodes], np.int32).reshape(
            len(nodes), keys
        ),
        taints=np.array([_padded(n.taints, taints, 0) for n in nodes], np.bool_).reshape(
            len(nodes), taints
        ),
        ports=np.zeros((len(nodes), 8), dtype=np.int32),
        key_names=tuple(f"key-{i}" for i in range(keys)),
        taint_names=tuple(f"taint-{i}" for i in range(taints)),
        gpu_mode=np.array([n.gpu_mode for n in nodes], dtype=np.int8),
        gpu_memory=np.array([n.gpu_memory for n in nodes], dtype=np.int64),
        closed_to_mig=np.array([n.is_closed_to_mig for n in nodes], dtype=np.bool_),
    )


def _padded(values: Sequence[int], length: int, filler: int) -> list[int]:
    return [*values, *[filler] * (length - len(values))]


def _no_pod_affinity(nodes: int) -> PodRelations:
    none = np.zeros((0, nodes), dtype=np.int32)
    return PodRelations(none, (), none, (), ())
