"""What everybody's rows are written in: columns, labels, selectors, ports, claims, shapes.

They last as long as what they are made of, their *basis*. A resource that no node had, a new
selector, port or shared claim, or another name, label or taint of a node, makes all of them new.
"""

from typing import Final

import numpy as np

from scheduler.core.model import NONE, Ints
from scheduler.state.amounts import ResourceEncoder
from scheduler.state.asks import PodRequests
from scheduler.state.basis import EncodingKey
from scheduler.state.claims import VolumeClaims
from scheduler.state.cluster import Cluster
from scheduler.state.kins import PodClassTable
from scheduler.state.labels import NodeLabels
from scheduler.state.neighbours import AffinityTable
from scheduler.state.nodes import NodeTable, Taints
from scheduler.state.ports import HostPortTable
from scheduler.state.selectors import NamespaceLabels
from scheduler.state.shapes import ConstraintTables, SignatureTable
from scheduler.state.sharing import least_memory_mib
from trainer_kai.api.meta import Key

__all__ = ["Encoding"]


class Encoding:
    """The rows, made as they are asked for."""

    def __init__(
        self,
        encoding_key: EncodingKey,
        nodes: NodeTable,
        cluster: Cluster,
        class_table: PodClassTable,
        gpus: tuple[str, ...],
    ) -> None:
        self.key: Final = encoding_key
        self._class_table: Final = class_table
        self._serial: Ints = np.zeros(0, dtype=np.int64)  # who is known, by number of kin
        self.labels: Final = NodeLabels(nodes.nodes)
        self.taints: Final = Taints(nodes.nodes)
        columns, memory = (
            ResourceEncoder(encoding_key.resources, gpus),
            least_memory_mib(nodes.nodes),
        )
        self.requests: Final = PodRequests(columns, gpus, memory)
        namespaces = NamespaceLabels(cluster.namespaces, class_table.namespaces)
        self.affinity: Final = AffinityTable(class_table, self.labels, namespaces)
        self.affinity.read(class_table.numbers(encoding_key.considered.term_classes))
        self.host_ports: Final = HostPortTable(encoding_key.considered.ports)
        self.claims_generation: tuple[int, tuple[Key, ...]] = (NONE, ())
        self.claims = VolumeClaims(cluster, (), self.labels)
        constraint_tables = ConstraintTables(self.affinity, self.host_ports, self.claims)
        self.signatures: Final = SignatureTable(
            (self.labels, self.taints), self.requests, constraint_tables, class_table
        )
        self.read_classes()

    def read_claims(self, cluster: Cluster, version: int, shared: tuple[Key, ...]) -> None:
        """Take claims, and which of them are shared."""
        self.claims_generation = version, shared
        self.claims = self.signatures.claims = VolumeClaims(cluster, shared, self.labels)
        self.signatures.forget(np.flatnonzero(self._class_table.has_volumes), 0)

    def forget(self, numbers: list[int]) -> None:
        """Forget what was written of kin that are left out now, or are no longer."""
        self.signatures.forget(np.array(numbers, dtype=np.int64), 0)

    def read_classes(self) -> None:
        """Take kin that are new; of who had their numbers nothing is known any more."""
        class_table, size = self._class_table, len(self._class_table.serial)
        if size > len(self._serial):
            known = self._serial
            self._serial = np.full(size, NONE, dtype=np.int64)
            self._serial[: len(known)] = known
        new = np.flatnonzero(class_table.serial != self._serial)
        self._serial[new] = class_table.serial[new]
        numbers = [number for number in new.tolist() if class_table.is_known(number)]
        self.signatures.forget(new, size)
        for number in numbers:
            self.affinity.forget(number)
            self.claims.forget(number)
        self.requests.read(numbers, class_table)
