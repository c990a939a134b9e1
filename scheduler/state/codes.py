"""What everybody's rows are written in: columns, labels, selectors, ports, claims, shapes.

They last as long as what they are made of, their *basis*. A resource that no node had, a new
selector, port or shared claim, or another name, label or taint of a node, makes all of them new.
"""

from typing import Final

import numpy as np

from scheduler.core.model import NONE, Ints
from scheduler.state.amounts import Columns
from scheduler.state.asks import Asks
from scheduler.state.basis import Basis
from scheduler.state.claims import Claims
from scheduler.state.cluster import Cluster
from scheduler.state.kins import Kins
from scheduler.state.labels import NodeLabels
from scheduler.state.neighbours import NeighbourRows
from scheduler.state.nodes import NodeRows, Taints
from scheduler.state.ports import Ports
from scheduler.state.selectors import Namespaces
from scheduler.state.shapes import Shapes, Ties
from scheduler.state.sharing import least_memory_mib
from trainer_kai.api.meta import Key

__all__ = ["Codes"]


class Codes:
    """The rows, made as they are asked for."""

    def __init__(
        self, basis: Basis, nodes: NodeRows, cluster: Cluster, kins: Kins, gpus: tuple[str, ...]
    ) -> None:
        self.basis: Final = basis
        self._kins: Final = kins
        self._serial: Ints = np.zeros(0, dtype=np.int64)  # who is known, by number of kin
        self.labels: Final = NodeLabels(nodes.nodes)
        self.taints: Final = Taints(nodes.nodes)
        columns, memory = Columns(basis.resources, gpus), least_memory_mib(nodes.nodes)
        self.asks: Final = Asks(columns, gpus, memory)
        namespaces = Namespaces(cluster.namespaces, kins.namespaces)
        self.neighbours: Final = NeighbourRows(kins, self.labels, namespaces)
        self.neighbours.read(kins.numbers(basis.heard.speakers))
        self.ports: Final = Ports(basis.heard.ports)
        self.known_claims: tuple[int, tuple[Key, ...]] = (NONE, ())
        self.claims = Claims(cluster, (), self.labels)
        ties = Ties(self.neighbours, self.ports, self.claims)
        self.shapes: Final = Shapes((self.labels, self.taints), self.asks, ties, kins)
        self.read_kins()

    def read_claims(self, cluster: Cluster, version: int, shared: tuple[Key, ...]) -> None:
        """Take claims, and which of them are shared."""
        self.known_claims = version, shared
        self.claims = self.shapes.claims = Claims(cluster, shared, self.labels)
        self.shapes.forget(np.flatnonzero(self._kins.has_volumes), 0)

    def forget(self, numbers: list[int]) -> None:
        """Forget what was written of kin that are left out now, or are no longer."""
        self.shapes.forget(np.array(numbers, dtype=np.int64), 0)

    def read_kins(self) -> None:
        """Take kin that are new; of who had their numbers nothing is known any more."""
        kins, size = self._kins, len(self._kins.serial)
        if size > len(self._serial):
            known = self._serial
            self._serial = np.full(size, NONE, dtype=np.int64)
            self._serial[: len(known)] = known
        new = np.flatnonzero(kins.serial != self._serial)
        self._serial[new] = kins.serial[new]
        numbers = [number for number in new.tolist() if kins.is_known(number)]
        self.shapes.forget(new, size)
        for number in numbers:
            self.neighbours.forget(number)
            self.claims.forget(number)
        self.asks.read(numbers, kins)
