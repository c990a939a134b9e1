"""Ports of nodes that pods take, and which of them keep each other out.

A port of all addresses is a port of each. So the pods are counted that have a port of any address,
if it is asked for on all of them; and where it is asked for on one, those that have it there and
those that have it on all. No two addresses are compared.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.state.charges import Lying
from scheduler.state.kin import Kin, Recipe
from scheduler.state.kins import Kins
from trainer_kai.policy.ports import EVERYWHERE, NodePort

__all__ = ["Ports"]

_ANY: Final = ""  # instead of an address


class Ports:
    """Columns for what pods ask for that may be placed."""

    def __init__(self, asked: tuple[NodePort, ...]) -> None:
        self.known: Final = tuple(sorted({it for port in asked for it in _free(port)}))
        self._column: Final = {port: column for column, port in enumerate(self.known)}
        self._of_any: Final = {
            port[:2]: column for column, port in enumerate(self.known) if port.address == _ANY
        }
        self._takes: Final[dict[Recipe, tuple[int, ...]]] = {}

    def takes(self, kin: Kin) -> tuple[int, ...]:
        """Return what pods have of all that anybody asks for."""
        found = self._takes.get(kin.recipe)
        if found is None:
            ports, column = kin.recipe.ports, self._column
            columns = {column[port] for port in ports if port in column}
            columns |= {self._of_any[port[:2]] for port in ports if port[:2] in self._of_any}
            found = self._takes[kin.recipe] = tuple(sorted(columns))
        return found

    def avoids(self, kin: Kin) -> tuple[int, ...]:
        """Return what must be free for pods that may be placed."""
        needed = {it for port in kin.recipe.ports for it in _free(port)}
        return tuple(sorted(self._column[it] for it in needed if it in self._column))

    def taken(self, on: Lying, kins: Kins, nodes: int) -> NDArray[np.int32]:
        """Return how many pods have each port, [node, port]."""
        table = np.zeros((nodes, len(self._column)), dtype=np.int32)
        for kin in np.unique(on.kin[kins.has_ports[on.kin]]).tolist() if self.known else ():
            some, columns = on.kin == kin, list(self.takes(kins[kin]))
            if columns:
                heads = on.heads[some].astype(np.int32)
                table[np.ix_(on.node[some], columns)] += heads[:, None]
        return table


def _free(port: NodePort) -> Iterator[NodePort]:
    """Yield what must be free: the port of any address, or of this one and of all."""
    if port.address == EVERYWHERE:
        yield port._replace(address=_ANY)
    else:
        yield port
        yield port._replace(address=EVERYWHERE)
