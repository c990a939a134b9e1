"""What the pods on each node use, shared GPUs included, and what is idle; updated by node.

A GPU is shared where a reservation pod holds it, which is in a namespace of the GPU sharing
scheduler. Labels and annotations of other pods can be written by any user, and take nothing.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import NONE, SUM_MOST, Bools, Ints, ResourceKind, sums, total
from scheduler.core.model.snapshot import NodeFault, PodRelations, SharedDevices, SnapshotNodes
from scheduler.state.nodes.node_table import NodeTable
from scheduler.state.pods.pod_class import device_memory_mib
from scheduler.state.pods.pod_table import (
    RELEASING,
    PodsPerNode,
    PodTable,
    pods_per_node,
    with_reserved,
)
from scheduler.state.pods.requests import PodRequests
from scheduler.state.snapshot.signatures import Encoding
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import GPU_GROUP, GPU_GROUP_PREFIX

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NodeOccupancy",
    "SharedGpuTable",
]

_WHOLE_GPU: Final = 1000


class _SharedGpu(NamedTuple):
    """How much of a device is used, and how much of that is being released."""

    used: int
    releasing: int


class SharedGpuTable:
    """Shared devices in the order of their nodes, then of their ids."""

    def __init__(self, pod_table: PodTable, requests: PodRequests, nodes: NodeTable) -> None:
        self._pod_table: Final = pod_table
        self._requests: Final = requests
        self._nodes: Final = nodes
        self._by_node: Final[dict[int, dict[str, _SharedGpu]]] = {}
        self._gpus: Final = requests.encoder.resource_columns.gpus

    def read(self, rows: Iterable[int], is_selected: Bools) -> None:
        """Read the shared GPUs of some nodes again; *is_selected*, [node], is true of these."""
        for row in rows:
            self._by_node.pop(row, None)
        pod_table, nodes = self._pod_table, self._nodes
        reserved_gpus = self._reserved_gpus(is_selected)
        chosen = (
            is_selected[pod_table.node] & pod_table.class_table.shares_gpu[pod_table.class_number]
        )
        for pod_row in np.flatnonzero(chosen).tolist():
            row = int(pod_table.node[pod_row])
            gpu_sharing = self._requests.sharing[int(pod_table.class_number[pod_row])]
            amount = min(
                gpu_sharing.thousandths_of_device(device_memory_mib(nodes.nodes[row])), _WHOLE_GPU
            )
            releasing = amount if pod_table.state[pod_row] == RELEASING else 0
            for group in reserved_gpus.get(row, frozenset()).intersection(
                _named_gpus(pod_table.pod(pod_row).metadata)
            ):
                devices = self._by_node.setdefault(row, {})
                used, before = devices.get(group, _SharedGpu(0, 0))
                devices[group] = _SharedGpu(used + amount, before + releasing)

    def _reserved_gpus(self, is_selected: Bools) -> dict[int, set[str]]:
        """Return the devices of each node that reservation pods hold."""
        pod_table, found = self._pod_table, dict[int, set[str]]()
        for pod_row in np.flatnonzero(
            is_selected[pod_table.node]
            & pod_table.class_table.is_gpu_reservation[pod_table.class_number]
        ).tolist():
            named = _named_gpus(pod_table.pod(pod_row).metadata)
            found.setdefault(int(pod_table.node[pod_row]), set()).update(named)
        return found

    def table(self) -> SharedDevices:
        """Return the shared devices, a row each."""
        rows = [
            (row, group, self._by_node[row][group])
            for row in sorted(self._by_node)
            for group in sorted(self._by_node[row])
        ]
        return SharedDevices(
            ids=tuple(group for _, group, _ in rows),
            node=np.array([row for row, _, _ in rows], dtype=np.int32),
            used=np.array([device.used for _, _, device in rows], dtype=np.int64),
            releasing=np.array([device.releasing for _, _, device in rows], dtype=np.int64),
        )

    def charge(self, rows: Iterable[int], allocatable: Ints, used: Ints, releasing: Ints) -> None:
        """Charge each shared device to its node; it is releasing when all its pods are."""
        for row in rows:
            for device in self._by_node.get(row, {}).values():
                column = self._column(allocatable[row])
                if column != NONE:
                    used[row, column] += _WHOLE_GPU
                    if device.releasing >= device.used > 0:
                        releasing[row, column] += _WHOLE_GPU

    def _column(self, allocatable: Ints) -> int:
        """Return the resource column of the GPUs of a node, or NONE."""
        return next((column for column in self._gpus if allocatable[column] > 0), NONE)


def _named_gpus(meta: Meta) -> set[str]:
    """Return the devices that the labels of a pod name."""
    return {
        value
        for name, value in meta.labels.items()
        if name == GPU_GROUP or name.startswith(GPU_GROUP_PREFIX)
    }


class NodeOccupancy:
    """What is allocatable and used on each node, as arrays in the columns of one encoding."""

    def __init__(self, encoding: Encoding, nodes: NodeTable, pod_table: PodTable) -> None:
        self._encoding: Final = encoding
        self._nodes: Final = nodes
        self._pod_table: Final = pod_table
        size, width = len(nodes), len(encoding.requests.encoder.names)
        affinity = encoding.affinity
        self._allocatable: Final[Ints] = nodes.allocatable(encoding.requests.encoder, range(size))
        self._used: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._releasing: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._foreign: Final[Ints] = np.zeros((size, len(ResourceKind)), dtype=np.int64)
        self._ports: Final = np.zeros((size, len(encoding.host_ports.ports)), dtype=np.int32)
        self._selector_counts: Final = np.zeros((len(affinity.selectors), size), dtype=np.int32)
        self._anti_affinity_counts: Final = np.zeros((len(affinity.terms), size), dtype=np.int32)
        self._labels: NDArray[np.int32] = encoding.labels.table()
        self.shared_gpus: Final = SharedGpuTable(pod_table, encoding.requests, nodes)

    def read_capacity(self, rows: Iterable[int]) -> None:
        """Read what is allocatable on some nodes."""
        known = list(rows)
        if known:
            self._allocatable[known] = self._nodes.allocatable(
                self._encoding.requests.encoder, known
            )

    def read(self, rows: Iterable[int], reserved: Mapping[tuple[int, int], int]) -> None:
        """Count the pods of some nodes again; *reserved* are places by pod class and node."""
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
        selector_counts, anti_affinity_counts = self._encoding.affinity.count_pods(
            with_reservations, size
        )
        self._selector_counts[:, chosen], self._anti_affinity_counts[:, chosen] = (
            selector_counts[:, chosen],
            anti_affinity_counts[:, chosen],
        )
        taken = self._encoding.host_ports.count_pods(
            with_reservations, self._pod_table.class_table, size
        )
        self._ports[chosen] = taken[chosen]

    def table(self) -> SnapshotNodes:
        """Return the nodes, less what pods, shared devices and reserved places use."""
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
            gpu_mode=np.zeros(len(nodes), dtype=np.int8),
            gpu_memory=np.zeros(len(nodes), dtype=np.int64),
            closed_to_mig=np.zeros(len(nodes), dtype=np.bool_),
        )

    def pod_relations(self, placed: tuple[tuple[int, int], ...]) -> PodRelations:
        """Return the pods by selector and term; *placed* are node and users of each claim."""
        return PodRelations(
            selector_counts=self._selector_counts.copy(),
            anti_affinity_terms=self._encoding.affinity.terms,
            anti_affinity_counts=self._anti_affinity_counts.copy(),
            claim_node=tuple(node for node, _ in placed),
            claim_users=tuple(users for _, users in placed),
        )

    def total(self) -> tuple[int, int, int]:
        """Return what usable nodes have, less what pods of other schedulers use there."""
        usable = self._nodes.faults == NodeFault.NONE
        whole = self._encoding.requests.encoder.queue_capacity(self._allocatable[usable])
        taken = self._foreign[usable]
        cpu, memory, gpu = (
            min(max(total(whole[:, kind]) - total(taken[:, kind]), 0), SUM_MOST)
            for kind in ResourceKind
        )
        return cpu, memory, gpu

    def _charge(self, rows: Ints, on: PodsPerNode, with_reservations: PodsPerNode) -> None:
        """Charge pods and reserved places to their nodes; what is releasing is used as well.

        On a node that is charged with more than can be counted nothing is releasing.
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
