"""Subsets of the nodes, to which pods are restricted beside all that their own specs say.

Whatever is computed for the nodes of a subset is cached by its key.
"""

from dataclasses import dataclass
from typing import Final

from scheduler.core.model.resources import Bools

__all__ = ["ALL_NODES", "NodeSubset"]


@dataclass(frozen=True, eq=False, slots=True)
class NodeSubset:
    """Some nodes; in one plan equal keys mean equal nodes."""

    key: tuple[int, ...]
    mask: Bools | None  # [node]; None is all nodes

    def within(self, nodes: Bools) -> Bools:
        """Return those of some nodes that the subset has, [node]."""
        return nodes if self.mask is None else nodes & self.mask


ALL_NODES: Final = NodeSubset((), None)
