"""Nodes as rows, and the columns of the resources that nodes have and pods request."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from scheduler.core.model.resources import (
    MAX_QUEUE_REQUEST,
    MAX_REQUEST,
    NONE,
    Bools,
    Ints,
    ResourceColumns,
    ResourceKind,
)
from scheduler.core.model.snapshot import GpuMode, NodeFault
from scheduler.state.inputs import ObjectWarning
from trainer_kai.api.cluster_kinds import Node, Taint
from trainer_kai.api.gpu_requests import gpu_memory_mib as labelled_memory_mib
from trainer_kai.api.gpu_requests import mig_slices
from trainer_kai.api.matching import tolerates
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    CPU,
    GPU_MEMORY_MIB,
    MEMORY,
    MIG_ENABLED,
    MIG_PREFIX,
    MIG_STRATEGY,
    PODS,
    UNSCHEDULABLE,
)
from trainer_kai.api.pod import Toleration
from trainer_kai.api.quantity import Quantity, QuantityError, milli, whole
from trainer_kai.policy.leaving_nodes import DEFAULT_SIGNS, LeavingSign, LeavingSigns
from trainer_kai.policy.pods.requests import ResourceAmounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIXED_COLUMNS: Final = (CPU, MEMORY, PODS)
_BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})  # as Go reads a bool
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})
_MIG_STRATEGIES: Final = {"single": GpuMode.MIG_SINGLE, "mixed": GpuMode.MIG_MIXED}
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
OWN_CONDITIONS: Final = ("Ready", *_PRESSURES, "NetworkUnavailable")  # that Kubernetes writes

# Resources that no node has, and the requested amount of each.
UnknownResources: TypeAlias = tuple[tuple[str, int], ...]


class ResourceEncoder:
    """The resources of nodes: CPU, memory, pods, then the others by name."""

    def __init__(
        self, names: Iterable[str], gpus: Sequence[str], replicas: Mapping[str, int]
    ) -> None:
        """Count whole *gpus*, and *replicas* of GPUs, each as so many thousandths of one."""
        self.gpus: Final = frozenset(gpus)
        self._replicas: Final = replicas
        self.names: Final = (*_FIXED_COLUMNS, *sorted(set(names) - {*_FIXED_COLUMNS}))
        self._column_of: Final = {name: column for column, name in enumerate(self.names)}
        self._in_thousandths: Final = frozenset({CPU, *gpus})  # resources counted in thousandths
        kinds = [_queue_resource(name, gpus, replicas) for name in self.names]
        self.resource_columns: Final = ResourceColumns(
            names=self.names,
            kinds=tuple(kind for kind, _ in kinds),
            weights=tuple(weight for _, weight in kinds),
            cpu=0,
            pods=2,
            gpus=tuple(self._column_of[name] for name in gpus if name in self._column_of),
        )
        weighted = np.zeros((len(self.names), len(ResourceKind)), dtype=np.int64)
        for column, (kind, weight) in enumerate(kinds):
            if kind != NONE:
                weighted[column, kind] = weight
        self._weighted: Final[Ints] = weighted  # [resource, kind]
        self._weights: Final[Ints] = np.maximum(weighted.sum(axis=1), 1)

    def request(self, amounts: ResourceAmounts) -> list[int]:
        """Return the request of a pod as a row, with 1 for pods; *amounts* are in thousandths."""
        row = [0] * len(self.names)
        for name, thousandths in amounts.items():
            column = self._column_of.get(name)
            if column is not None and thousandths > 0:
                units = thousandths if name in self._in_thousandths else -(-thousandths // 1000)
                row[column] = min(units, MAX_REQUEST)
        row[2] = 1
        return row

    def unknown_resources(self, amounts: ResourceAmounts) -> UnknownResources:
        return tuple(
            (name, min(-(-amounts[name] // 1000), MAX_REQUEST))
            for name in sorted(amounts)
            if amounts[name] > 0 and name not in self._column_of
        )

    def capacity(self, allocatable: Mapping[str, Quantity]) -> list[int]:
        """Return the allocatable resources of a node as a row; raise `QuantityError`."""
        row = [0] * len(self.names)
        for name, quantity in allocatable.items():
            units = milli(quantity) if name in self._in_thousandths else whole(quantity)
            column = self._column_of.get(name)
            if column is not None:
                row[column] = min(max(units, 0), MAX_REQUEST - 1)
        return row

    def queue_capacity(self, capacity: Ints) -> Ints:
        """Return the capacity of nodes as queues count it, [node, kind]; at most `MAX_REQUEST`.

        No resource alone counts for more than that, whatever its weight, so sums over thousands
        of nodes do not overflow.
        """
        return np.minimum(
            np.minimum(capacity, MAX_REQUEST // self._weights) @ self._weighted, MAX_REQUEST
        )

    def queue_request(self, amounts: ResourceAmounts) -> list[int]:
        """Return a request as queues count it, by kind, including resources that no node has."""
        row = [0] * len(ResourceKind)
        for name, thousandths in amounts.items():
            kind, weight = _queue_resource(name, self.gpus, self._replicas)
            if kind != NONE and thousandths > 0:
                units = thousandths if name in self._in_thousandths else -(-thousandths // 1000)
                row[kind] = min(
                    row[kind] + min(units, MAX_QUEUE_REQUEST) * weight, MAX_QUEUE_REQUEST
                )
        return row


def _queue_resource(
    name: str, gpus: Collection[str], replicas: Mapping[str, int]
) -> tuple[int, int]:
    if name == CPU:
        return ResourceKind.CPU, 1
    if name == MEMORY:
        return ResourceKind.MEMORY, 1
    if name in gpus:
        return ResourceKind.GPU, 1
    if name in replicas:
        return ResourceKind.GPU, replicas[name]
    if slices := mig_slices(name):
        return ResourceKind.GPU, slices * 1000
    return NONE, 0


class NodeTable:
    """The valid nodes, in the order of their names."""

    def __init__(self, signs: LeavingSigns = DEFAULT_SIGNS) -> None:
        self._signs: Final = signs
        self.leaving: dict[str, LeavingSign] = {}  # the nodes that leave, and why
        self.has_leaving_changed = False
        self.names: tuple[str, ...] = ()
        self.row_by_name: dict[str, int] = {}
        self.faults: NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self.gpu_mode: NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self.gpu_memory: Ints = np.zeros(0, dtype=np.int64)  # MiB of one GPU; 0: not known
        self.version = 0  # of the names, labels and taints
        self.nodes: list[Node] = []
        self._warnings: Final[dict[str, ObjectWarning]] = {}
        self._resources: Final[Counter[str]] = Counter()
        self.new_row_of_old: Ints | None = None  # [old row]; the last entry is for no node
        self.changed_rows: set[int] = set()  # rows with another capacity than before
        self._relabelled: set[str] = set()  # new nodes, and nodes with other labels than before
        self.has_faults_changed = False

    def __len__(self) -> int:
        return len(self.names)

    @property
    def warnings(self) -> list[ObjectWarning]:
        return [self._warnings[name] for name in sorted(self._warnings)]

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(self._resources)

    @property
    def relabelled_rows(self) -> list[int]:
        return sorted(map(self.row_of, self._relabelled))

    def read(self, changes: Mapping[str, Node | None]) -> None:
        """Apply changed nodes; None is a node that was deleted."""
        self.new_row_of_old, self.changed_rows, self.has_faults_changed = None, set(), False
        self._relabelled = set()
        self._note_leaving(changes)
        added: dict[str, Node] = {}
        removed: set[str] = set()
        for name, one in changes.items():
            node = self._valid_node(name, one)
            row = self.row_by_name.get(name)
            if node is None:
                removed.update(() if row is None else (name,))
            elif row is None:
                added[name] = node
                self._relabelled.add(name)
            else:
                self._change(row, node)
        if added or removed:
            self._renumber(added, removed)

    def row_of(self, name: str) -> int:
        return self.row_by_name.get(name, NONE)

    def is_ready(self, row: int) -> bool:
        """Say whether a node exists and is Ready, even if it takes no pods."""
        return row != NONE and _conditions(self.nodes[row]).get("Ready", "True") == "True"

    def allocatable(self, encoder: ResourceEncoder, rows: Sequence[int]) -> Ints:
        capacities = [encoder.capacity(self.nodes[row].status.allocatable) for row in rows]
        return np.array(capacities, dtype=np.int64).reshape(len(rows), len(encoder.names))

    def _note_leaving(self, changes: Mapping[str, Node | None]) -> None:
        before = self.leaving
        signs = {
            name: self._signs.of(it) if it is not None else None for name, it in changes.items()
        }
        self.leaving = {name: sign for name, sign in before.items() if name not in signs}
        self.leaving.update((name, sign) for name, sign in signs.items() if sign is not None)
        self.has_leaving_changed = before != self.leaving

    def _fault(self, node: Node) -> NodeFault:
        return NodeFault.LEAVING if node.metadata.name in self.leaving else node_fault(node)

    def _valid_node(self, name: str, node: Node | None) -> Node | None:
        self._warnings.pop(name, None)
        fault = None if node is None else _allocatable_fault(node)
        if fault is not None:
            self._warnings[name] = ObjectWarning(Key("", name), f"node {name}: {fault}")
            return None
        return node

    def _change(self, row: int, node: Node) -> None:
        before, self.nodes[row] = self.nodes[row], node
        fault = self._fault(node)
        if fault != self.faults[row]:
            self.faults[row] = fault
            self.has_faults_changed = True
        if _placement_facts(before) != _placement_facts(node):
            self.version += 1
        if before.metadata.labels != node.metadata.labels:
            self._relabelled.add(node.metadata.name)
        self.gpu_mode[row], self.gpu_memory[row] = gpu_mode(node), gpu_memory_mib(node)
        if before.status.allocatable != node.status.allocatable:
            self._count(before, -1)
            self._count(node, 1)
            self.changed_rows.add(row)

    def _renumber(self, added: Mapping[str, Node], removed: set[str]) -> None:
        for node in added.values():
            self._count(node, 1)
        for name in removed:
            self._count(self.nodes[self.row_by_name[name]], -1)
        before = self.names
        nodes = {**dict(zip(before, self.nodes, strict=True)), **added}
        self.names = tuple(sorted(nodes.keys() - removed))
        self.row_by_name = {name: row for row, name in enumerate(self.names)}
        self.nodes = [nodes[name] for name in self.names]
        self.faults = np.array([self._fault(node) for node in self.nodes], dtype=np.int8)
        self.gpu_mode = np.array([gpu_mode(node) for node in self.nodes], dtype=np.int8)
        self.gpu_memory = np.array([gpu_memory_mib(node) for node in self.nodes], dtype=np.int64)
        self.new_row_of_old = np.array([*map(self.row_of, before), NONE], dtype=np.int64)
        self.has_faults_changed = True
        self.version += 1

    def _count(self, node: Node, sign: int) -> None:
        for name in node.status.allocatable:
            self._resources[name] += sign
            if not self._resources[name]:
                del self._resources[name]


class Taints:
    """The taints that keep pods out; the taint of a cordoned node is left out: see its fault."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        known = {taint for node in nodes for taint in _blocking_taints(node)}
        self._known: Final = sorted(known, key=attrgetter("key", "value", "effect"))
        self.table: Final = self._table(nodes)
        self.names: Final = tuple(
            f"{it.key}={it.value}:{it.effect}" if it.value else f"{it.key}:{it.effect}"
            for it in self._known
        )

    def tolerated(self, tolerations: Sequence[Toleration]) -> frozenset[int]:
        return frozenset(
            column
            for column, taint in enumerate(self._known)
            if any(tolerates(toleration, taint) for toleration in tolerations)
        )

    def _table(self, nodes: Sequence[Node]) -> Bools:
        column_of = {taint: column for column, taint in enumerate(self._known)}
        table: Bools = np.zeros((len(nodes), len(column_of)), dtype=np.bool_)
        for row, node in enumerate(nodes):
            for taint in _blocking_taints(node):
                table[row, column_of[taint]] = True
        return table


