"""Ports of nodes that pods take, and which of them keep each other out."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.state.charges import Lying
from scheduler.state.kin import Kin
from scheduler.state.kins import Kins
from trainer_kai.policy.ports import EVERYWHERE, NodePort

__all__ = ["Ports"]


class Ports:
    """One column for each port with its address, of all that pods have who are present."""

    def __init__(self, known: tuple[NodePort, ...]) -> None:
        self.known: Final = known
        self._column: Final = {port: column for column, port in enumerate(known)}
        self._alike: Final[dict[tuple[str, int], list[NodePort]]] = {}
        for port in known:
            self._alike.setdefault(port[:2], []).append(port)

    def takes(self, kin: Kin) -> tuple[int, ...]:
        """Return the ports of pods."""
        column = self._column
        return tuple(sorted(column[port] for port in kin.recipe.ports if port in column))

    def avoids(self, kin: Kin) -> tuple[int, ...]:
        """Return the ports that must be free; on all addresses means on each."""
        found = set()
        for port in kin.recipe.ports:
            for other in self._alike.get(port[:2], ()):
                if port[2] == other[2] or EVERYWHERE in {port[2], other[2]}:
                    found.add(self._column[other])
        return tuple(sorted(found))

    def taken(self, on: Lying, kins: Kins, nodes: int) -> NDArray[np.int32]:
        """Return how many pods have each port, [node, port]."""
        table = np.zeros((nodes, len(self._column)), dtype=np.int32)
        for kin in np.unique(on.kin[kins.has_ports[on.kin]]).tolist() if self.known else ():
            some = on.kin == kin
            for column in self.takes(kins[kin]):
                table[on.node[some], column] += on.heads[some].astype(np.int32)
        return table
