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
from scheduler.core.model.resources import UNBOUND, Amounts, Ints, ResourceKind, total
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.placement import Placer
from scheduler.core.nodes.ranking import NodeRanking
from scheduler.core.nodes.statement import Statement

__all__ = [
    "EmptyClusterFit",
    "PodCapacities",
    "PodCapacity",
    "count_fitting_pods",
    "free_amount",
]

_MAX_CAPACITIES: Final = 64  # each is as large as there are nodes
_UNLIMITED: Final = 2**40  # for pods that request nothing


class PodCapacity:
    """How many pods of one signature fit, where only resources matter."""

    def __init__(self, statement: Statement, ranking: NodeRanking) -> None:
        self._statement: Final = statement
        self._requests: Final = tuple((r, n) for r, n in enumerate(ranking.signature.request) if n)
        self.is_open: Final[list[bool]] = ranking.fits_empty.tolist()
        self._per_node: Final = self._fitting_on_all(ranking)
        self._seen = len(statement.changed_nodes)
        self._trial: dict[int, int] = {}  # by node, with other free amounts
        self._total = sum(self._per_node)

    @property
    def total(self) -> int:
        """Return how many pods fit on all nodes."""
        return self._total

    def refresh(self) -> None:
        """Drop all amounts that were set, and update the nodes that have changed."""
        changed_nodes = self._statement.changed_nodes
        if not self._trial and self._seen == len(changed_nodes):
            return
        for node, pod_count in self._trial.items():
            self._total += self._per_node[node] - pod_count
        self._trial.clear()
        for node in set(changed_nodes[self._seen :]):
            if self.is_open[node]:
                pod_count = self._fitting(self._statement.free[node].tolist())
                self._total += pod_count - self._per_node[node]
                self._per_node[node] = pod_count
        self._seen = len(changed_nodes)

    def set_free(self, node: int, free: Sequence[int]) -> None:
        """Set what would be free on a node."""
        pod_count = self._fitting(free)
        self._total += pod_count - self._trial.get(node, self._per_node[node])
        self._trial[node] = pod_count

    def _fitting(self, free: Sequence[int]) -> int:
        pod_count = _UNLIMITED
        for resource, amount in self._requests:
            here = free[resource] // amount
            if here < pod_count:  # noqa: PLR1730 - called for every eviction unit, and so faster
                pod_count = here
        return max(pod_count, 0)

    def _fitting_on_all(self, ranking: NodeRanking) -> list[int]:
        if not self._requests or not len(ranking.fits_empty):
            return [_UNLIMITED if is_open else 0 for is_open in self.is_open]
        columns = [r for r, _ in self._requests]
        each = self._statement.free[:, columns] // np.array([n for _, n in self._requests])
        pod_count: list[int] = np.where(
            ranking.fits_empty, each.min(axis=1).clip(min=0), 0
        ).tolist()
        return pod_count


class PodCapacities:
    """The capacities for some signatures, each made when it is first needed."""

    def __init__(self, placer: Placer) -> None:
        self._placer: Final = placer
        self._capacities: Final[dict[int, PodCapacity]] = {}

    def of(self, signature: int) -> PodCapacity:
        """Return the capacity for pods of a signature."""
        capacity = self._capacities.get(signature)
        if capacity is None:
            if len(self._capacities) >= _MAX_CAPACITIES:  # the oldest one is dropped
                del self._capacities[next(iter(self._capacities))]
            capacity = self._capacities[signature] = PodCapacity(
                self._placer.statement, self._placer.ranking(signature)
            )
        return capacity


class EmptyClusterFit:
    """Which requests fit on an empty cluster; other pods and their affinity do not matter."""

    def __init__(self, placer: Placer, usage: Usage) -> None:
        self._placer: Final = placer
        self._snapshot: Final = placer.statement.snapshot
        self._paths: Final = usage.paths
        self._limits: Final[list[list[float]]] = self._snapshot.queues.limit.tolist()
        self._known: Final[dict[SignatureRuns, bool]] = {}
        self._fitting: Final[dict[tuple[tuple[int, ...], bytes], int]] = {}

    def fits_empty_cluster(self, queue: int, amounts: Amounts, signatures: SignatureRuns) -> bool:
        """Say whether pods of these signatures are within all limits, and fit on empty nodes."""
        for q in self._paths[queue]:
            for requested, limit in zip(amounts, self._limits[q], strict=True):
                if requested > limit != UNBOUND:
                    return False
        if signatures not in self._known:
            self._known[signatures] = self._fits_empty_nodes(signatures)
        return self._known[signatures]

    def _fits_empty_nodes(self, signatures: SignatureRuns) -> bool:
        """Count pods together that request the same and that fit on the same nodes."""
        needed = Counter[tuple[tuple[int, ...], bytes]]()
        for row, number in signatures:
            signature, fits_empty = (
                self._snapshot.signatures[row],
                self._placer.ranking(row).fits_empty,
            )
            alike = signature.request, fits_empty.tobytes()
            needed[alike] += number
            if alike not in self._fitting:
                self._fitting[alike] = count_fitting_pods(
                    self._snapshot.nodes.allocatable[fits_empty], signature
                )
        return all(number <= self._fitting[alike] for alike, number in needed.items())


def free_amount(statement: Statement, kind: ResourceKind) -> int:
    """Return what is free of a kind on all nodes."""
    resources, free = statement.snapshot.resources, statement.free
    columns = [r for r, kind_of_r in enumerate(resources.kinds) if kind_of_r == kind]
    return sum([total(free[:, r].clip(min=0)) * resources.weights[r] for r in columns])


def count_fitting_pods(allocatable: Ints, signature: SchedulingSignature) -> int:
    """Return how many pods of a signature fit, given [node, resource]."""
    requested = [r for r, n in enumerate(signature.request) if n]
    if not requested or not len(allocatable):
        return 0
    request = np.array([signature.request[r] for r in requested])
    return total(np.maximum(allocatable[:, requested] // request, 0).min(axis=1))
