"""What is free in the domains of a topology, and which of them are the fullest, in arrays.

Sums by domain are updated for the nodes that have changed, so that one more PodGroup costs what the
one before it has changed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import gt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.resources import NONE, Bools, DeviceSort, Floats, Ints, ResourceKind
from scheduler.core.model.snapshot import NodeFault, Snapshot
from scheduler.core.model.topology import SnapshotTopology
from scheduler.core.nodes.devices import NodeDevices
from scheduler.core.nodes.node_resources import UNLIMITED, NodeResources
from scheduler.core.nodes.predicates import fits_empty_node
from scheduler.core.nodes.statement import Statement

if TYPE_CHECKING:
    from scheduler.core.model.podgroup import SchedulingSignature

_MAX_FITTING: Final = 64  # signatures; for each the nodes are counted
_TIE_STEP: Final = 1e-10  # less than any difference of scores that means something


class NodesInUse(NamedTuple):
    snapshot: Snapshot
    resources: NodeResources
    devices: NodeDevices
    statement: Statement


Domain: TypeAlias = tuple[int, int]  # level, domain


class DomainRequest(NamedTuple):
    """What pods request together."""

    # By signature; nominated nodes make no difference.
    counts: SignatureRuns
    amounts: tuple[tuple[int, int], ...]  # of each resource that they request
    scored: tuple[tuple[int, int], ...]  # without the places for pods
    gpus: tuple[int, ...]  # columns of whole GPUs
    gpu_amount: int  # thousandths of GPUs, if any are shares
    places: Sequence[int] = ()  # nodes with places that are reserved for some of the pods


def domain_request(
    nodes: NodesInUse, runs: SignatureRuns, places: Sequence[int] = ()
) -> DomainRequest:
    signatures, columns = nodes.snapshot.signatures, nodes.snapshot.resources
    counts, shares = Counter[int](), 0
    alike: dict[SchedulingSignature, int] = {}
    amounts = Counter[int]()
    for row, count in runs:
        one = signatures[row]
        if one.nominated_node != NONE:
            one = replace(one, nominated_node=NONE)
        first = row if len(runs) == 1 else alike.setdefault(one, row)
        counts[first] += count
        for r, amount in nodes.resources.requests(row):
            amounts[r] += count * amount
        if any(it.sort == DeviceSort.GPU_SHARE for it in nodes.devices.of[row]):
            shares += count * one.queue_request[ResourceKind.GPU]
    whole = sum([amounts[r] for r in columns.gpus])
    return DomainRequest(
        counts=tuple(counts.items()),
        amounts=tuple(amounts.items()),
        scored=tuple([(r, n) for r, n in amounts.items() if r != columns.pods]),
        gpus=columns.gpus,
        gpu_amount=shares + whole if shares else 0,
        places=places,
    )


class _FittingPods:
    """How many pods of one signature fit, by node and by domain."""

    def __init__(self, nodes: NodesInUse, domains: "TopologyDomains", signature: int) -> None:
        self._nodes: Final = nodes
        self._signature: Final = signature
        self._domains_of_node: Final = domains.of_node
        self._requests: Final = nodes.resources.requests(signature)
        is_open = fits_empty_node(nodes.snapshot, nodes.snapshot.signatures[signature])
        is_open &= domains.inside
        self.is_open: Final[list[bool]] = is_open.tolist()
        fitting = np.where(is_open, nodes.resources.fitting(signature), 0)
        if nodes.devices.of[signature]:
            fitting = np.array([self._fitting(it) for it in range(len(is_open))], dtype=np.int64)
        self.per_node: Final[list[int]] = fitting.tolist()
        self.total = sum(self.per_node)
        self.by_level: Final[list[list[int]]] = [
            sums[:, 0].tolist() for sums in _sums_by_level(domains.topology, fitting[:, None])
        ]
        self._seen = len(nodes.statement.changed_nodes)

    def refresh(self) -> None:
        changed = self._nodes.statement.changed_nodes
        if self._seen == len(changed):
            return
        for node in {*changed[self._seen :]}:
            more = self._fitting(node) - self.per_node[node]
            if more:
                self.per_node[node] += more
                self.total += more
                for sums, domain in zip(self.by_level, self._domains_of_node[node], strict=True):
                    if domain != NONE:
                        sums[domain] += more
        self._seen = len(changed)

    def _fitting(self, node: int) -> int:
        if not self.is_open[node]:
            return 0
        free: list[int] = self._nodes.resources.free[node].tolist()
        fitting = min([free[r] // amount for r, amount in self._requests], default=UNLIMITED)
        for devices in self._nodes.devices.of[self._signature]:
            fitting = min(fitting, devices.fitting_on(self._signature, node, free))
        return max(fitting, 0)


class FirstDomain:
    """The domain that came first for pods of one signature: it does while it gets only fuller.

    As long as nothing else changes and they fit, it is the fullest that could be enough.
    """

    def __init__(self, domains: "TopologyDomains", domain: Domain, signature: int) -> None:
        self._nodes: Final = domains.nodes
        self._requests: Final = self._nodes.resources.requests(signature)
        pods = domains.fitting(signature)
        level, number = domain
        self._left = pods.by_level[level][number]
        members = np.flatnonzero(domains.members(level, number))
        rows = self._nodes.resources.free[members].tolist()
        self._rows: Final[dict[int, list[int]]] = dict(zip(members.tolist(), rows, strict=True))
        self._fitting: Final = {it: pods.per_node[it] for it in self._rows if pods.is_open[it]}
        self._seen = len(self._nodes.statement.changed_nodes)

    def is_still_first(self, count: int) -> bool:
        changed, free = self._nodes.statement.changed_nodes, self._nodes.resources.free
        for node in {*changed[self._seen :]}:
            before, now = self._rows.get(node), free[node].tolist()
            if before is None or any(map(gt, now, before)):
                return False
            if node in self._fitting:
                fitting = max(min([now[r] // amount for r, amount in self._requests]), 0)
                self._left += fitting - self._fitting[node]
                self._fitting[node] = fitting
        self._seen = len(changed)
        return self._left >= count


class _FreeAmounts:
    """What is free of each resource in the domains; nothing on nodes that take no pods."""

    def __init__(self, nodes: NodesInUse, domains: "TopologyDomains") -> None:
        self._nodes: Final = nodes
        self._domains_of_node: Final = domains.of_node
        takes_pods = (nodes.snapshot.nodes.fault == NodeFault.NONE) & domains.inside
        self._takes_pods: Final[list[bool]] = takes_pods.tolist()
        free = np.where(takes_pods[:, None], nodes.resources.free.clip(min=0), 0)
        self._per_node: Final[list[list[int]]] = free.tolist()
        self.by_level: Final[list[list[list[int]]]] = [
            sums.tolist() for sums in _sums_by_level(domains.topology, free)
        ]
        self._seen = len(nodes.statement.changed_nodes)

    def refresh(self) -> None:
        changed = self._nodes.statement.changed_nodes
        if self._seen == len(changed):
            return
        for node in {*changed[self._seen :]}:
            if self._takes_pods[node]:
                self._refresh(node)
        self._seen = len(changed)

    def _refresh(self, node: int) -> None:
        before, now = self._per_node[node], self._nodes.resources.free[node].tolist()
        for r, amount in enumerate(now):
            more = (max(0, amount)) - before[r]
            if more:
                before[r] += more
                for sums, domain in zip(self.by_level, self._domains_of_node[node], strict=True):
                    if domain != NONE:
                        sums[domain][r] += more


class TopologyDomains:
    def __init__(
        self, nodes: NodesInUse, topology: SnapshotTopology, inside: Bools | None = None
    ) -> None:
        """Only nodes that are *inside* count, if these are some."""
        self.topology: Final = topology
        self.nodes: Final = nodes
        count = len(nodes.snapshot.nodes.names)
        self.inside: Final[Bools] = np.ones(count, dtype=np.bool_) if inside is None else inside
        self.of_node: Final[list[list[int]]] = topology.domains.T.tolist()
        # By level, the domain of the wider level that each domain is in; and those in each.
        self.parents: Final[list[list[int]]] = [it.tolist() for it in _parents(topology)]
        self._children: Final = [_children(it) for it in self.parents]
        self._free: _FreeAmounts | None = None
        self._fitting: Final[dict[int, _FittingPods]] = {}  # by signature

    def members(self, level: int, domain: int) -> Bools:
        found: Bools = self.topology.domains[level] == domain
        return found

    def ancestor(self, level: int, domain: int, wider: int) -> int:
        """Return the domain of a wider level, or of the same one, that a domain is in."""
        for at in range(level, wider, -1):
            domain = self.parents[at][domain]
        return domain

    def fitting(self, signature: int) -> _FittingPods:
        pods = self._fitting.get(signature)
        if pods is None:
            if len(self._fitting) >= _MAX_FITTING:  # the oldest one is dropped
                del self._fitting[next(iter(self._fitting))]
            pods = self._fitting[signature] = _FittingPods(self.nodes, self, signature)
        pods.refresh()
        return pods

    def fit_in_all(self, request: DomainRequest) -> bool:
        """Say whether all nodes together could be enough."""
        places = len(request.places)
        return all(self.fitting(row).total >= n - places for row, n in request.counts)

    def in_order(
        self, request: DomainRequest, level: int, under: Domain | None = None
    ) -> list[int]:
        """Return the domains of a level, the fullest first; those *under* a domain, if it is given.

        Domains of one wider domain stand together, and these domains are in their own order.
        """
        return [*_Walk(self, request, level, fits=False).domains(under)]

    def fitting_in_order(
        self, request: DomainRequest, level: int, under: Domain | None = None
    ) -> Iterator[int]:
        """Yield the domains in the same order of which the free resources could be enough.

        Those of the others are not. Pods that differ, relations between pods or devices may be in
        the way. Nothing may change between two of them.
        """
        return _Walk(self, request, level, fits=True).domains(under)

    def children(self, level: int, domain: int) -> list[int]:
        return self._children[level + 1][domain]

    def free(self) -> list[list[list[int]]]:
        """Return what is free, [level][domain][resource]."""
        if self._free is None:
            self._free = _FreeAmounts(self.nodes, self)
        self._free.refresh()
        return self._free.by_level


class _Walk:
    """A walk through the domains of a topology, from the fullest to the emptiest."""

    def __init__(
        self, domains: TopologyDomains, request: DomainRequest, level: int, *, fits: bool
    ) -> None:
        self._domains: Final = domains
        self._level: Final = level
        self._free: Final = domains.free()
        self._requested: Final = request.scored
        self._gpus: Final = request.gpus
        self._gpu_amount: Final = request.gpu_amount
        self._is_mixed: Final = fits and len(request.counts) > 1 and not request.places
        self._amounts: Final = request.amounts
        self._fitting: Final = [
            (domains.fitting(row).by_level, count) for row, count in request.counts if fits
        ]
        self._places: Final = [domains.of_node[node] for node in request.places]

    def domains(self, under: Domain | None) -> Iterator[int]:
        if under is None:
            return self._below(0, range(len(self._domains.topology.paths[0])))
        level, domain = under
        if level < self._level:
            return self._below(level + 1, self._domains.children(level, domain))
        at = self._domains.ancestor(level, domain, self._level)
        return iter([at] if self._could_be_enough(level, domain) else [])

    def _below(self, level: int, domains: Iterable[int]) -> Iterator[int]:
        some = [it for it in domains if self._could_be_enough(level, it)]
        if len(some) > 1:
            some.sort(key=lambda it: -self._ratio(level, it))  # of equal ones the first
        if level == self._level:
            yield from some
            return
        for domain in some:
            yield from self._below(level + 1, self._domains.children(level, domain))

    def _could_be_enough(self, level: int, domain: int) -> bool:
        for by_level, count in self._fitting:
            fitting = by_level[level][domain]
            if fitting < count and self._places:
                fitting += self._places_in(level, domain)
            if fitting < count:
                return False
        if self._is_mixed:
            free = self._free[level][domain]
            return all(free[r] >= amount for r, amount in self._amounts)
        return True

    def _places_in(self, level: int, domain: int) -> int:
        return sum([it[level] == domain for it in self._places])

    def _ratio(self, level: int, domain: int) -> float:
        """Return what part of the free amount is requested, of the scarcest resource."""
        free, ratio = self._free[level][domain], 0.0
        for r, amount in self._requested:
            if not free[r]:
                return math.inf
            ratio = max(ratio, amount / free[r])
        if self._gpu_amount:
            gpus = sum([free[r] for r in self._gpus])
            ratio = max(ratio, self._gpu_amount / gpus) if gpus else math.inf
        return ratio


def tie_breaks(snapshot: Snapshot, columns: Sequence[int]) -> Floats | None:
    """Return what breaks ties between equal nodes, [node]: the fuller domain comes first.

    So wide domains stay free. Nodes that are in no domain come before all others. How full a domain
    is counts before the plan, in the first topology.
    """
    if not snapshot.topologies:
        return None
    topology = snapshot.topologies[0]
    takes_pods = snapshot.nodes.fault == NodeFault.NONE
    free = (snapshot.nodes.idle + snapshot.nodes.releasing)[:, list(columns)].clip(min=0)
    table = np.where(takes_pods, free.sum(axis=1), 0)[:, None]
    sums, parents = _sums_by_level(topology, table), _parents(topology)
    position: Ints | None = None
    for level, amounts in enumerate(sums):
        key = (amounts[:, 0],)
        domains = np.lexsort(key if position is None else (*key, position[parents[level]]))
        position = np.empty(len(domains), dtype=np.int64)
        position[domains] = np.arange(len(domains))
    assert position is not None  # a topology has a level
    finest = topology.domains[-1]
    late = np.where(finest == NONE, -1, np.append(position, 0)[finest])
    return -_TIE_STEP * late


def _sums_by_level(topology: SnapshotTopology, table: Ints) -> list[Ints]:
    """Return the sums of a table by node, [domain, column], for each level."""
    found = []
    for paths, domains in zip(topology.paths, topology.domains, strict=True):
        sums = np.zeros((len(paths), table.shape[1]), dtype=np.int64)
        np.add.at(sums, domains[domains != NONE], table[domains != NONE])
        found.append(sums)
    return found


def _children(parents: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(max(parents, default=-1) + 1)]
    for domain, parent in enumerate(parents):
        found[parent].append(domain)
    return found


def _parents(topology: SnapshotTopology) -> list[Ints]:
    found: list[Ints] = []
    for level, paths in enumerate(topology.paths):
        parent = np.zeros(len(paths), dtype=np.int64)
        if level:
            here = topology.domains[level]
            parent[here[here != NONE]] = topology.domains[level - 1][here != NONE]
        found.append(parent)
    return found
