"""How many pods of one signature fit on the nodes, as they are and on an empty cluster.

A PodGroup that would not fit on an empty cluster comes after all others of its queue: first, it
would keep the fair share of the queue from them, for nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.core.gang.tasks_to_allocate import SignatureRuns
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import UNBOUND, Amounts, Ints, total
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.placement import Placer
from scheduler.core.nodes.ranking import NodeRanking
from scheduler.core.nodes.statement import Statement

__all__ = [
    "EmptyClusterFit",
    "PodCapacity",
    "count_fitting_pods",
]

_UNLIMITED: Final = 2**40  # for who asks for nothing


class PodCapacity:
    """The seats of one shape, where nothing but room matters."""

    def __init__(self, statement: Statement, field: NodeRanking) -> None:
        self._statement: Final = statement
        self._requests: Final = tuple((r, n) for r, n in enumerate(field.signature.request) if n)
        self.is_open: Final[list[bool]] = field.fits_empty.tolist()
        self._per_node: Final = self._fitting_on_all(field)
        self._seen = len(statement.changed_nodes)
        self._trial: dict[int, int] = {}  # seats of nodes as they would be
        self._total = sum(self._per_node)

    @property
    def total(self) -> int:
        """Return how many there would be."""
        return self._total

    def refresh(self) -> None:
        """Forget what would be, and look again at the nodes that have changed."""
        moves = self._statement.changed_nodes
        if not self._trial and self._seen == len(moves):
            return
        for node, seats in self._trial.items():
            self._total += self._per_node[node] - seats
        self._trial.clear()
        for node in set(moves[self._seen :]):
            if self.is_open[node]:
                seats = self._fitting(self._statement.free[node].tolist())
                self._total += seats - self._per_node[node]
                self._per_node[node] = seats
        self._seen = len(moves)

    def set_free(self, node: int, room: Sequence[int]) -> None:
        """Let a node have so much room, as it would be."""
        seats = self._fitting(room)
        self._total += seats - self._trial.get(node, self._per_node[node])
        self._trial[node] = seats

    def _fitting(self, room: Sequence[int]) -> int:
        seats = _UNLIMITED
        for resource, amount in self._requests:
            here = room[resource] // amount
            if here < seats:  # noqa: PLR1730 - asked for every block, and so faster
                seats = here
        return max(seats, 0)

    def _fitting_on_all(self, field: NodeRanking) -> list[int]:
        if not self._requests or not len(field.fits_empty):
            return [_UNLIMITED if is_open else 0 for is_open in self.is_open]
        columns = [r for r, _ in self._requests]
        each = self._statement.free[:, columns] // np.array([n for _, n in self._requests])
        seats: list[int] = np.where(field.fits_empty, each.min(axis=1).clip(min=0), 0).tolist()
        return seats


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


def count_fitting_pods(whole: Ints, signature: SchedulingSignature) -> int:
    """Count the pods of a shape for which there would be room, [node, resource]."""
    requested = [r for r, n in enumerate(signature.request) if n]
    if not requested or not len(whole):
        return 0
    request = np.array([signature.request[r] for r in requested])
    return total(np.maximum(whole[:, requested] // request, 0).min(axis=1))
