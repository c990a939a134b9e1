"""Who could have room if nobody else were there.

Whoever could not has its turn after all others of its queue: were it the first of them, it would be
in the way of what is due to the queue, for nothing.
"""

from collections import Counter
from typing import Final

from scheduler.core.chunks import SignatureRuns
from scheduler.core.model import UNBOUND
from scheduler.core.numbers import count_fitting_pods
from scheduler.core.place import Placer
from scheduler.core.usage import Amounts, Usage

__all__ = ["EmptyClusterFit"]


class EmptyClusterFit:
    """By what is asked for; other pods, and what they say of it, do not matter."""

    def __init__(self, placer: Placer, usage: Usage) -> None:
        self._placer: Final = placer
        self._snapshot: Final = placer.statement.snapshot
        self._paths: Final = usage.paths
        self._limits: Final[list[list[float]]] = self._snapshot.queues.limit.tolist()
        self._known: Final[dict[SignatureRuns, bool]] = {}
        self._fitting: Final[dict[tuple[tuple[int, ...], bytes], int]] = {}

    def fits_empty_cluster(self, queue: int, amounts: Amounts, signatures: SignatureRuns) -> bool:
        """Say whether pods of these shapes are within all limits, and have seats enough."""
        for of in self._paths[queue]:
            for requested, limit in zip(amounts, self._limits[of], strict=True):
                if requested > limit != UNBOUND:
                    return False
        if signatures not in self._known:
            self._known[signatures] = self._fits_empty_nodes(signatures)
        return self._known[signatures]

    def _fits_empty_nodes(self, signatures: SignatureRuns) -> bool:
        """Look together at pods that ask for the same and that the same nodes take."""
        needed_pods = Counter[tuple[tuple[int, ...], bytes]]()
        for row, number in signatures:
            signature, takes = self._snapshot.signatures[row], self._placer.ranking(row).fits_empty
            alike = signature.request, takes.tobytes()
            needed_pods[alike] += number
            if alike not in self._fitting:
                self._fitting[alike] = count_fitting_pods(
                    self._snapshot.nodes.allocatable[takes], signature
                )
        return all(number <= self._fitting[alike] for alike, number in needed_pods.items())
