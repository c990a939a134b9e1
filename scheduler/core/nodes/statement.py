"""The statement: a working copy of the nodes; each change can be rolled back exactly.

A reader that caches something about nodes finds in `changed_nodes` which nodes have changed since.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.devices import WHOLE_GPU, DeviceChoice, DeviceShares, Slots

# A topology key, selectors, terms.
AntiAffinityGroup: TypeAlias = tuple[int, NDArray[np.intp], NDArray[np.intp]]
_AntiAffinityCache: TypeAlias = dict[int, tuple[SchedulingSignature, list[AntiAffinityGroup]]]


class StatementEntry(NamedTuple):
    """One change: so many pods of a signature are added to a node, or, if negative, removed."""

    node: int
    signature: int
    pod_count: int
    on_idle: bool  # from idle as well, not only from free
    is_eviction: bool = False  # its relations to other pods stay
    slots: Slots = ()  # the shared GPUs of a pod with shares


class Statement:
    def __init__(self, snapshot: Snapshot, *, spreads_shares: bool = False) -> None:
        self.snapshot: Final = snapshot
        self.idle: Final[Ints] = snapshot.nodes.idle.copy()
        self.free: Final[Ints] = self.idle + snapshot.nodes.releasing  # for pods that can wait
        self.changed_nodes: Final[list[int]] = []  # nodes, in the order in which they changed
        self.relation_changes = 0  # how often relations, ports or claims changed
        self.selector_counts: Final = snapshot.pod_relations.selector_counts.copy()
        self.anti_affinity_counts: Final = snapshot.pod_relations.anti_affinity_counts.copy()
        self.anti_affinity_totals: Final[Ints] = self.anti_affinity_counts.sum(axis=1)  # [term]
        terms = np.array(snapshot.pod_relations.anti_affinity_terms, dtype=np.intp).reshape(-1, 2)
        self._terms: Final = (terms[:, 0], terms[:, 1])  # of each its selector, and its label
        # By identity of the signature.
        self._anti_affinity: Final[_AntiAffinityCache] = {}
        self.ports: Final = snapshot.nodes.ports.copy()
        self.claim_node: Final = list(snapshot.pod_relations.claim_node)
        self.claim_users: Final = list(snapshot.pod_relations.claim_users)
        self._requests: Final = [_request_arrays(signature) for signature in snapshot.signatures]
        self._has_relations: Final = [
            _has_relations(signature) for signature in snapshot.signatures
        ]
        self.devices: Final = DeviceShares(snapshot, spreads=spreads_shares)
        self._pods: Final = snapshot.resources.pods
        self._log: Final[list[StatementEntry]] = []

    @property
    def checkpoint(self) -> int:
        return len(self._log)

    def requests(self, signature: int) -> tuple[tuple[int, int], ...]:
        """Return how much of which resource a pod requests, where that is not zero."""
        return self._requests[signature][1]

    def anti_affinity_of(self, signature: SchedulingSignature) -> list[AntiAffinityGroup]:
        """Return the selectors that pods exclude, and the terms that exclude them, by key."""
        known = self._anti_affinity.get(id(signature))
        if known is None:
            groups = [*self._anti_affinity_groups(signature)]
            known = self._anti_affinity[id(signature)] = signature, groups
        return known[1]

    def _anti_affinity_groups(self, signature: SchedulingSignature) -> Iterator[AntiAffinityGroup]:
        selector_of, key_of = self._terms
        own, existing = (
            np.array(it, dtype=np.intp)
            for it in (signature.anti_affinity, signature.existing_anti_affinity)
        )
        for key in np.unique(np.concatenate((key_of[own], key_of[existing]))).tolist():
            yield key, selector_of[own[key_of[own] == key]], existing[key_of[existing] == key]

    def allocate(
        self, node: int, signature: int, *, on_idle: bool, count: int = 1, slots: Slots = ()
    ) -> None:
        self._write(StatementEntry(node, signature, count, on_idle, False, slots))  # noqa: FBT003

    def deallocate(self, node: int, signature: int, slots: Slots = ()) -> None:
        """Remove a pod from a node; its resources are idle."""
        self._write(StatementEntry(node, signature, -1, on_idle=True, slots=slots))

    def evict(self, node: int, signature: int, slots: Slots = ()) -> None:
        """Evict a pod: its resources are releasing, and its relations to other pods stay."""
        self._write(
            StatementEntry(node, signature, -1, on_idle=False, is_eviction=True, slots=slots)
        )

    def pipeline(self, node: int, signature: int, count: int = 1, slots: Slots = ()) -> None:
        """Let pods that were added to a node wait for what is being released there."""
        self._write(StatementEntry(node, signature, -count, on_idle=True, slots=slots))
        self._write(StatementEntry(node, signature, count, on_idle=False, slots=slots))

    def reserve(self, nodes: Ints, amounts: Ints) -> None:
        """Subtract amounts from what is free on nodes; this is not rolled back."""
        np.subtract.at(self.free, nodes, amounts)
        self.changed_nodes.extend(nodes.tolist())

    def reserve_shares(self, node: int, signature: int, slots: Slots, sign: int) -> None:
        """Reserve shares of GPUs on a node, or, with sign -1, no more; this is not rolled back."""
        self._add_shares(node, slots, sign * self.devices.share(signature, node), on_idle=False)
        self.changed_nodes.append(node)

    def choose_devices(
        self, node: int, signature: int, *, is_counted: bool = False
    ) -> DeviceChoice | None:
        """Return the GPUs of a node for a pod with shares, or None if it does not fit there.

        If the pod *is_counted*, all but its shares is subtracted from what is free.
        """
        free = self.free[node].tolist()
        free[self._pods] += is_counted
        return self.devices.choose(signature, node, free, self.idle[node].tolist())

    def roll_back(self, checkpoint: int) -> None:
        while len(self._log) > checkpoint:
            entry = self._log.pop()
            self._apply(entry._replace(pod_count=-entry.pod_count))

    def fits_idle(self, node: int, signature: int) -> bool:
        return has_enough(self.idle[node].tolist(), self._requests[signature][1])

    def was_last_allocated(self, node: int, signature: int) -> bool:
        last = self._log[-1] if self._log else None
        return last is not None and last[:2] == (node, signature) and last.pod_count > 0

    def _write(self, entry: StatementEntry) -> None:
        self._log.append(entry)
        self._apply(entry)

    def _apply(self, entry: StatementEntry) -> None:
        node, signature, count, on_idle, is_eviction, slots = entry
        request = self._requests[signature][0]
        change = np.subtract if count > 0 else np.add
        if count not in (1, -1):  # of most there is one
            request = abs(count) * request
        free = self.free[node]
        change(free, request, free)
        if on_idle:
            idle = self.idle[node]
            change(idle, request, idle)
        if slots:
            share = count * self.devices.share(signature, node)
            self._add_shares(node, slots, share, on_idle=on_idle)
        self.changed_nodes.append(node)
        if self._has_relations[signature] and not is_eviction:
            self._update_relations(node, self.snapshot.signatures[signature], count)

    def _add_shares(self, node: int, slots: Slots, amount: int, *, on_idle: bool) -> None:
        """Add to shared GPUs, and count GPUs that begin or cease to be shared as whole GPUs.

        A GPU that begins to be shared also takes a place for its reservation pod.
        """
        column = self.devices.column[node]
        if column == NONE:
            return  # the node has lost its GPUs
        for is_now, gpus, is_new in self.devices.add(node, slots, amount, changes_now=on_idle):
            amounts = self.idle if is_now else self.free
            amounts[node, column] -= gpus * WHOLE_GPU
            amounts[node, self._pods] -= gpus * is_new

    def _update_relations(self, node: int, signature: SchedulingSignature, count: int) -> None:
        self.relation_changes += 1
        self.selector_counts[list(signature.matched_selectors), node] += count
        self.anti_affinity_counts[list(signature.anti_affinity), node] += count
        self.anti_affinity_totals[list(signature.anti_affinity)] += count
        self.ports[node, list(signature.host_ports)] += count
        for claim in (*signature.rwo_claims, *signature.rwop_claims):
            self.claim_users[claim] += count
            if count > 0:
                self.claim_node[claim] = node
            elif self.claim_users[claim] == 0:
                self.claim_node[claim] = NONE


def has_enough(amounts: list[int], requested: tuple[tuple[int, int], ...]) -> bool:
    for resource, amount in requested:  # noqa: SIM110 - called for every pod, and so twice as fast
        if amounts[resource] < amount:
            return False
    return True


def _request_arrays(signature: SchedulingSignature) -> tuple[Ints, tuple[tuple[int, int], ...]]:
    requested = tuple((r, amount) for r, amount in enumerate(signature.request) if amount)
    return np.array(signature.request, dtype=np.int64), requested


def _has_relations(signature: SchedulingSignature) -> bool:
    """Say whether the node of a pod matters to other pods."""
    return bool(
        signature.matched_selectors
        or signature.anti_affinity
        or signature.host_ports
        or signature.rwo_claims
        or signature.rwop_claims
    )
