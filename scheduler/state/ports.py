"""Ports of nodes that pods take, and which of them keep each other out."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.state.charges import Lying
from scheduler.state.kin import Kin
from trainer_kai.policy.ports import EVERYWHERE, NodePort, node_ports

__all__ = ["Ports"]


class Ports:
    """One column for each port with its address."""

    def __init__(self, kins: list[Kin], present: Iterable[int]) -> None:
        self._of_kin: Final[dict[int, tuple[NodePort, ...]]] = {}
        for number in present:
            found = tuple(dict.fromkeys(node_ports(kins[number].spec)))
            if found:
                self._of_kin[number] = found
        known = sorted({port for ports in self._of_kin.values() for port in ports})
        self._column: Final = {port: column for column, port in enumerate(known)}
        self._alike: Final[dict[tuple[str, int], list[NodePort]]] = {}
        for port in known:
            self._alike.setdefault(port[:2], []).append(port)

    def takes(self, kin: int) -> tuple[int, ...]:
        """Return the ports of pods."""
        return tuple(sorted(self._column[port] for port in self._of_kin.get(kin, ())))

    def avoids(self, kin: int) -> tuple[int, ...]:
        """Return the ports that must be free; on all addresses means on each."""
        found = set()
        for port in self._of_kin.get(kin, ()):
            for other in self._alike[port[:2]]:
                if port[2] == other[2] or EVERYWHERE in {port[2], other[2]}:
                    found.add(self._column[other])
        return tuple(sorted(found))

    def taken(self, on: Lying, nodes: int) -> NDArray[np.int32]:
        """Return how many pods have each port, [node, port]."""
        table = np.zeros((nodes, len(self._column)), dtype=np.int32)
        for kin in self._of_kin:
            some = on.kin == kin
            for column in self.takes(kin):
                table[on.node[some], column] += on.heads[some].astype(np.int32)
        return table
