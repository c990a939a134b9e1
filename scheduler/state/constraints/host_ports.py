"""Host ports that pods take, and which of them conflict.

A port of all addresses is a port of each: so the pods are counted that have a port on any address,
if it is requested on all; and where it is requested on one, those that have it there and those that
have it on all. No two addresses are compared.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import PodClass, SharedSpec
from scheduler.state.pods.pod_table import PodsPerNode
from trainer_kai.policy.pods.requests import ANY_ADDRESS, PodHostPort

__all__ = ["HostPortTable"]

_ANY: Final = ""  # instead of an address


class HostPortTable:
    """Columns for what pods ask for that may be placed."""

    def __init__(self, asked: tuple[PodHostPort, ...]) -> None:
        self.ports: Final = tuple(sorted({it for port in asked for it in _must_be_free(port)}))
        self._column: Final = {port: column for column, port in enumerate(self.ports)}
        self._any_address_column: Final = {
            port[:2]: column for column, port in enumerate(self.ports) if port.address == _ANY
        }
        self._host_ports: Final[dict[SharedSpec, tuple[int, ...]]] = {}

    def host_ports(self, pod_class: PodClass) -> tuple[int, ...]:
        """Return what pods have of all that anybody asks for."""
        found = self._host_ports.get(pod_class.shared_spec)
        if found is None:
            ports, column = pod_class.shared_spec.ports, self._column
            columns = {column[port] for port in ports if port in column}
            columns |= {
                self._any_address_column[port[:2]]
                for port in ports
                if port[:2] in self._any_address_column
            }
            found = self._host_ports[pod_class.shared_spec] = tuple(sorted(columns))
        return found

    def conflicting_ports(self, pod_class: PodClass) -> tuple[int, ...]:
        """Return what must be free for pods that may be placed."""
        needed = {it for port in pod_class.shared_spec.ports for it in _must_be_free(port)}
        return tuple(sorted(self._column[it] for it in needed if it in self._column))

    def count_pods(
        self, on_nodes: PodsPerNode, class_table: PodClassTable, nodes: int
    ) -> NDArray[np.int32]:
        """Return how many pods have each port, [node, port]."""
        table = np.zeros((nodes, len(self._column)), dtype=np.int32)
        for pod_class in (
            np.unique(on_nodes.class_number[class_table.has_ports[on_nodes.class_number]]).tolist()
            if self.ports
            else ()
        ):
            some, columns = (
                on_nodes.class_number == pod_class,
                list(self.host_ports(class_table[pod_class])),
            )
            if columns:
                pod_counts = on_nodes.pod_counts[some].astype(np.int32)
                table[np.ix_(on_nodes.node[some], columns)] += pod_counts[:, None]
        return table


def _must_be_free(port: PodHostPort) -> Iterator[PodHostPort]:
    """Yield what must be free: the port of any address, or of this one and of all."""
    if port.address == ANY_ADDRESS:
        yield port._replace(address=_ANY)
    else:
        yield port
        yield port._replace(address=ANY_ADDRESS)