def _placement_facts(node: Node) -> tuple[object, ...]:
    """Return the properties by which pods select nodes."""
    return node.metadata.name, node.metadata.labels, tuple(_blocking_taints(node))


def node_fault(node: Node) -> NodeFault:
    """Say why a node that stays takes no pods; an unknown condition counts as a bad one."""
    if node.spec.unschedulable:
        return NodeFault.CORDONED
    conditions = _conditions(node)
    if conditions.get("Ready", "True") != "True":
        return NodeFault.NOT_READY
    if any(conditions.get(name, "False") != "False" for name in _PRESSURES):
        return NodeFault.PRESSURE
    if conditions.get("NetworkUnavailable", "False") != "False":
        return NodeFault.NO_NETWORK
    return NodeFault.NONE


def gpu_memory_mib(node: Node) -> int:
    """Return the memory of one GPU of a node, from its label; 0 if it is not known."""
    return labelled_memory_mib(node.metadata.labels.get(GPU_MEMORY_MIB, ""))


def gpu_mode(node: Node) -> GpuMode:
    labels = node.metadata.labels
    enabled = labels.get(MIG_ENABLED, "")
    if enabled in _FALSE or not (enabled in _TRUE or _offers_mig(node)):
        return GpuMode.WHOLE
    return _MIG_STRATEGIES.get(labels.get(MIG_STRATEGY, ""), GpuMode.MIG)


def _offers_mig(node: Node) -> bool:
    allocatable = node.status.allocatable
    return any(name.startswith(MIG_PREFIX) and whole(allocatable[name]) > 0 for name in allocatable)


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


def _allocatable_fault(node: Node) -> str | None:
    for name, quantity in sorted(node.status.allocatable.items()):
        try:
            milli(quantity)
            whole(quantity)
        except QuantityError as error:
            return f"status.allocatable[{name}]: {error}"
    return None


def _blocking_taints(node: Node) -> Iterable[Taint]:
    for taint in node.spec.taints:
        is_cordon = taint.key == UNSCHEDULABLE and node.spec.unschedulable
        if taint.effect in _BLOCKING_EFFECTS and not is_cordon:
            yield taint
