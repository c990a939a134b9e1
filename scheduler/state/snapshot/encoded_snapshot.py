"""A snapshot with the names of its rows, and its dump by names.

The dump is for tests and for debug mode: two snapshots with the same dump may differ in rows and
encoding. It is as large as the cluster, and slow to make.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from scheduler.core.model.claims import PodClaim, slot_and_device
from scheduler.core.model.podgroup import AffinityTerm, LabelRequirement, PodSet, SubGroupTree
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.predicates import has_value
from scheduler.state.constraints.selectors import PodSelector
from scheduler.state.inputs import ObjectWarning
from trainer_kai.api.meta import Key
from trainer_kai.policy.pods.requests import PodHostPort


@dataclass(frozen=True)
class EncodedSnapshot:
    """A snapshot and the names of its rows; immutable."""

    snapshot: Snapshot
    pod_keys: tuple[Key, ...]  # by row; a row without a pod is in no PodGroup
    podgroup_keys: tuple[Key, ...]  # by row
    warnings: tuple[ObjectWarning, ...]  # what was left out, and why
    reserved: Mapping[int, str] = field(default_factory=dict)  # by PodGroup: its annotation
    selectors: tuple[PodSelector, ...] = ()  # by row of the pod relations
    ports: tuple[PodHostPort, ...] = ()  # by column of the nodes
    claims: tuple[Key, ...] = ()  # by row of the pod relations
    # The ResourceClaims of each pending pod, in the order of its spec; None is not there yet.
    claim_keys: Mapping[int, tuple[Key | None, ...]] = field(default_factory=dict)
    # The annotations of places in the line of PodGroups without pods, as they should be.
    outdated_lines: Mapping[Key, str] = field(default_factory=dict)
    # Of which claims ask for selectors that are not evaluated on all devices yet.
    unevaluated_namespaces: tuple[str, ...] = ()


SnapshotDump: TypeAlias = Mapping[str, Any]


def difference(one: EncodedSnapshot, other: EncodedSnapshot) -> str | None:
    return _first_difference("snapshot", dump(one), dump(other))


def dump(encoded: EncodedSnapshot) -> SnapshotDump:
    return _Dumper(encoded).dump()


def _first_difference(path: str, one: Any, other: Any) -> str | None:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in (*one, *(name for name in other if name not in one)):
            found = _first_difference(f"{path}.{name}", one.get(name), other.get(name))
            if found:
                return found
        return None
    return None if one == other else f"{path}: {one!r}, not {other!r}"


class _Dumper:
    def __init__(self, encoded: EncodedSnapshot) -> None:
        self._encoded: Final = encoded
        self._snapshot: Final = encoded.snapshot
        self._nodes: Final = encoded.snapshot.nodes.names
        self._podgroups: Final = [str(key) for key in encoded.podgroup_keys]
        self._signatures: Final[dict[int, SnapshotDump]] = {}

    def dump(self) -> SnapshotDump:
        snapshot, encoded = self._snapshot, self._encoded
        return {
            "axes": (
                snapshot.resources.names,
                snapshot.resources.kinds,
                snapshot.resources.weights,
            ),
            "order": (self._nodes, snapshot.queues.names, tuple(self._podgroups)),
            "nodes": self._dump_nodes(),
            "devices": self._dump_devices(),
            "claimed": self._dump_claim_devices(),
            "selectors": self._by_node(encoded.selectors, snapshot.pod_relations.selector_counts),
            "holders": self._by_node(self._terms, snapshot.pod_relations.anti_affinity_counts),
            "ports": self._by_node(encoded.ports, snapshot.nodes.ports.T),
            "claims": {
                str(claim): (self._node(node), users)
                for claim, node, users in zip(
                    encoded.claims,
                    snapshot.pod_relations.claim_node,
                    snapshot.pod_relations.claim_users,
                    strict=True,
                )
            },
            "topologies": self._dump_topologies(),
            "queues": self._dump_queues(),
            "units": self._dump_podgroups(),
            "pods": self._dump_pods(),
            "budgets": dict(zip(snapshot.budgets.names, snapshot.budgets.allowed, strict=True)),
            "total": snapshot.total,
            "now": snapshot.now,
            "strays": sorted(encoded.warnings),
            "lines": {
                self._podgroups[row]: (it._replace(nodes=()), tuple(map(self._node, it.nodes)))
                for row, it in snapshot.lines.items()
            },
            "outdated": encoded.outdated_lines,
            "reserved": {self._podgroups[row]: text for row, text in encoded.reserved.items()},
        }

    def _node(self, row: int) -> str | None:
        return None if row == NONE else self._nodes[row]

    def _by_node(self, names: Iterable[object], table: Any) -> Mapping[object, Any]:
        """Return the rows of a table without their zeros; texts of equal sets may differ."""
        return {
            name: {self._nodes[n]: int(row[n]) for n in np.flatnonzero(row).tolist()}
            for name, row in zip(names, table, strict=True)
        }

    def _dump_nodes(self) -> SnapshotDump:
        nodes, names = self._snapshot.nodes, self._snapshot.resources.names
        columns = (nodes.allocatable, nodes.idle, nodes.releasing)
        return {
            name: {
                **dict(zip(names, np.stack([it[n] for it in columns], 1).tolist(), strict=True)),
                "fault": int(nodes.fault[n]),
                "gpus": (
                    int(nodes.gpu_mode[n]),
                    int(nodes.gpu_memory[n]),
                    bool(nodes.closed_to_mig[n]),
                ),
                "taints": _named(nodes.taint_names, np.flatnonzero(nodes.taints[n]).tolist()),
            }
            for n, name in enumerate(nodes.names)
        }

    def _dump_topologies(self) -> SnapshotDump:
        return {
            it.name: (
                it.levels,
                [
                    [None if domain == NONE else paths[domain] for domain in domains.tolist()]
                    for paths, domains in zip(it.paths, it.domains, strict=True)
                ],
            )
            for it in self._snapshot.topologies
        }

    def _domains(self, tree: SubGroupTree) -> tuple[str, int, int, bool] | None:
        if tree.domains is None:
            return None
        row, required, preferred, is_default = tree.domains
        return self._snapshot.topologies[row].name, required, preferred, is_default

    def _dump_devices(self) -> SnapshotDump:
        devices = self._snapshot.devices
        flags = devices.made_up, devices.closed
        amounts = devices.used.tolist(), devices.releasing.tolist()
        rows = zip(devices.node.tolist(), devices.ids, *amounts, strict=True)
        return {
            f"{self._nodes[node]}/{name}": [*has, *(row in it for it in flags)]
            for row, (node, name, *has) in enumerate(rows)
        }

    def _dump_claim_devices(self) -> SnapshotDump:
        devices = self._snapshot.claim_devices
        return {
            "by_node": {
                str(name): (
                    self._nodes[node],
                    row in devices.taken,
                    row in devices.releasing,
                    [(devices.counters[it], n) for it, n in devices.counter_use.get(row, ())],
                )
                for row, (name, node) in enumerate(
                    zip(devices.names, devices.node.tolist(), strict=True)
                )
            },
            "left_out": dict(devices.left_out),
        }

    def _device_names(self, rows: Iterable[int]) -> list[str]:
        return sorted(str(self._snapshot.claim_devices.names[row]) for row in rows)

    def _claim(self, claim: PodClaim) -> tuple[object, ...]:
        """Return a claim with what its filters let through, and which values are one."""
        devices, usable = self._snapshot.claim_devices, self._snapshot.claim_devices.usable
        requests = [
            (
                it.name,
                [
                    (
                        one.name,
                        one.number,
                        devices.filters[one.filter],
                        self._device_names(np.flatnonzero(usable[one.filter]).tolist()),
                    )
                    for one in it.alternatives
                ],
            )
            for it in claim.requests
        ]
        constraints = [
            (sorted(it.slots), devices.attributes[it.attribute].tolist())
            for it in claim.constraints
        ]
        if claim.shared == NONE:
            return claim.name, requests, constraints
        it = devices.shared[claim.shared]
        shared = it.name, self._node(it.node), self._device_names(it.devices), it[3:]
        return claim.name, requests, constraints, shared

    def _gpus(self, node: int, slots: Iterable[int]) -> list[str]:
        devices = self._snapshot.devices
        first = int(np.searchsorted(devices.node, node))
        assert all(devices.node[first + slot] == node for slot in slots)
        return [devices.ids[first + slot] for slot in slots]

    def _dump_queues(self) -> SnapshotDump:
        queues = self._snapshot.queues
        columns = {
            "quota": queues.quota,
            "limit": queues.limit,
            "weight": queues.weight,
            "allocated": queues.allocated,
            "fixed": queues.non_preemptible,
            "requested": queues.requested,
        }
        return {
            name: {
                "parent": None if queues.parent[q] == NONE else queues.names[queues.parent[q]],
                "priority": queues.priority[q],
                "min_s": [it[q] for it in (queues.preempt_min_s, queues.reclaim_min_s) if it],
                "is_quota_only": bool(queues.is_quota_only) and queues.is_quota_only[q],
                **{name: column[q].tolist() for name, column in columns.items()},
                "going": {
                    self._node(it.node): it.amounts for it in queues.releasing if it.queue == q
                },
            }
            for q, name in enumerate(queues.names)
        }

    def _dump_pods(self) -> SnapshotDump:
        pods, slots_of_pod = self._snapshot.pods, self._snapshot.devices.slots_of_pod
        return {
            str(self._encoded.pod_keys[row]): {
                "unit": self._podgroups[pods.podgroup[row]],
                "node": self._node(int(pods.node[row])),
                "state": int(pods.state[row]),
                "shape": self._signature(int(pods.signature[row])),
                "budgets": self._budgets(row),
                "gpus": self._gpus(int(pods.node[row]), slots_of_pod.get(row, ())),
                "claimed": self._device_names(
                    slot_and_device(it)[1] for it in self._snapshot.claim_devices.held.get(row, ())
                ),
            }
            for row in np.flatnonzero(pods.podgroup != NONE).tolist()
        }

    def _budgets(self, pod: int) -> list[str]:
        budgets = self._snapshot.budgets
        row = budgets.set_of_pod[pod] if budgets.names else NONE
        return [] if row == NONE else [budgets.names[it] for it in budgets.sets[row]]

    def _dump_podgroups(self) -> SnapshotDump:
        queues = self._snapshot.queues.names
        return {
            name: {
                "name": podgroup.name,
                "queue": None if podgroup.queue == NONE else queues[podgroup.queue],
                "standing": (
                    podgroup.priority,
                    podgroup.is_preemptible,
                    podgroup.has_running,
                    podgroup.stale_at,
                ),
                "bar": podgroup.prefilter_failure,
                "growth_bar": podgroup.elastic_failure,
                "leaves": (
                    podgroup.workload,
                    podgroup.non_evictable_reason,
                    podgroup.may_relocate,
                ),
                "whole": (podgroup.is_relocating, podgroup.is_partly_succeeded),
                "moments": (
                    podgroup.running_since,
                    podgroup.checkpoint_at,
                    podgroup.preemption_delay_until,
                    podgroup.preemption_delay,
                ),
                "tree": self._tree(podgroup.tree),
            }
            for name, podgroup in zip(self._podgroups, self._snapshot.podgroups, strict=True)
        }

    def _tree(self, tree: SubGroupTree) -> SnapshotDump:
        if not isinstance(tree, PodSet):
            children = {child.name: self._tree(child) for child in tree.children}
            return {
                "name": tree.name,
                "minimum": tree.minimum,
                "children": children,
                "domains": self._domains(tree),
            }
        return {
            "name": tree.name,
            "minimum": tree.minimum,
            "domains": self._domains(tree),
            "waiting": [str(self._encoded.pod_keys[pod]) for pod in tree.pending],
            "counts": (tree.running, tree.succeeded, tree.expected, tree.gated),
            "slots": [
                (
                    self._nodes[place.node],
                    self._signature(place.signature),
                    place.cause,
                    self._gpus(place.node, place.slots),
                )
                for place in tree.reserved_places
            ],
            "later": None
            if tree.expected_signature == NONE
            else self._signature(tree.expected_signature),
        }

    def _signature(self, row: int) -> SnapshotDump:
        if row not in self._signatures:
            self._signatures[row] = self._dump_signature(row)
        return self._signatures[row]

    def _dump_signature(self, row: int) -> SnapshotDump:
        snapshot, encoded = self._snapshot, self._encoded
        it, taints = snapshot.signatures[row], snapshot.nodes.taint_names
        return {
            "request": dict(zip(snapshot.resources.names, it.request, strict=True)),
            "counted": (*it.queue_request, it.has_gpu, it.least_queue_request),
            "gpus": (it.shared_devices, it.device_share, it.device_memory, it.requests_mig),
            "lacking": it.unknown_resources,
            "tolerates": _named(taints, it.tolerated_taints),
            "any_of": {
                frozenset(frozenset(map(self._requirement, needs)) for needs in alternatives)
                for alternatives in it.node_affinity
            },
            "nominated": self._node(it.nominated_node),
            "avoided": [(self._node(one.node), one.until) for one in it.avoided_nodes],
            "ports": [
                _named(encoded.ports, rows) for rows in (it.host_ports, it.conflicting_ports)
            ],
            "matches": _named(encoded.selectors, it.matched_selectors),
            "near": ({self._term(term) for term in it.affinity}, it.matches_own_affinity),
            "apart": [
                _named(self._terms, rows) for rows in (it.anti_affinity, it.existing_anti_affinity)
            ],
            "spread": [
                (self._term(AffinityTerm(*one[:2])), one[2:]) for one in it.spread_constraints
            ],
            "devices": [self._claim(claim) for claim in it.claims],
            "claims": [_named(encoded.claims, rows) for rows in (it.rwo_claims, it.rwop_claims)],
        }

    def _requirement(self, need: LabelRequirement) -> tuple[str, frozenset[str]]:
        nodes = self._snapshot.nodes
        found = _named(self._nodes, np.flatnonzero(has_value(nodes.labels, need)).tolist())
        return need.label or nodes.key_names[need.key], found

    @cached_property
    def _terms(self) -> list[object]:
        return [self._term(term) for term in self._snapshot.pod_relations.anti_affinity_terms]

    def _term(self, term: AffinityTerm) -> tuple[object, ...]:
        nodes = self._snapshot.nodes
        places: dict[int, list[str]] = {}
        for name, code in zip(self._nodes, nodes.labels[:, term.key].tolist(), strict=True):
            places.setdefault(code, []).append(name)
        nodes_by_value = frozenset(tuple(names) for code, names in places.items() if code != NONE)
        return self._encoded.selectors[term.selector], nodes.key_names[term.key], nodes_by_value


def _named(names: Any, rows: Iterable[int]) -> frozenset[Any]:
    return frozenset(names[row] for row in rows)
