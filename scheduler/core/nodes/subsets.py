"""Subsets of the nodes, to which pods are restricted beside all that their own specs say.

Whatever is computed for the nodes of a subset is cached by its key.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.core.model.resources import Bools
from scheduler.core.model.snapshot import Snapshot


@dataclass(frozen=True, eq=False, slots=True)
class NodeSubset:
    """Some nodes; in one plan equal keys mean equal nodes."""

    key: tuple[int, ...]
    mask: Bools | None  # [node]; None is all nodes

    def within(self, nodes: Bools) -> Bools:
        """Return which of some nodes the subset has, [node]."""
        return nodes if self.mask is None else nodes & self.mask


ALL_NODES: Final = NodeSubset((), None)


class MemorySubsets:
    """For pods that request memory of GPUs: the nodes with larger GPUs than those before."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Final = snapshot
        self._larger = ALL_NODES

    def subset_of(self, signature: int) -> NodeSubset:
        """Return the nodes for a signature."""
        is_by_memory = self._snapshot.signatures[signature].least_queue_request is not None
        return self._larger if is_by_memory else ALL_NODES

    def exclude_smallest(self, nodes: Iterable[int]) -> None:
        """Exclude all nodes with GPUs that are not larger than the smallest of some nodes."""
        memory = self._snapshot.nodes.gpu_memory
        least = min([int(memory[node]) for node in nodes])
        self._larger = NodeSubset((least,), memory > least)
