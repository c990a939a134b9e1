"""Nodes as rows: what each has, what is wrong with it, and which taints keep pods out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from scheduler.core.model import NONE, Bools, Ints, NodeFault
from scheduler.state.amounts import Columns
from scheduler.state.labels import NodeLabels
from scheduler.state.terms import Stray
from trainer_kai.api.affinity import Toleration
from trainer_kai.api.meta import Key
from trainer_kai.api.names import UNSCHEDULABLE
from trainer_kai.api.node import Node, Taint
from trainer_kai.api.quantity import QuantityError, milli, whole

__all__ = ["NodeRows", "Taints", "fault_of"]

_KEEPING_OUT: Final = ("NoSchedule", "NoExecute")
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")


class NodeRows:
    """The nodes that can be read, in the order of their names."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.strays: Final[list[Stray]] = []
        readable = []
        for name in sorted(nodes):
            fault = _unreadable(nodes[name])
            if fault is None:
                readable.append(name)
            else:
                message = f"the node is left out: {fault}"
                self.strays.append(Stray(Key("", name), message))
        self.names: Final = tuple(readable)
        self.nodes: Final = tuple(nodes[name] for name in readable)
        self.row: Final = {name: row for row, name in enumerate(readable)}
        self.faults: Final = np.array([fault_of(node) for node in self.nodes], dtype=np.int8)
        self.labels: Final = NodeLabels(self.nodes)
        self.taints: Final = Taints(self.nodes)

    def __len__(self) -> int:
        return len(self.names)

    def row_of(self, name: str) -> int:
        """Return the row of a node, or NONE."""
        return self.row.get(name, NONE)

    def resources(self) -> set[str]:
        """Return the names of all that nodes have."""
        return {name for node in self.nodes for name in node.status.allocatable}

    def allocatable(self, columns: Columns) -> Ints:
        """Return what nodes have, [node, resource]."""
        rows = [columns.capacity(node.status.allocatable) for node in self.nodes]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(columns.names))


class Taints:
    """The taints that keep pods out; that a node is cordoned is said once, as its fault."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._known: Final = sorted(
            {(t.key, t.value, t.effect) for node in nodes for t in _counting(node)}
        )
        self.table: Final = self._table(nodes)
        self.names: Final = tuple(
            f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            for key, value, effect in self._known
        )

    def tolerated(self, tolerations: Iterable[Toleration]) -> frozenset[int]:
        """Return the taints that a pod puts up with."""
        tolerations = tuple(tolerations)
        return frozenset(
            column
            for column, taint in enumerate(self._known)
            if any(_tolerates(toleration, taint) for toleration in tolerations)
        )

    def _table(self, nodes: Sequence[Node]) -> Bools:
        at = {taint: column for column, taint in enumerate(self._known)}
        table: Bools = np.zeros((len(nodes), len(at)), dtype=np.bool_)
        for row, node in enumerate(nodes):
            for taint in _counting(node):
                table[row, at[taint.key, taint.value, taint.effect]] = True
        return table


def fault_of(node: Node) -> NodeFault:
    """Say why a node takes no pods; a condition that is unknown is as good as bad."""
    if node.spec.unschedulable:
        return NodeFault.CORDONED
    conditions = {condition.type: condition.status for condition in node.status.conditions}
    if conditions.get("Ready", "True") != "True":
        return NodeFault.NOT_READY
    if any(conditions.get(name, "False") != "False" for name in _PRESSURES):
        return NodeFault.PRESSURE
    if conditions.get("NetworkUnavailable", "False") != "False":
        return NodeFault.NO_NETWORK
    return NodeFault.NONE


def _unreadable(node: Node) -> str | None:
    for name, quantity in sorted(node.status.allocatable.items()):
        try:
            milli(quantity)
            whole(quantity)
        except QuantityError as error:
            return f"status.allocatable[{name}]: {error}"
    return None


def _counting(node: Node) -> Iterable[Taint]:
    for taint in node.spec.taints:
        is_cordon = taint.key == UNSCHEDULABLE and node.spec.unschedulable
        if taint.effect in _KEEPING_OUT and not is_cordon:
            yield taint


def _tolerates(toleration: Toleration, taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if toleration.effect not in {"", effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", key}
    is_equal = toleration.operator in {"", "Equal"} and toleration.value == value
    return is_equal and toleration.key == key
