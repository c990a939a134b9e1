"""What lies on each node, and what that leaves: looked at again where something has changed."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.core.model import Ints, NodeFault, PodRelations, ResourceKind, SnapshotNodes
from scheduler.core.sums import SUM_MOST, sums, total
from scheduler.state.charges import PodsPerNode, pods_per_node, with_reserved
from scheduler.state.codes import Encoding
from scheduler.state.devices import SharedGpuTable
from scheduler.state.nodes import NodeTable
from scheduler.state.roll import PodTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NodeOccupancy"]


class NodeOccupancy:
    """Tables by node, in the rows of the codes for which they were made."""

    def __init__(self, encoding: Encoding, nodes: NodeTable, pod_table: PodTable) -> None:
        self._encoding: Final = encoding
        self._nodes: Final = nodes
        self._pod_table: Final = pod_table
        size, width = len(nodes), len(encoding.requests.columns.names)
        affinity = encoding.affinity
        self._allocatable: Final[Ints] = nodes.allocatable(encoding.requests.columns, range(size))
        self._used: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._releasing: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._foreign: Final[Ints] = np.zeros((size, len(ResourceKind)), dtype=np.int64)
        self._ports: Final = np.zeros((size, len(encoding.host_ports.ports)), dtype=np.int32)
        self._selector_counts: Final = np.zeros((len(affinity.selectors), size), dtype=np.int32)
        self._anti_affinity_counts: Final = np.zeros((len(affinity.terms), size), dtype=np.int32)
        self._labels: NDArray[np.int32] = encoding.labels.table()
        self.shared_gpus: Final = SharedGpuTable(pod_table, encoding.requests, nodes)

    def read_capacity(self, rows: Iterable[int]) -> None:
        """Take what some nodes have now."""
        known = list(rows)
        if known:
            self._allocatable[known] = self._nodes.allocatable(
                self._encoding.requests.columns, known
            )

    def read(self, rows: Iterable[int], reserved: Mapping[tuple[int, int], int]) -> None:
        """Look again at what lies on some nodes; *held* are slots, by kin and node."""
        chosen = np.array(sorted(rows), dtype=np.int64)
        is_selected = np.zeros(len(self._nodes) + 1, dtype=np.bool_)
        is_selected[chosen] = True
        on = pods_per_node(self._pod_table, is_selected)
        reserved_counts = {pair: count for pair, count in reserved.items() if is_selected[pair[1]]}
        size = len(self._nodes)
        with_reservations = with_reserved(on, reserved_counts, size + 1)
        self._charge(chosen, on, with_reservations)
        self.shared_gpus.read(chosen.tolist(), is_selected)
        self.shared_gpus.charge(chosen.tolist(), self._allocatable, self._used, self._releasing)
        counts, holders = self._encoding.affinity.count_pods(with_reservations, size)
        self._selector_counts[:, chosen], self._anti_affinity_counts[:, chosen] = (
            counts[:, chosen],
            holders[:, chosen],
        )
        taken = self._encoding.host_ports.count_pods(
            with_reservations, self._pod_table.class_table, size
        )
        self._ports[chosen] = taken[chosen]

    def table(self) -> SnapshotNodes:
        """Return the nodes less what is on them: pods, shared devices, slots."""
        encoding, nodes = self._encoding, self._nodes
        if self._labels.shape[1] != len(encoding.labels.key_names):
            self._labels = encoding.labels.table()
        return SnapshotNodes(
            names=nodes.names,
            allocatable=self._allocatable.copy(),
            idle=self._allocatable - self._used,
            releasing=self._releasing.copy(),
            fault=nodes.faults.copy(),
            labels=self._labels,
            taints=encoding.taints.table,
            ports=self._ports.copy(),
            key_names=encoding.labels.key_names,
            taint_names=encoding.taints.names,
        )

    def pod_relations(self, placed: tuple[tuple[int, int], ...]) -> PodRelations:
        """Return who lies where; *placed* are the node and the users of each shared claim."""
        return PodRelations(
            selector_counts=self._selector_counts.copy(),
            anti_affinity_terms=self._encoding.affinity.terms,
            anti_affinity_counts=self._anti_affinity_counts.copy(),
            claim_node=tuple(node for node, _ in placed),
            claim_users=tuple(users for _, users in placed),
        )

    def total(self) -> tuple[int, int, int]:
        """Return what usable nodes have, less what pods of other schedulers have there."""
        usable = self._nodes.faults == NodeFault.NONE
        whole = self._encoding.requests.columns.queue_capacity(self._allocatable[usable])
        taken = self._foreign[usable]
        cpu, memory, gpu = (
            min(max(total(whole[:, kind]) - total(taken[:, kind]), 0), SUM_MOST)
            for kind in ResourceKind
        )
        return cpu, memory, gpu

    def _charge(self, rows: Ints, on: PodsPerNode, with_reservations: PodsPerNode) -> None:
        """Charge pods and, *beside* them, slots to their nodes; what is released is used as well.

        On a node that is charged with more than can be counted nothing is released.
        """
        requests, is_foreign = self._encoding.requests, self._pod_table.class_table.is_foreign

        def charged(amounts: Ints, pods: PodsPerNode, pod_counts: Ints) -> Ints:
            some = pod_counts > 0
            at = np.searchsorted(rows, pods.node[some])
            return sums(at, amounts[pods.class_number[some]], pod_counts[some], len(rows))

        used = charged(requests.request, with_reservations, with_reservations.pod_counts)
        self._used[rows] = used
        releasing = charged(requests.request, on, on.releasing)
        self._releasing[rows] = np.where(used < SUM_MOST, releasing, 0)
        foreign = np.where(is_foreign[on.class_number], on.pod_counts, 0)
        self._foreign[rows] = charged(requests.queue_request, on, foreign)
