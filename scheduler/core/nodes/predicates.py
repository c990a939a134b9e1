"""Predicates: on which nodes a pod can be placed; one function a rule, each returns a node mask.

Static predicates depend on the node alone and are evaluated once for each signature. Dynamic ones
change while pods are placed.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import LabelRequirement, SchedulingSignature, SpreadConstraint
from scheduler.core.model.rejections import FitErrorReason
from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.core.model.snapshot import GpuMode, NodeFault, Snapshot
from scheduler.core.nodes.devices import WHOLE_GPU, share_on_nodes, whole_gpus
from scheduler.core.nodes.statement import Statement

StaticPredicate = Callable[[Snapshot, SchedulingSignature], Bools]
DynamicPredicate = Callable[[Statement, SchedulingSignature], Bools]
LabelCodes = NDArray[np.int32]


def fits_empty_node(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    """Return the nodes that can take a pod when they are empty, [node]."""
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for _, rule in STATIC_PREDICATES:
        mask &= rule(snapshot, signature)
    return mask


def passes_dynamic(statement: Statement, signature: SchedulingSignature) -> Bools | None:
    """Return the nodes that other pods leave open, [node]; None if that is all of them."""
    mask: Bools | None = None
    for _, is_needed, rule in DYNAMIC_PREDICATES:
        if is_needed(signature):
            passed = rule(statement, signature)
            mask = passed if mask is None else mask & passed
    return mask


def has_no_relations(signature: SchedulingSignature) -> bool:
    return not any(is_needed(signature) for _, is_needed, _ in DYNAMIC_PREDICATES)


def _without_fault(fault: NodeFault) -> StaticPredicate:
    def passes(snapshot: Snapshot, _signature: SchedulingSignature) -> Bools:
        return np.not_equal(snapshot.nodes.fault, fault)

    return passes


def _tolerated(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    taints = snapshot.nodes.taints
    untolerated = [t for t in range(taints.shape[1]) if t not in signature.tolerated_taints]
    return ~_any(taints[:, untolerated])


def _selected(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for alternatives in signature.node_affinity:
        one = np.zeros(len(mask), dtype=np.bool_)
        for terms in alternatives:
            one |= _all_hold(snapshot, terms)
        mask &= one
    return mask


def _all_hold(snapshot: Snapshot, terms: tuple[LabelRequirement, ...]) -> Bools:
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for requirement in terms:
        mask &= has_value(snapshot.nodes.labels, requirement)
    return mask


def has_value(labels: LabelCodes, requirement: LabelRequirement) -> Bools:
    """Return the nodes with a label that meets a requirement, [node]."""
    if not (requirement.codes and len(labels)):  # there may be no column
        return np.full(len(labels), requirement.is_negated)
    values = labels[:, requirement.key]
    # Indexed by label code, the last entry for nodes without the label: three times as fast as
    # `isin`.
    is_meant = np.full(max(int(values.max()), *requirement.codes) + 2, requirement.is_negated)
    is_meant[list(requirement.codes)] = not requirement.is_negated
    return is_meant[values]


def _offers_form(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    """Return the nodes that offer GPUs in the form that a pod requests: whole, shares or MIG."""
    mode = snapshot.nodes.gpu_mode
    if signature.requests_mig:
        is_mig: Bools = (mode == GpuMode.MIG) | (mode == GpuMode.MIG_MIXED)
        return is_mig & ~snapshot.nodes.closed_to_mig
    if signature.shared_devices:
        return np.equal(mode, GpuMode.WHOLE)
    if signature.has_gpu:
        return np.not_equal(mode, GpuMode.MIG_MIXED)
    return np.ones(len(mode), dtype=np.bool_)


def _knows_gpu_memory(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    memory = snapshot.nodes.gpu_memory
    if signature.device_memory and not signature.device_share:
        return np.greater(memory, 0)
    return np.ones(len(memory), dtype=np.bool_)


def _large_enough(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    if signature.unknown_resources:
        return np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
    request = np.array(signature.request)
    requested = np.flatnonzero(request)
    mask = _all(snapshot.nodes.allocatable[:, requested] >= request[requested])
    if signature.shared_devices:
        places = snapshot.nodes.allocatable[:, snapshot.resources.pods]
        mask &= places > signature.shared_devices  # for itself and reservation pods
        mask &= whole_gpus(snapshot) >= signature.shared_devices
        mask &= share_on_nodes(snapshot, signature) <= WHOLE_GPU
    return mask


def _claims_free(statement: Statement, signature: SchedulingSignature) -> Bools:
    mask = np.ones(len(statement.idle), dtype=np.bool_)
    for claim in signature.rwop_claims:
        if statement.claim_users[claim]:
            mask[:] = False
    for claim in signature.rwo_claims:
        node = statement.claim_node[claim]
        if node != NONE:
            mask &= np.arange(len(mask)) == node
    return mask


def _ports_free(statement: Statement, signature: SchedulingSignature) -> Bools:
    return ~_any(statement.ports[:, list(signature.conflicting_ports)] > 0)


def _all(table: Bools) -> Bools:
    rows: Bools = np.logical_and.reduce(table, axis=1)
    return rows


def _any(table: Bools) -> Bools:
    rows: Bools = np.logical_or.reduce(table, axis=1)
    return rows


def _per_domain(values: LabelCodes | Ints, domain: LabelCodes) -> tuple[Ints, Ints]:
    """Return how many there are in the domain of each node, and on all nodes that have one."""
    inside = domain >= 0
    sums = np.bincount(domain[inside], weights=values[inside], minlength=1).astype(np.int64)
    return np.where(inside, sums[np.where(inside, domain, 0)], 0), sums


def _affinity_satisfied(statement: Statement, signature: SchedulingSignature) -> Bools:
    labels = statement.snapshot.nodes.labels
    mask = np.ones(len(labels), dtype=np.bool_)
    has_any = False
    for selector, key in signature.affinity:
        domain = labels[:, key]
        here, sums = _per_domain(statement.selector_counts[selector], domain)
        has_any |= bool(sums.any())
        mask &= np.greater(here, 0)
    if has_any or not signature.matches_own_affinity:
        return mask
    return _all(labels[:, [term.key for term in signature.affinity]] >= 0)


def _anti_affinity_satisfied(statement: Statement, signature: SchedulingSignature) -> Bools:
    labels = statement.snapshot.nodes.labels
    mask = np.ones(len(labels), dtype=np.bool_)
    for anti_affinity, key in _anti_affinity_by_label(statement, signature):
        here, _ = _per_domain(anti_affinity, labels[:, key])
        mask &= np.equal(here, 0)
    return mask


def _anti_affinity_by_label(
    statement: Statement, signature: SchedulingSignature
) -> Iterator[tuple[Ints, int]]:
    """Yield how many pods exclude it or are excluded by it, [node], for each topology key."""
    for key, selectors, terms in statement.anti_affinity_of(signature):
        present = terms[statement.anti_affinity_totals[terms] > 0]  # not terms of pending pods only
        yield (
            statement.selector_counts[selectors].sum(axis=0)
            + statement.anti_affinity_counts[present].sum(axis=0),
            key,
        )


def _evenly_spread(statement: Statement, signature: SchedulingSignature) -> Bools:
    mask = np.ones(len(statement.idle), dtype=np.bool_)
    for spread in signature.spread_constraints:
        mask &= _within_skew(statement, signature, spread)
    return mask


def pods_until_skewed(statement: Statement, signature: SchedulingSignature, node: int) -> float:
    """Return how many more pods a node takes before their topology spread changes any node.

    As long as no domain has too many, more pods only raise what is the least.
    """
    found = math.inf
    for spread in signature.spread_constraints:
        if spread.selector in signature.matched_selectors:
            skew = _skew(statement, signature, spread)
            has_label = statement.snapshot.nodes.labels[:, spread.key] >= 0
            is_even = bool((skew[has_label] <= spread.max_skew).all())
            found = min(found, spread.max_skew - int(skew[node]) + 1 if is_even else 1)
    return found


def _within_skew(
    statement: Statement, signature: SchedulingSignature, spread: SpreadConstraint
) -> Bools:
    has_label = statement.snapshot.nodes.labels[:, spread.key] >= 0
    passed: Bools = has_label & (_skew(statement, signature, spread) <= spread.max_skew)
    return passed


def _skew(statement: Statement, signature: SchedulingSignature, spread: SpreadConstraint) -> Ints:
    """Return how uneven it would be with one more pod on a node, [node]."""
    snapshot = statement.snapshot
    domain = snapshot.nodes.labels[:, spread.key]
    # A node counts only if it has the label of every constraint, as in Kubernetes.
    counted = _all(snapshot.nodes.labels[:, [s.key for s in signature.spread_constraints]] >= 0)
    if spread.honours_affinity:
        counted &= _selected(snapshot, signature)
    if spread.honours_taints:
        counted &= _tolerated(snapshot, signature)
    here, _ = _per_domain(np.where(counted, statement.selector_counts[spread.selector], 0), domain)
    least = int(here[counted].min()) if counted.any() else 0
    if spread.min_domains > len(np.unique(domain[counted])):
        least = 0
    return here + spread.counts_itself - least


STATIC_PREDICATES: Final[tuple[tuple[FitErrorReason, StaticPredicate], ...]] = (
    (FitErrorReason.CORDONED, _without_fault(NodeFault.CORDONED)),
    (FitErrorReason.NOT_READY, _without_fault(NodeFault.NOT_READY)),
    (FitErrorReason.PRESSURE, _without_fault(NodeFault.PRESSURE)),
    (FitErrorReason.NO_NETWORK, _without_fault(NodeFault.NO_NETWORK)),
    (FitErrorReason.TAINT, _tolerated),
    (FitErrorReason.SELECTOR, _selected),
    (FitErrorReason.GPU_MODE, _offers_form),
    (FitErrorReason.GPU_MEMORY, _knows_gpu_memory),
    (FitErrorReason.TOO_SMALL, _large_enough),
)

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
