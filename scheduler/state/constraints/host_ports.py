"""Host ports that pods take, and which of them conflict.

A port of all addresses is a port of each. So a request for a port on all addresses counts the pods
that have it on any address; a request for one address counts the pods that have the port on this
address or on all. No two addresses are compared.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import PodClass, SharedSpec
from scheduler.state.pods.pod_table import PodsPerNode
from trainer_kai.policy.pods.requests import ANY_ADDRESS, PodHostPort

_ANY: Final = ""  # instead of an address


class HostPortTable:
    """Columns for the host ports that pending pods request."""

    def __init__(self, requested: tuple[PodHostPort, ...]) -> None:
        conflicting = {it for port in requested for it in _conflicting(port)}
        self.ports: Final = tuple(sorted(conflicting))
        self._column: Final = {port: column for column, port in enumerate(self.ports)}
        self._any_address_column: Final = {
            port[:2]: column for column, port in enumerate(self.ports) if port.address == _ANY
        }
        self._host_ports: Final[dict[SharedSpec, tuple[int, ...]]] = {}

    def host_ports(self, pod_class: PodClass) -> tuple[int, ...]:
        """Return the columns of the ports that the pods of a class take."""
        columns = self._host_ports.get(pod_class.shared_spec)
        if columns is None:
            ports, column = pod_class.shared_spec.ports, self._column
            taken = {column[port] for port in ports if port in column}
            taken |= {
                self._any_address_column[port[:2]]
                for port in ports
                if port[:2] in self._any_address_column
            }
            columns = self._host_ports[pod_class.shared_spec] = tuple(sorted(taken))
        return columns

    def conflicting_ports(self, pod_class: PodClass) -> tuple[int, ...]:
        """Return the columns of the ports that must be free on a node for pods of a class."""
        needed = {it for port in pod_class.shared_spec.ports for it in _conflicting(port)}
        return tuple(sorted(self._column[it] for it in needed if it in self._column))

    def count_pods(
        self, on_nodes: PodsPerNode, class_table: PodClassTable, nodes: int
    ) -> NDArray[np.int32]:
        """Return how many pods have each port, [node, port]."""
        table = np.zeros((nodes, len(self._column)), dtype=np.int32)
        if not self.ports:
            return table
        has_ports = class_table.has_ports[on_nodes.class_number]
        for number in np.unique(on_nodes.class_number[has_ports]).tolist():
            columns = list(self.host_ports(class_table[number]))
            if columns:
                is_of_class = on_nodes.class_number == number
                pod_counts = on_nodes.pod_counts[is_of_class].astype(np.int32)
                table[np.ix_(on_nodes.node[is_of_class], columns)] += pod_counts[:, None]
        return table


def _conflicting(port: PodHostPort) -> Iterator[PodHostPort]:
    """Yield the ports that must be free: that of any address, or of this one and of all."""
    if port.address == ANY_ADDRESS:
        yield port._replace(address=_ANY)
    else:
        yield port
        yield port._replace(address=ANY_ADDRESS)
