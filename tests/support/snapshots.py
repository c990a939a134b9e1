"""Snapshots for tests and benchmarks: each builder states only what differs from the ordinary.

GPUs and CPUs are whole here, memory is in GiB; -1 stays -1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from scheduler.core.model import (
    NONE,
    UNBOUND,
    Axes,
    Bar,
    Devices,
    Going,
    Leaf,
    Neighbours,
    Nodes,
    Pods,
    PodState,
    Queues,
    Shape,
    Snapshot,
    Tree,
    Unit,
)

__all__ = ["AXES", "Builder", "Node", "Queue", "shape"]

GIB: Final = 2**30
AXES: Final = Axes(
    names=("cpu", "memory", "pods", "nvidia.com/gpu"),
    kinds=(0, 1, NONE, 2),
    weights=(1, 1, 0, 1),
    cpu=0,
    pods=2,
    gpus=(3,),
)


@dataclass(frozen=True)
class Node:
    """A node, and what of it is taken."""

    gpu: int = 8
    cpu: int = 64
    memory: int = 512
    pods: int = 110
    used_gpu: int = 0
    used_cpu: int = 0
    releasing_gpu: int = 0
    fault: int = 0
    labels: tuple[int, ...] = ()
    taints: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Queue:
    """A queue; of CPU and memory it may have what it wants."""

    name: str
    parent: str = ""
    quota: float = 0
    limit: float = UNBOUND
    weight: float = 1
    priority: int = 100
    allocated: float = 0
    fixed: float = 0
    preempt_min_s: int = NONE
    reclaim_min_s: int = NONE
    is_quota_only: bool = False


def shape(*, gpu: float = 0, cpu: float = 1, memory: float = 1, **more: Any) -> Shape:
    """Return the shape of a pod."""
    amounts = (round(cpu * 1000), round(memory * GIB), 1, round(gpu * 1000))
    counted = (amounts[0], amounts[1], amounts[3])
    return Shape(request=amounts, counted=counted, has_gpu=gpu > 0, **more)


@dataclass
class Builder:
    """Collects what a snapshot is made of."""

    nodes: Sequence[Node] = ()
    queues: Sequence[Queue] = (Queue("team", quota=UNBOUND),)
    shapes: list[Shape] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    going: list[Going] = field(default_factory=list)
    _pods: list[tuple[int, int, int, int]] = field(default_factory=list)
    _known: dict[Shape, int] = field(default_factory=dict)

    def shape(self, one: Shape) -> int:
        """Return the row of a shape."""
        if one not in self._known:
            self._known[one] = len(self.shapes)
            self.shapes.append(one)
        return self._known[one]

    def pods(self, number: int, one: Shape) -> tuple[int, ...]:
        """Add waiting pods of the unit that comes next."""
        row = self.shape(one)
        first = len(self._pods)
        self._pods += [(row, NONE, len(self.units), PodState.WAITING)] * number
        return tuple(range(first, first + number))

    def gang(self, number: int, one: Shape, **more: Any) -> int:
        """Add a unit of equal pods, all of them needed unless *minimum* says otherwise."""
        minimum = more.pop("minimum", number)
        there = more.pop("there", 0)
        leaf = Leaf("default", minimum, self.pods(number, one), there=there)
        return self.unit(leaf, **more)

    def lying(self, node: int, row: int) -> None:
        """Add a pod on a node, of the unit that comes next."""
        self._pods.append((row, node, len(self.units), PodState.THERE))

    def runs(self, nodes: Sequence[int], one: Shape, *, minimum: int = -1, **more: Any) -> int:
        """Add a unit whose pods are on these nodes, all of them needed unless it says otherwise."""
        row, first = self.shape(one), len(self._pods)
        for node in nodes:
            self.lying(node, row)
        pods = tuple(range(first, first + len(nodes)))
        least = len(nodes) if minimum < 0 else minimum
        leaf = Leaf("default", least, there=len(nodes), pods=pods if least < len(nodes) else ())
        return self.unit(leaf, is_kept=True, **more)

    def unit(
        self,
        tree: Tree,
        *,
        queue: str = "",
        priority: int = 50,
        is_preemptible: bool = True,
        bar: Bar | None = None,
        is_kept: bool = False,
        **more: Any,
    ) -> int:
        """Add a unit; its pods have been added just before."""
        row = [it.name for it in self.queues].index(queue) if queue else len(self.queues) - 1
        name = f"unit-{len(self.units)}"
        self.units.append(Unit(name, row, priority, is_preemptible, tree, bar, is_kept, **more))
        return len(self.units) - 1

    def snapshot(self, **more: Any) -> Snapshot:
        """Return the snapshot."""
        nodes = _nodes(self.nodes)
        idle = nodes.idle.copy()
        for one, node, _, _ in self._pods:
            if node != NONE:
                idle[node] -= self.shapes[one].request
        nodes = replace(nodes, idle=idle)
        sums = nodes.allocatable[nodes.fault == 0].sum(axis=0).tolist()
        columns = np.array(self._pods, dtype=np.int32).reshape(-1, 4)
        none = np.zeros(0, dtype=np.int64)
        table: dict[str, Any] = {
            "axes": AXES,
            "nodes": nodes,
            "devices": Devices((), none.astype(np.int32), none, none, none),
            "neighbours": _no_neighbours(len(self.nodes)),
            "queues": self._queues(),
            "shapes": tuple(self.shapes),
            "pods": Pods(
                columns[:, 0].copy(),
                columns[:, 1].copy(),
                columns[:, 2].copy(),
                columns[:, 3].astype(np.int8),
            ),
            "units": tuple(self.units),
            "total": (sums[0], sums[1], sums[3]),
            "now": 0,
        }
        return Snapshot(**{**table, **more})

    def _queues(self) -> Queues:
        """Return the queues; what waits and what is there is requested, on all levels."""
        rows = {queue.name: i for i, queue in enumerate(self.queues)}
        parent = tuple(rows[q.parent] if q.parent else NONE for q in self.queues)
        requested = np.zeros((len(self.queues), 3), dtype=np.int64)
        for row, queue in enumerate(self.queues):
            requested[row, 2] += round(queue.allocated * 1000)
        allocated = _gpus([queue.allocated for queue in self.queues])
        fixed = _gpus([queue.fixed for queue in self.queues])
        for one, node, unit, _ in self._pods:
            queue_row, counted = self.units[unit].queue, self.shapes[one].counted
            while queue_row != NONE:
                requested[queue_row] += counted
                if node != NONE:
                    allocated[queue_row] += counted
                if node != NONE and not self.units[unit].is_preemptible:
                    fixed[queue_row] += counted
                queue_row = parent[queue_row]
        return Queues(
            names=tuple(rows),
            parent=parent,
            priority=tuple(queue.priority for queue in self.queues),
            quota=_bounds([queue.quota for queue in self.queues]),
            limit=_bounds([queue.limit for queue in self.queues]),
            weight=np.array([[queue.weight] * 3 for queue in self.queues], dtype=np.float64),
            allocated=allocated,
            fixed=fixed,
            requested=requested,
            preempt_min_s=tuple(queue.preempt_min_s for queue in self.queues),
            reclaim_min_s=tuple(queue.reclaim_min_s for queue in self.queues),
            is_quota_only=tuple(queue.is_quota_only for queue in self.queues),
            going=tuple(self.going),
        )


def _bounds(gpus: Sequence[float]) -> np.ndarray[Any, Any]:
    rows = [(UNBOUND, UNBOUND, UNBOUND if n == UNBOUND else round(n * 1000)) for n in gpus]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _gpus(gpus: Sequence[float]) -> np.ndarray[Any, Any]:
    return np.array([(0, 0, round(n * 1000)) for n in gpus], dtype=np.int64).reshape(-1, 3)


def _nodes(nodes: Sequence[Node]) -> Nodes:
    whole = [(n.cpu * 1000, n.memory * GIB, n.pods, n.gpu * 1000) for n in nodes]
    taken = [(n.used_cpu * 1000, 0, 0, n.used_gpu * 1000) for n in nodes]
    going = [(0, 0, 0, n.releasing_gpu * 1000) for n in nodes]
    allocatable = np.array(whole, dtype=np.int64).reshape(-1, 4)
    releasing = np.array(going, dtype=np.int64).reshape(-1, 4)
    keys = max((len(n.labels) for n in nodes), default=0)
    taints = max((len(n.taints) for n in nodes), default=0)
    return Nodes(
        names=tuple(f"node-{i}" for i in range(len(nodes))),
        allocatable=allocatable,
        idle=allocatable - np.array(taken, dtype=np.int64).reshape(-1, 4) - releasing,
        releasing=releasing,
        fault=np.array([n.fault for n in nodes], dtype=np.int8),
        labels=np.array([_padded(n.labels, keys, NONE) for n in nodes], np.int32).reshape(
            len(nodes), keys
        ),
        taints=np.array([_padded(n.taints, taints, 0) for n in nodes], np.bool_).reshape(
            len(nodes), taints
        ),
        ports=np.zeros((len(nodes), 8), dtype=np.int32),
        key_names=tuple(f"key-{i}" for i in range(keys)),
        taint_names=tuple(f"taint-{i}" for i in range(taints)),
    )


def _padded(values: Sequence[int], length: int, filler: int) -> list[int]:
    return [*values, *[filler] * (length - len(values))]


def _no_neighbours(nodes: int) -> Neighbours:
    none = np.zeros((0, nodes), dtype=np.int32)
    return Neighbours(none, (), none, (), ())
