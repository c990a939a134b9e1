"""What is free in the domains of a topology, and which of them are the fullest, in arrays.

Sums by domain are updated for the nodes that have changed, so that one more PodGroup costs what the
one before it has changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.resources import NONE, Bools, Floats, Ints, ResourceKind
from scheduler.core.model.snapshot import NodeFault, Snapshot
from scheduler.core.model.topology import SnapshotTopology
from scheduler.core.nodes.devices import NodeDevices
from scheduler.core.nodes.node_resources import UNLIMITED, NodeResources
from scheduler.core.nodes.predicates import fits_empty_node
from scheduler.core.nodes.statement import Statement

if TYPE_CHECKING:
    from scheduler.core.model.podgroup import SchedulingSignature

_RESUM_ALL_RATIO: Final = 4  # up to this part of the nodes is updated one by one
_MAX_FITTING: Final = 64  # signatures; for each the nodes are counted
_TIE_STEP: Final = 1e-10  # less than any difference of scores that means something


class NodesInUse(NamedTuple):
    snapshot: Snapshot
    resources: NodeResources
    devices: NodeDevices
    statement: Statement


class DomainRequest(NamedTuple):
    """What pods request together."""

    # By signature; nominated nodes make no difference.
    counts: SignatureRuns
    amounts: Ints  # [resource]
    gpu_shares: int  # thousandths of GPUs, beside whole ones
    places: Ints | None = None  # nodes with places that are reserved for some of the pods


def domain_request(
    nodes: NodesInUse, runs: SignatureRuns, places: Sequence[int] = ()
) -> DomainRequest:
    signatures = nodes.snapshot.signatures
    counts: dict[SchedulingSignature, list[int]] = {}
    amounts = np.zeros(len(nodes.snapshot.resources.names), dtype=np.int64)
    gpu_shares = 0
    for row, count in runs:
        one = signatures[row]
        alike = one if one.nominated_node == NONE else replace(one, nominated_node=NONE)
        counts.setdefault(alike, [row, 0])[1] += count
        amounts += count * np.array(one.request, dtype=np.int64)
        if nodes.devices.of[row]:
            gpu_shares += count * one.queue_request[ResourceKind.GPU]
    at = np.array(places, dtype=np.int64) if places else None
    return DomainRequest(tuple([(row, n) for row, n in counts.values()]), amounts, gpu_shares, at)


class _SumsByDomain:
    """A table by node, and its sums by domain, for each level."""

    def __init__(self, topology: SnapshotTopology, table: Ints) -> None:
        self.table = table  # [node, column]
        self._domains: Final = topology.domains
        self._sizes: Final = [len(paths) for paths in topology.paths]
        self.levels = self._sums(None)

    def update(self, rows: Ints, values: Ints) -> None:
        if len(rows) * _RESUM_ALL_RATIO > len(self.table):
            self.table[rows] = values
            self.levels = self._sums(None)
            return
        more = values - self.table[rows]
        self.table[rows] = values
        for at, sums in zip(self._domains[:, rows], self.levels, strict=True):
            is_in = at != NONE
            np.add.at(sums, at[is_in], more[is_in])

    def of_level(self, level: int, inside: Bools | None) -> Ints:
        """Return the sums of a level, [domain, column]; only of nodes *inside*, if these are some.

        The level NONE has one domain, the whole cluster.
        """
        if level == NONE:
            table = self.table if inside is None else self.table[inside]
            total: Ints = table.sum(axis=0, keepdims=True)
            return total
        return self.levels[level] if inside is None else self._level_sums(level, inside)

    def _sums(self, inside: Bools | None) -> list[Ints]:
        return [self._level_sums(level, inside) for level in range(len(self._sizes))]

    def _level_sums(self, level: int, inside: Bools | None) -> Ints:
        sums = np.zeros((self._sizes[level], self.table.shape[1]), dtype=np.int64)
        is_in = self._domains[level] != NONE
        if inside is not None:
            is_in = is_in & inside
        np.add.at(sums, self._domains[level][is_in], self.table[is_in])
        return sums


class _FittingPods:
    """How many pods of one signature fit, by node and by domain."""

    def __init__(self, nodes: NodesInUse, topology: SnapshotTopology, signature: int) -> None:
        self._nodes: Final = nodes
        self._signature: Final = signature
        self._requests: Final = nodes.resources.requests(signature)
        self._is_open: Final = fits_empty_node(nodes.snapshot, nodes.snapshot.signatures[signature])
        every = np.arange(len(self._is_open))
        self.sums: Final = _SumsByDomain(topology, self._fitting(every))
        self._seen = len(nodes.statement.changed_nodes)

    def refresh(self) -> None:
        rows, self._seen = changed_since(self._nodes.statement, self._seen)
        rows = rows[self._is_open[rows]]
        if len(rows):
            self.sums.update(rows, self._fitting(rows))

    def _fitting(self, rows: Ints) -> Ints:
        """Return how many pods fit on some nodes, [node, 1]."""
        free = self._nodes.resources.free[rows]
        fitting: Ints = np.full(len(rows), UNLIMITED, dtype=np.int64)
        if self._requests:
            columns = [r for r, _ in self._requests]
            each = free[:, columns] // np.array([n for _, n in self._requests])
            fitting = each.min(axis=1).clip(min=0)
        for devices in self._nodes.devices.of[self._signature]:
            most = [
                devices.fitting_on(self._signature, node, row)
                for node, row in zip(rows.tolist(), free.tolist(), strict=True)
            ]
            fitting = np.minimum(fitting, np.array(most, dtype=np.int64))
        return np.where(self._is_open[rows], fitting, 0)[:, None]


class TopologyDomains:
    def __init__(self, nodes: NodesInUse, topology: SnapshotTopology) -> None:
        self.topology: Final = topology
        self._nodes: Final = nodes
        # By level, the domain of the wider level that each domain is in.
        self.parents: Final = _parents(topology)
        self._free: _SumsByDomain | None = None
        self._seen = 0
        self._fitting: Final[dict[int, _FittingPods]] = {}  # by signature

    def members(self, level: int, domain: int) -> Bools:
        found: Bools = self.topology.domains[level] == domain
        return found

    def fits(self, request: DomainRequest, level: int, inside: Bools | None = None) -> Bools:
        """Say for each domain of a level whether its free resources could be enough.

        If not, they are not. If they are, pods that differ, relations between pods or devices may
        be in the way.
        """
        enough = np.ones(self._size(level), dtype=np.bool_)
        for signature, count in request.counts:
            enough &= self.fitting(signature, level, inside) >= count - self._places(request, level)
        if len(request.counts) > 1 and request.places is None:
            requested = np.flatnonzero(request.amounts)
            free = self._free_sums().of_level(level, inside)[:, requested]
            enough &= (free >= request.amounts[requested]).all(axis=1)
        return enough

    def fitting(self, signature: int, level: int, inside: Bools | None = None) -> Ints:
        """Return how many pods of a signature fit in each domain of a level, [domain]."""
        pods = self._fitting.get(signature)
        if pods is None:
            if len(self._fitting) >= _MAX_FITTING:  # the oldest one is dropped
                del self._fitting[next(iter(self._fitting))]
            pods = self._fitting[signature] = _FittingPods(self._nodes, self.topology, signature)
        pods.refresh()
        return pods.sums.of_level(level, inside)[:, 0]

    def order(self, request: DomainRequest, base: int, inside: Bools | None = None) -> list[Ints]:
        """Return for each level down to *base* its domains, the fullest first.

        Domains of one wider domain stand together, and these domains are in their own order.
        """
        found: list[Ints] = []
        position: Ints | None = None  # of the domains of the level above
        for level in range(base + 1):
            ratio = self._ratio(request, level, inside)
            keys = (-ratio,) if position is None else (-ratio, position[self.parents[level]])
            domains: Ints = np.lexsort(keys)
            position = np.empty(len(domains), dtype=np.int64)
            position[domains] = np.arange(len(domains))
            found.append(domains)
        return found

    def _ratio(self, request: DomainRequest, level: int, inside: Bools | None) -> Floats:
        """Return what part of the free amount is requested, of the scarcest resource, [domain]."""
        columns = self._nodes.snapshot.resources
        free = self._free_sums().of_level(level, inside)
        requested = [r for r in np.flatnonzero(request.amounts).tolist() if r != columns.pods]
        ratio = np.zeros(len(free), dtype=np.float64)
        pairs = [(request.amounts[r], free[:, r]) for r in requested]
        if request.gpu_shares:
            gpus = list(columns.gpus)
            amount = request.gpu_shares + request.amounts[gpus].sum()
            pairs.append((amount, free[:, gpus].sum(axis=1)))
        for amount, of_domain in pairs:
            part = np.full(len(free), np.inf)
            np.divide(amount, of_domain, out=part, where=of_domain > 0)
            ratio = np.maximum(ratio, part)
        return ratio

    def _size(self, level: int) -> int:
        return 1 if level == NONE else len(self.topology.paths[level])

    def _places(self, request: DomainRequest, level: int) -> Ints | int:
        """Return how many places in each domain are reserved for the pods themselves."""
        if request.places is None:
            return 0
        if level == NONE:
            return len(request.places)
        at = self.topology.domains[level][request.places]
        counts: Ints = np.bincount(at[at != NONE], minlength=self._size(level))
        return counts

    def _free_sums(self) -> _SumsByDomain:
        statement = self._nodes.statement
        if self._free is None:
            every = np.arange(len(self._nodes.resources.free))
            self._free = _SumsByDomain(self.topology, self._free_of(every))
            self._seen = len(statement.changed_nodes)
            return self._free
        rows, self._seen = changed_since(statement, self._seen)
        if len(rows):
            self._free.update(rows, self._free_of(rows))
        return self._free

    def _free_of(self, rows: Ints) -> Ints:
        """Return what is free of each resource on some nodes; nothing where no pods may be."""
        takes_pods = self._nodes.snapshot.nodes.fault[rows] == NodeFault.NONE
        free: Ints = np.where(takes_pods[:, None], self._nodes.resources.free[rows].clip(min=0), 0)
        return free


def changed_since(statement: Statement, seen: int) -> tuple[Ints, int]:
    """Return the nodes that changed since so many changes were seen, and how many there are now."""
    changed = statement.changed_nodes
    if seen == len(changed):
        return np.zeros(0, dtype=np.int64), seen
    return np.array([*{*changed[seen:]}], dtype=np.int64), len(changed)


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
    sums, parents = _SumsByDomain(topology, table).levels, _parents(topology)
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


def _parents(topology: SnapshotTopology) -> list[Ints]:
    found: list[Ints] = []
    for level, paths in enumerate(topology.paths):
        parent = np.zeros(len(paths), dtype=np.int64)
        if level:
            here = topology.domains[level]
            parent[here[here != NONE]] = topology.domains[level - 1][here != NONE]
        found.append(parent)
    return found
