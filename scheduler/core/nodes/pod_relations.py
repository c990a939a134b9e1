"""Relations of pods: where others are that they want to be near, or apart from, or take turns with.

Pods that are placed change them, and with them which nodes are open to other pods. These dynamic
predicates are one function a rule, each returns a node mask.
"""

import math
from collections.abc import Callable, Container, Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import SchedulingSignature, SpreadConstraint
from scheduler.core.model.rejections import FitErrorReason
from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.predicates import LabelCodes, all_of, any_of, selected, tolerated
from scheduler.core.nodes.statement import Change, Participant

# A topology key, selectors, terms.
AntiAffinityGroup: TypeAlias = tuple[int, NDArray[np.intp], NDArray[np.intp]]
_AntiAffinityCache: TypeAlias = dict[int, tuple[SchedulingSignature, list[AntiAffinityGroup]]]


class PodRelationCounts(Participant):
    """How many pods of which relations are on which node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot: Final = snapshot
        self.change_count = 0
        relations = snapshot.pod_relations
        self.selector_counts: Final = relations.selector_counts.copy()
        self.anti_affinity_counts: Final = relations.anti_affinity_counts.copy()
        self.anti_affinity_totals: Final[Ints] = self.anti_affinity_counts.sum(axis=1)  # [term]
        terms = np.array(relations.anti_affinity_terms, dtype=np.intp).reshape(-1, 2)
        self._terms: Final = (terms[:, 0], terms[:, 1])  # of each its selector, and its label
        # By identity of the signature.
        self._anti_affinity: Final[_AntiAffinityCache] = {}
        self.ports: Final = snapshot.nodes.ports.copy()
        self.claim_node: Final = list(relations.claim_node)
        self.claim_users: Final = list(relations.claim_users)

    def concerns(self, signature: int, /) -> bool:
        """Say whether the node of a pod matters to other pods."""
        it = self.snapshot.signatures[signature]
        return bool(
            it.matched_selectors
            or it.anti_affinity
            or it.host_ports
            or it.rwo_claims
            or it.rwop_claims
        )

    def add(self, change: Change, /) -> None:
        if not change.is_eviction:
            self._add(change.node, change.signature, change.pod_count)

    def anti_affinity_of(self, signature: SchedulingSignature) -> list[AntiAffinityGroup]:
        """Return the selectors that pods exclude, and the terms that exclude them, by key."""
        known = self._anti_affinity.get(id(signature))
        if known is None:
            groups = [*self._anti_affinity_groups(signature)]
            known = self._anti_affinity[id(signature)] = signature, groups
        return known[1]

    def passing(self, signature: SchedulingSignature) -> Bools | None:
        """Return the nodes that other pods leave open, [node]; None if that is all of them."""
        mask: Bools | None = None
        for _, is_needed, rule in DYNAMIC_PREDICATES:
            if is_needed(signature):
                passed = rule(self, signature)
                mask = passed if mask is None else mask & passed
        return mask

    def why_not(
        self, signature: SchedulingSignature, among: Container[FitErrorReason] | None = None
    ) -> Iterator[tuple[FitErrorReason, Bools]]:
        """Yield for each reason that may close nodes to a pod the nodes that it leaves open."""
        for reason, is_needed, rule in DYNAMIC_PREDICATES:
            if is_needed(signature) and (among is None or reason in among):
                yield reason, rule(self, signature)

    def pods_until_skewed(self, signature: SchedulingSignature, node: int) -> float:
        """Return how many more pods a node takes before their topology spread changes any node.

        As long as no domain has too many, more pods only raise what is the least.
        """
        found = math.inf
        for spread in signature.spread_constraints:
            if spread.selector in signature.matched_selectors:
                skew = _skew(self, signature, spread)
                has_label = self.snapshot.nodes.labels[:, spread.key] >= 0
                is_even = bool((skew[has_label] <= spread.max_skew).all())
                found = min(found, spread.max_skew - int(skew[node]) + 1 if is_even else 1)
        return found

    def _anti_affinity_groups(self, signature: SchedulingSignature) -> Iterator[AntiAffinityGroup]:
        selector_of, key_of = self._terms
        own, existing = (
            np.array(it, dtype=np.intp)
            for it in (signature.anti_affinity, signature.existing_anti_affinity)
        )
        for key in np.unique(np.concatenate((key_of[own], key_of[existing]))).tolist():
            yield key, selector_of[own[key_of[own] == key]], existing[key_of[existing] == key]

    def _add(self, node: int, row: int, count: int) -> None:
        self.change_count += 1
        signature = self.snapshot.signatures[row]
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


DynamicPredicate: TypeAlias = Callable[[PodRelationCounts, SchedulingSignature], Bools]


def has_no_relations(signature: SchedulingSignature) -> bool:
    """Say whether other pods close no node to a pod but by their resources."""
    return not any(is_needed(signature) for _, is_needed, _ in DYNAMIC_PREDICATES)


def _claims_free(counts: PodRelationCounts, signature: SchedulingSignature) -> Bools:
    mask = np.ones(len(counts.ports), dtype=np.bool_)
    for claim in signature.rwop_claims:
        if counts.claim_users[claim]:
            mask[:] = False
    for claim in signature.rwo_claims:
        node = counts.claim_node[claim]
        if node != NONE:
            mask &= np.arange(len(mask)) == node
    return mask


def _ports_free(counts: PodRelationCounts, signature: SchedulingSignature) -> Bools:
    return ~any_of(counts.ports[:, list(signature.conflicting_ports)] > 0)


def _per_domain(values: LabelCodes | Ints, domain: LabelCodes) -> tuple[Ints, Ints]:
    """Return how many there are in the domain of each node, and on all nodes that have one."""
    inside = domain >= 0
    sums = np.bincount(domain[inside], weights=values[inside], minlength=1).astype(np.int64)
    return np.where(inside, sums[np.where(inside, domain, 0)], 0), sums


def _affinity_satisfied(counts: PodRelationCounts, signature: SchedulingSignature) -> Bools:
    labels = counts.snapshot.nodes.labels
    mask = np.ones(len(labels), dtype=np.bool_)
    has_any = False
    for selector, key in signature.affinity:
        domain = labels[:, key]
        here, sums = _per_domain(counts.selector_counts[selector], domain)
        has_any |= bool(sums.any())
        mask &= np.greater(here, 0)
    if has_any or not signature.matches_own_affinity:
        return mask
    return all_of(labels[:, [term.key for term in signature.affinity]] >= 0)


def _anti_affinity_satisfied(counts: PodRelationCounts, signature: SchedulingSignature) -> Bools:
    labels = counts.snapshot.nodes.labels
    mask = np.ones(len(labels), dtype=np.bool_)
    for anti_affinity, key in _anti_affinity_by_label(counts, signature):
        here, _ = _per_domain(anti_affinity, labels[:, key])
        mask &= np.equal(here, 0)
    return mask


def _anti_affinity_by_label(
    counts: PodRelationCounts, signature: SchedulingSignature
) -> Iterator[tuple[Ints, int]]:
    """Yield how many pods exclude it or are excluded by it, [node], for each topology key."""
    for key, selectors, terms in counts.anti_affinity_of(signature):
        present = terms[counts.anti_affinity_totals[terms] > 0]  # not terms of pending pods only
        yield (
            counts.selector_counts[selectors].sum(axis=0)
            + counts.anti_affinity_counts[present].sum(axis=0),
            key,
        )


def _evenly_spread(counts: PodRelationCounts, signature: SchedulingSignature) -> Bools:
    mask = np.ones(len(counts.ports), dtype=np.bool_)
    for spread in signature.spread_constraints:
        mask &= _within_skew(counts, signature, spread)
    return mask


def _within_skew(
    counts: PodRelationCounts, signature: SchedulingSignature, spread: SpreadConstraint
) -> Bools:
    has_label = counts.snapshot.nodes.labels[:, spread.key] >= 0
    passed: Bools = has_label & (_skew(counts, signature, spread) <= spread.max_skew)
    return passed


def _skew(
    counts: PodRelationCounts, signature: SchedulingSignature, spread: SpreadConstraint
) -> Ints:
    """Return how uneven it would be with one more pod on a node, [node]."""
    snapshot = counts.snapshot
    domain = snapshot.nodes.labels[:, spread.key]
    # A node counts only if it has the label of every constraint, as in Kubernetes.
    counted = all_of(snapshot.nodes.labels[:, [s.key for s in signature.spread_constraints]] >= 0)
    if spread.honours_affinity:
        counted &= selected(snapshot, signature)
    if spread.honours_taints:
        counted &= tolerated(snapshot, signature)
    here, _ = _per_domain(np.where(counted, counts.selector_counts[spread.selector], 0), domain)
    least = int(here[counted].min()) if counted.any() else 0
    if spread.min_domains > len(np.unique(domain[counted])):
        least = 0
    return here + spread.counts_itself - least


DYNAMIC_PREDICATES: Final[
    tuple[tuple[FitErrorReason, Callable[[SchedulingSignature], bool], DynamicPredicate], ...]
] = (
    (
        FitErrorReason.CLAIM,
        lambda signature: bool(signature.rwo_claims or signature.rwop_claims),
        _claims_free,
    ),
    (FitErrorReason.PORT, lambda signature: bool(signature.conflicting_ports), _ports_free),
    (FitErrorReason.AFFINITY, lambda signature: bool(signature.affinity), _affinity_satisfied),
    (
        FitErrorReason.ANTI_AFFINITY,
        lambda signature: bool(signature.anti_affinity or signature.existing_anti_affinity),
        _anti_affinity_satisfied,
    ),
    (FitErrorReason.SPREAD, lambda signature: bool(signature.spread_constraints), _evenly_spread),
)
