"""What a snapshot says, by names: two that say the same may differ in their rows and codes.

It is for tests and for debug mode: as large as the cluster, and slow to make.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from scheduler.core.feasible import has_value
from scheduler.core.model import NONE, Leaf, Require, Term, Tree
from scheduler.state.encoded import Encoded

__all__ = ["Said", "difference", "said"]

Said: TypeAlias = Mapping[str, Any]


def difference(one: Encoded, other: Encoded) -> str | None:
    """Return the first thing that two snapshots do not agree on."""
    return _first("snapshot", said(one), said(other))


def said(encoded: Encoded) -> Said:
    """Return all that a snapshot says."""
    return _Reader(encoded).read()


def _first(path: str, one: Any, other: Any) -> str | None:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in (*one, *(name for name in other if name not in one)):
            found = _first(f"{path}.{name}", one.get(name), other.get(name))
            if found:
                return found
        return None
    return None if one == other else f"{path}: {one!r}, not {other!r}"


class _Reader:
    """Turns rows into names."""

    def __init__(self, encoded: Encoded) -> None:
        self._encoded: Final = encoded
        self._snapshot: Final = encoded.snapshot
        self._nodes: Final = encoded.snapshot.nodes.names
        self._units: Final = [str(key) for key in encoded.units]
        self._shapes: Final[dict[int, Said]] = {}

    def read(self) -> Said:
        """Return everything."""
        snapshot, encoded = self._snapshot, self._encoded
        return {
            "axes": (snapshot.axes.names, snapshot.axes.kinds, snapshot.axes.weights),
            "order": (self._nodes, snapshot.queues.names, tuple(self._units)),
            "nodes": self._read_nodes(),
            "devices": self._devices(),
            "selectors": self._by_node(encoded.selectors, snapshot.neighbours.counts),
            "holders": self._by_node(self._terms, snapshot.neighbours.holders),
            "ports": self._by_node(encoded.ports, snapshot.nodes.ports.T),
            "claims": {
                str(claim): (self._node(node), users)
                for claim, node, users in zip(
                    encoded.claims,
                    snapshot.neighbours.claim_node,
                    snapshot.neighbours.claim_users,
                    strict=True,
                )
            },
            "queues": self._queues(),
            "units": self._read_units(),
            "pods": self._pods(),
            "budgets": dict(zip(snapshot.budgets.names, snapshot.budgets.allowed, strict=True)),
            "total": snapshot.total,
            "now": snapshot.now,
            "strays": sorted(encoded.strays),
            "reserved": {self._units[row]: text for row, text in encoded.reserved.items()},
        }

    def _node(self, row: int) -> str | None:
        return None if row == NONE else self._nodes[row]

    def _by_node(self, names: Iterable[object], table: Any) -> Said:
        """Return the rows of a table without their zeros."""
        return {
            str(name): {self._nodes[n]: int(row[n]) for n in np.flatnonzero(row).tolist()}
            for name, row in zip(names, table, strict=True)
        }

    def _read_nodes(self) -> Said:
        nodes, names = self._snapshot.nodes, self._snapshot.axes.names
        columns = (nodes.allocatable, nodes.idle, nodes.releasing)
        return {
            name: {
                **dict(zip(names, np.stack([it[n] for it in columns], 1).tolist(), strict=True)),
                "fault": int(nodes.fault[n]),
                "taints": _named(nodes.taint_names, np.flatnonzero(nodes.taints[n]).tolist()),
            }
            for n, name in enumerate(nodes.names)
        }

    def _devices(self) -> Said:
        devices = self._snapshot.devices
        amounts = (devices.used, devices.releasing, devices.memory)
        rows = zip(devices.node.tolist(), devices.ids, *amounts, strict=True)
        return {f"{self._nodes[node]}/{name}": [*map(int, has)] for node, name, *has in rows}

    def _queues(self) -> Said:
        queues = self._snapshot.queues
        columns = ("quota", "limit", "weight", "allocated", "fixed", "requested")
        return {
            name: {
                "parent": None if queues.parent[q] == NONE else queues.names[queues.parent[q]],
                "priority": queues.priority[q],
                "min_s": [it[q] for it in (queues.preempt_min_s, queues.reclaim_min_s) if it],
                "is_quota_only": bool(queues.is_quota_only) and queues.is_quota_only[q],
                **{column: getattr(queues, column)[q].tolist() for column in columns},
                "going": {self._node(it.node): it.amounts for it in queues.going if it.queue == q},
            }
            for q, name in enumerate(queues.names)
        }

    def _pods(self) -> Said:
        pods = self._snapshot.pods
        return {
            str(self._encoded.pods[row]): {
                "unit": self._units[pods.unit[row]],
                "node": self._node(int(pods.node[row])),
                "state": int(pods.state[row]),
                "shape": self._shape(int(pods.shape[row])),
                "budgets": self._covering(row),
            }
            for row in np.flatnonzero(pods.unit != NONE).tolist()
        }

    def _covering(self, pod: int) -> list[str]:
        budgets = self._snapshot.budgets
        row = budgets.of[pod] if budgets.names else NONE
        return [] if row == NONE else [budgets.names[it] for it in budgets.sets[row]]

    def _read_units(self) -> Said:
        queues = self._snapshot.queues.names
        return {
            name: {
                "name": unit.name,
                "queue": None if unit.queue == NONE else queues[unit.queue],
                "standing": (unit.priority, unit.is_preemptible, unit.is_kept, unit.stale_at),
                "bar": unit.bar,
                "growth_bar": unit.growth_bar,
                "leaves": (unit.bundle, unit.stays, unit.may_move),
                "whole": (unit.is_moving, unit.is_partly_done),
                "moments": (unit.since, unit.saved, unit.patient_until, unit.patience),
                "tree": self._tree(unit.tree),
            }
            for name, unit in zip(self._units, self._snapshot.units, strict=True)
        }

    def _tree(self, tree: Tree) -> Said:
        if not isinstance(tree, Leaf):
            children = {child.name: self._tree(child) for child in tree.children}
            return {"name": tree.name, "minimum": tree.minimum, "children": children}
        return {
            "name": tree.name,
            "minimum": tree.minimum,
            "waiting": [str(self._encoded.pods[pod]) for pod in tree.waiting],
            "counts": (tree.there, tree.succeeded, tree.later, tree.gated),
            "slots": [
                (self._nodes[slot.node], self._shape(slot.shape), slot.cause) for slot in tree.slots
            ],
            "later": None if tree.later_shape == NONE else self._shape(tree.later_shape),
        }

    def _shape(self, row: int) -> Said:
        if row not in self._shapes:
            self._shapes[row] = self._read_shape(row)
        return self._shapes[row]

    def _read_shape(self, row: int) -> Said:
        snapshot, encoded = self._snapshot, self._encoded
        it, taints = snapshot.shapes[row], snapshot.nodes.taint_names
        return {
            "request": dict(zip(snapshot.axes.names, it.request, strict=True)),
            "counted": (*it.counted, it.has_gpu, it.devices, it.share),
            "lacking": it.lacking,
            "tolerates": _named(taints, it.tolerates),
            "any_of": {
                frozenset(frozenset(map(self._require, needs)) for needs in alternatives)
                for alternatives in it.any_of
            },
            "nominated": self._node(it.nominated),
            "ports": [_named(encoded.ports, rows) for rows in (it.takes, it.avoids)],
            "matches": _named(encoded.selectors, it.matches),
            "near": ({self._term(term) for term in it.near}, it.is_own_neighbour),
            "apart": [_named(self._terms, rows) for rows in (it.apart, it.shunned)],
            "spread": [(self._term(Term(*one[:2])), one[2:]) for one in it.spread],
            "claims": [_named(encoded.claims, rows) for rows in (it.claims, it.own_claims)],
        }

    def _require(self, need: Require) -> tuple[str, frozenset[str]]:
        nodes = self._snapshot.nodes
        found = _named(self._nodes, np.flatnonzero(has_value(nodes.labels, need)).tolist())
        return need.label or nodes.key_names[need.key], found

    @cached_property
    def _terms(self) -> list[object]:
        return [self._term(term) for term in self._snapshot.neighbours.terms]

    def _term(self, term: Term) -> tuple[object, ...]:
        """Return who is meant, and which nodes are one place."""
        nodes = self._snapshot.nodes
        places: dict[int, list[str]] = {}
        for name, code in zip(self._nodes, nodes.labels[:, term.key].tolist(), strict=True):
            places.setdefault(code, []).append(name)
        near = frozenset(tuple(names) for code, names in places.items() if code != NONE)
        return self._encoded.selectors[term.selector], nodes.key_names[term.key], near


def _named(names: Any, rows: Iterable[int]) -> frozenset[Any]:
    return frozenset(names[row] for row in rows)
