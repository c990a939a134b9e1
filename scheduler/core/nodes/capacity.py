"""How many pods of one signature fit on the nodes, as they are and on an empty cluster.

A PodGroup that would not fit on an empty cluster comes after all others of its queue: first, it
would keep the fair share of the queue from them, for nothing.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.resources import (
    NONE,
    SUM_MOST,
    UNBOUND,
    Amounts,
    Bools,
    Ints,
    ResourceKind,
    total,
)
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.devices import DeviceView
from scheduler.core.nodes.node_resources import UNLIMITED
from scheduler.core.nodes.placement import Placer
from scheduler.core.nodes.ranking import NodeRanking
from scheduler.core.nodes.strategies.strategy import (
    ALL_NODES,
    NodeSubset,
    PlacementStrategy,
    RequestKey,
)
from scheduler.core.nodes.working_nodes import WorkingNodes

_MAX_CAPACITIES: Final = 64  # each is as large as there are nodes
# A request, the devices in it, the nodes that it fits when they are empty, and their domains.
_AlikePods: TypeAlias = tuple[tuple[int, ...], tuple[Hashable, ...], bytes, Hashable]


class PodCapacity:
    """How many pods of one signature fit, where only resources and devices matter.

    Of pods that request devices it is an upper bound.
    """

    def __init__(self, nodes: WorkingNodes, ranking: NodeRanking) -> None:
        self._resources: Final = nodes.resources
        self._changed_nodes: Final = nodes.statement.changed_nodes
        self._requests: Final = nodes.resources.requests(ranking.row)
        self._row: Final = ranking.row
        self._devices: Final = nodes.devices.of[ranking.row]
        self.is_open: Final[list[bool]] = ranking.fits_empty.tolist()
        self._per_node: Final = self._fitting_on_all(ranking)
        self._seen = len(self._changed_nodes)
        self._trial: dict[int, int] = {}  # by node, with other free amounts
        # Where pods must be in one domain, the domain of each node, and the pods by domain.
        domains = ranking.subset.domains
        self._domains: Final[list[int] | None] = None if domains is None else domains.tolist()
        self._by_domain: Final = Counter[int]()
        self._total = sum(self._per_node)
        if self._domains is not None:
            for node, pod_count in enumerate(self._per_node):
                self._add_to_domain(node, pod_count)

    @property
    def total(self) -> int:
        """How many pods fit; where they must be in one domain, in the one that fits the most."""
        if self._domains is None:
            return self._total
        return max(self._by_domain.values(), default=0)

    def refresh(self) -> None:
        """Drop all amounts that were set, and update the nodes that have changed."""
        changed_nodes = self._changed_nodes
        if not self._trial and self._seen == len(changed_nodes):
            return
        for node, pod_count in self._trial.items():
            self._add(node, self._per_node[node] - pod_count)
        self._trial.clear()
        for node in set(changed_nodes[self._seen :]):
            if self.is_open[node]:
                pod_count = self._fitting(node, self._resources.free[node].tolist())
                self._add(node, pod_count - self._per_node[node])
                self._per_node[node] = pod_count
        self._seen = len(changed_nodes)

    def set_free(self, node: int, free: Sequence[int], trials: Sequence[DeviceView] = ()) -> None:
        """Set what would be free; *trials* are the devices as they would be, of each sort."""
        pod_count = self._fitting(node, free, trials)
        more = pod_count - self._trial.get(node, self._per_node[node])
        self._total += more
        if self._domains is not None:
            self._add_to_domain(node, more)
        self._trial[node] = pod_count

    def _add(self, node: int, more: int) -> None:
        self._total += more
        if self._domains is not None:
            self._add_to_domain(node, more)

    def _add_to_domain(self, node: int, more: int) -> None:
        assert self._domains is not None
        if self._domains[node] != NONE:
            self._by_domain[self._domains[node]] += more

    def _fitting(self, node: int, free: Sequence[int], trials: Sequence[DeviceView] = ()) -> int:
        pod_count = UNLIMITED
        for resource, amount in self._requests:
            here = free[resource] // amount
            if here < pod_count:  # noqa: PLR1730 - called for every eviction unit, and so faster
                pod_count = here
        for devices in self._devices:
            view = trials[devices.sort] if trials else devices
            pod_count = min(pod_count, view.fitting_on(self._row, node, free))
        return max(pod_count, 0)

    def _fitting_on_all(self, ranking: NodeRanking) -> list[int]:
        if self._devices:
            free = self._resources.free.tolist()
            return [
                self._fitting(node, free[node]) if is_open else 0
                for node, is_open in enumerate(self.is_open)
            ]
        fitting = self._resources.fitting(self._row)
        pod_count: list[int] = np.where(ranking.fits_empty, fitting, 0).tolist()
        return pod_count


class PodCapacities:
    def __init__(self, placer: Placer) -> None:
        self._placer: Final = placer
        # By signature and key of the subset.
        self._capacities: Final[dict[tuple[int, Hashable], PodCapacity]] = {}

    def of(self, signature: int, subset: NodeSubset = ALL_NODES) -> PodCapacity:
        key = signature, subset.key
        capacity = self._capacities.get(key)
        if capacity is None:
            if len(self._capacities) >= _MAX_CAPACITIES:  # the oldest one is dropped
                del self._capacities[next(iter(self._capacities))]
            capacity = self._capacities[key] = PodCapacity(
                self._placer.nodes, self._placer.ranking(signature, subset)
            )
        return capacity


class EmptyClusterFit:
    """Which requests fit on an empty cluster; other pods and their affinity do not matter."""

    def __init__(self, placer: Placer, usage: Usage) -> None:
        self._placer: Final = placer
        self._nodes: Final = placer.nodes
        self._snapshot: Final = placer.nodes.snapshot
        self._paths: Final = usage.paths
        self._limits: Final[list[list[float]]] = self._snapshot.queues.limit.tolist()
        self._known: Final[dict[RequestKey, tuple[bool, RequestKey]]] = {}
        self._fitting: Final[dict[_AlikePods, Ints]] = {}  # by domain

    def fits_empty_cluster(
        self,
        queue: int,
        amounts: Amounts,
        request: RequestKey,
        strategy: PlacementStrategy,
    ) -> tuple[bool, RequestKey]:
        """Return also the request: within the limits equal ones are the same object."""
        for q in self._paths[queue]:
            for requested, limit in zip(amounts, self._limits[q], strict=True):
                if requested > limit != UNBOUND:
                    return False, request
        known = self._known.get(request)
        if known is None:
            fits = self._fits_empty_nodes(request[0], strategy)
            known = self._known[request] = fits, request
        return known

    def _fits_empty_nodes(self, signatures: SignatureRuns, strategy: PlacementStrategy) -> bool:
        """Count pods together that request the same and that fit on the same nodes.

        Where they must be in one domain, they must all fit in the same one.
        """
        needed = Counter[_AlikePods]()
        for row, number in signatures:
            request = self._snapshot.signatures[row].request
            reach = strategy.reach(row)
            fits_empty = self._placer.ranking(row, reach).fits_empty
            of_row = self._nodes.devices.of[row]
            devices = tuple([(it.sort, it.request_key(row)) for it in of_row])
            alike = request, devices, fits_empty.tobytes(), reach.domains is not None and reach.key
            needed[alike] += number
            if alike not in self._fitting:
                self._fitting[alike] = fitting_by_domain(
                    self._nodes, self._snapshot.nodes.allocatable, row, fits_empty, reach.domains
                )
        enough = [number <= self._fitting[alike] for alike, number in needed.items()]
        return bool(np.logical_and.reduce(enough).any())


def free_amount(nodes: WorkingNodes, kind: ResourceKind) -> int:
    """Return what is free of a kind on all nodes, of devices in use as well."""
    resources, free = nodes.snapshot.resources, nodes.resources.free
    columns = [r for r, kind_of_r in enumerate(resources.kinds) if kind_of_r == kind]
    found = sum([total(free[:, r].clip(min=0)) * resources.weights[r] for r in columns])
    return found + nodes.devices.free_amount(kind)


def count_fitting_pods(nodes: WorkingNodes, amounts: Ints, signature: int, mask: Bools) -> int:
    """Return how many pods of a signature fit on some nodes that have *amounts*, by node.

    Of pods that request devices, as if the nodes had no others.
    """
    return int(fitting_by_domain(nodes, amounts, signature, mask, None)[0])


def fitting_by_domain(
    nodes: WorkingNodes, amounts: Ints, signature: int, mask: Bools, domains: Ints | None
) -> Ints:
    """Return the same for each domain of the nodes, or as one number if there are no domains."""
    requests = nodes.resources.requests(signature)
    count = 1 if domains is None else int(domains.max(initial=NONE)) + 1
    if not requests or not mask.any():
        return np.zeros(count, dtype=np.int64)
    columns = [r for r, _ in requests]
    each = amounts[:, columns] // np.array([n for _, n in requests])
    fitting: Ints = np.maximum(each, 0).min(axis=1)
    for most in nodes.devices.fitting(signature, amounts):
        fitting = np.minimum(fitting, most)
    if domains is None:
        return np.array([min(total(np.maximum(fitting[mask], 0)), SUM_MOST)])
    found = np.zeros(count, dtype=np.int64)
    is_in = mask & (domains != NONE)
    np.add.at(found, domains[is_in], np.maximum(fitting[is_in], 0))
    return found
