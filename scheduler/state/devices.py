"""Devices that pods share: a row for each, and a whole device less for everybody else.

A device is shared where a reservation pod keeps it, which is in a namespace of the scheduler of
such pods. The labels and annotations of other pods can be written by any user, and take nothing.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model import NONE, Bools, Ints, SharedDevices
from scheduler.state.asks import PodRequests
from scheduler.state.nodes import NodeTable
from scheduler.state.roll import RELEASING, PodTable
from scheduler.state.sharing import device_memory_mib
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import GPU_GROUP, GPU_GROUP_PREFIX

__all__ = ["SharedGpuTable"]

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
        self._gpus: Final = requests.columns.resource_columns.gpus

    def read(self, rows: Iterable[int], is_selected: Bools) -> None:
        """Look again at who shares what on some nodes; *is_meant* says of which pods, [node]."""
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
        """Return the devices of each node that reservation pods keep."""
        pod_table, found = self._pod_table, dict[int, set[str]]()
        for pod_row in np.flatnonzero(
            is_selected[pod_table.node]
            & pod_table.class_table.is_gpu_reservation[pod_table.class_number]
        ).tolist():
            named = _named_gpus(pod_table.pod(pod_row).metadata)
            found.setdefault(int(pod_table.node[pod_row]), set()).update(named)
        return found

    def table(self) -> SharedDevices:
        """Return the rows."""
        rows = [
            (row, group, self._by_node[row][group])
            for row in sorted(self._by_node)
            for group in sorted(self._by_node[row])
        ]
        memory = [device_memory_mib(self._nodes.nodes[row]) for row, _, _ in rows]
        return SharedDevices(
            ids=tuple(group for _, group, _ in rows),
            node=np.array([row for row, _, _ in rows], dtype=np.int32),
            used=np.array([device.used for _, _, device in rows], dtype=np.int64),
            releasing=np.array([device.releasing for _, _, device in rows], dtype=np.int64),
            memory=np.array(memory, dtype=np.int64),
        )

    def charge(self, rows: Iterable[int], allocatable: Ints, used: Ints, releasing: Ints) -> None:
        """Take each shared device from its node; it comes back when all its pods are going."""
        for row in rows:
            for device in self._by_node.get(row, {}).values():
                column = self._column(allocatable[row])
                if column != NONE:
                    used[row, column] += _WHOLE_GPU
                    if device.releasing >= device.used > 0:
                        releasing[row, column] += _WHOLE_GPU

    def _column(self, allocatable: Ints) -> int:
        """Return which kind of device a node has."""
        return next((column for column in self._gpus if allocatable[column] > 0), NONE)


def _named_gpus(meta: Meta) -> set[str]:
    """Return the devices that the labels of a pod name."""
    return {
        value
        for name, value in meta.labels.items()
        if name == GPU_GROUP or name.startswith(GPU_GROUP_PREFIX)
    }
