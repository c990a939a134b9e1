"""The domains of the nodes in each Topology, as arrays that are updated node by node.

Nodes with equal labels down to a level are one domain of it. A node that lacks the label of any
level is left out of the topology, as in KAI.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.topology import DomainPath, SnapshotTopology
from scheduler.state.nodes.node_table import NodeTable
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.kai_kinds import Topology, TopologySpec
from trainer_kai.api.validate import topology_faults

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEW_CHANGES: Final = 32  # nodes that are cheaper one by one than all at once


class TopologyTable:
    """The valid Topologies, in the order of their names."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.faults: dict[str, str] = {}  # of Topologies that are left out
        self._specs: dict[str, TopologySpec] = {}
        self._domains: dict[str, _Domains] = {}

    def read_topologies(self, topologies: Mapping[str, Topology], nodes: NodeTable) -> bool:
        """Read all Topologies; say whether any has changed."""
        faults = {
            name: "; ".join(str(fault) for fault in found)
            for name, it in topologies.items()
            if (found := topology_faults(it))
        }
        specs = {name: topologies[name].spec for name in sorted(topologies) if name not in faults}
        if specs == self._specs and faults == self.faults:
            return False
        kept = {name: it for name, it in self._domains.items() if specs.get(name) == it.spec}
        self._domains = {name: kept.get(name) or _Domains(specs[name]) for name in specs}
        for name, domains in self._domains.items():
            if name not in kept:
                domains.read_all(nodes.nodes)
        self.names, self.faults, self._specs = tuple(specs), faults, specs
        return True

    def read_nodes(self, nodes: NodeTable) -> None:
        """Read the nodes that have changed since the last time."""
        for domains in self._domains.values():
            domains.read(nodes)

    def spec(self, name: str) -> TopologySpec | None:
        return self._specs.get(name)

    def table(self) -> tuple[SnapshotTopology, ...]:
        return tuple([it.table(name) for name, it in self._domains.items()])


class _Domains:
    """The domains of one topology; those of a level are in the order of their paths."""

    def __init__(self, spec: TopologySpec) -> None:
        self.spec: Final = spec
        self._labels: Final = tuple(level.node_label for level in spec.levels)
        self._paths: list[list[DomainPath]] = []  # [level][domain]
        self._counts: list[list[int]] = []  # of nodes, [level][domain]
        self._domains: NDArray[np.int32] = np.zeros((len(self._labels), 0), dtype=np.int32)
        self._table: SnapshotTopology | None = None

    def table(self, name: str) -> SnapshotTopology:
        if self._table is None:
            self._domains.flags.writeable = False  # it is copied before it changes
            paths = tuple([tuple(level) for level in self._paths])
            self._table = SnapshotTopology(name, self._labels, self._domains, paths)
        return self._table

    def read_all(self, nodes: Iterable[Node]) -> None:
        paths = [self._path(node) for node in nodes]
        size = len(paths)
        self._domains = np.full((len(self._labels), size), NONE, dtype=np.int32)
        self._paths, self._counts, self._table = [], [], None
        present = [(row, path) for row, path in enumerate(paths) if path is not None]
        rows = [row for row, _ in present]
        for level in range(len(self._labels)):
            own = [path[: level + 1] for _, path in present]
            known = sorted({*own})
            number = {path: domain for domain, path in enumerate(known)}
            domains = np.array([number[path] for path in own], dtype=np.int32)
            self._domains[level, rows] = domains
            self._paths.append(known)
            self._counts.append(np.bincount(domains, minlength=len(known)).tolist())

    def read(self, nodes: NodeTable) -> None:
        rows = nodes.relabelled_rows
        if len(rows) > _FEW_CHANGES:
            self.read_all(nodes.nodes)
            return
        if nodes.new_row_of_old is not None:
            self._renumber(nodes.new_row_of_old[:-1], len(nodes))
        for row in rows:
            self._put(row, self._path(nodes.nodes[row]))

    def _path(self, node: Node) -> DomainPath | None:
        labels = node.metadata.labels
        path = tuple([labels[name] for name in self._labels if name in labels])
        return path if len(path) == len(self._labels) else None

    def _renumber(self, row_of_old: Ints, size: int) -> None:
        for row in np.flatnonzero(row_of_old == NONE).tolist():
            self._put(row, None)
        before, is_kept = self._domains, row_of_old != NONE
        self._domains = np.full((len(self._labels), size), NONE, dtype=np.int32)
        self._domains[:, row_of_old[is_kept]] = before[:, is_kept]
        self._table = None

    def _put(self, row: int, path: DomainPath | None) -> None:
        finest = int(self._domains[-1, row])
        if path == (None if finest == NONE else self._paths[-1][finest]):
            return
        if self._table is not None:
            self._domains, self._table = self._domains.copy(), None
        if finest != NONE:
            self._take_out(row)
        if path is not None:
            self._put_in(row, path)

    def _take_out(self, row: int) -> None:
        for paths, counts, domains in zip(self._paths, self._counts, self._domains, strict=True):
            at = int(domains[row])
            domains[row] = NONE
            counts[at] -= 1
            if not counts[at]:
                del paths[at], counts[at]
                domains[domains > at] -= 1

    def _put_in(self, row: int, path: DomainPath) -> None:
        levels = zip(self._paths, self._counts, self._domains, strict=True)
        for level, (paths, counts, domains) in enumerate(levels):
            own = path[: level + 1]
            at = bisect_left(paths, own)
            if at == len(paths) or paths[at] != own:
                paths.insert(at, own)
                counts.insert(at, 0)
                domains[domains >= at] += 1
            counts[at] += 1
            domains[row] = at
