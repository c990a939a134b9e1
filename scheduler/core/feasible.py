"""Which nodes a pod may go to, one rule a function; each returns the nodes that it lets pass.

What only depends on the node itself is `fixed`: it is worked out once for each shape. The rest
changes while pods are placed.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.core.decision import Obstacle
from scheduler.core.ledger import Ledger
from scheduler.core.model import (
    NONE,
    Bools,
    Ints,
    NodeFault,
    Require,
    Shape,
    Snapshot,
    Spread,
)

__all__ = ["FIXED", "MOVING", "fixed", "has_value", "is_unmoved", "moving", "until_uneven"]

FixedRule = Callable[[Snapshot, Shape], Bools]
MovingRule = Callable[[Ledger, Shape], Bools]
Codes = NDArray[np.int32]


def fixed(snapshot: Snapshot, shape: Shape) -> Bools:
    """Return the nodes that can take a pod when they are empty, [node]."""
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for _, rule in FIXED:
        mask &= rule(snapshot, shape)
    return mask


def moving(ledger: Ledger, shape: Shape) -> Bools | None:
    """Return the nodes that others on them leave open, [node]; nothing if that is all of them."""
    mask: Bools | None = None
    for _, is_asked, rule in MOVING:
        if is_asked(shape):
            passed = rule(ledger, shape)
            mask = passed if mask is None else mask & passed
    return mask


def is_unmoved(shape: Shape) -> bool:
    """Say whether no other pod matters to it, but for the room."""
    return not any(is_asked(shape) for _, is_asked, _ in MOVING)


def _without_fault(fault: NodeFault) -> FixedRule:
    def passes(snapshot: Snapshot, _shape: Shape) -> Bools:
        return np.not_equal(snapshot.nodes.fault, fault)

    return passes


def _tolerated(snapshot: Snapshot, shape: Shape) -> Bools:
    taints = snapshot.nodes.taints
    feared = [t for t in range(taints.shape[1]) if t not in shape.tolerates]
    return ~_any(taints[:, feared])


def _selected(snapshot: Snapshot, shape: Shape) -> Bools:
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for alternatives in shape.any_of:
        one = np.zeros(len(mask), dtype=np.bool_)
        for terms in alternatives:
            one |= _all_hold(snapshot, terms)
        mask &= one
    return mask


def _all_hold(snapshot: Snapshot, terms: tuple[Require, ...]) -> Bools:
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for need in terms:
        mask &= has_value(snapshot.nodes.labels, need)
    return mask


def has_value(labels: Codes, need: Require) -> Bools:
    """Return the nodes whose label is as it is asked for, [node]."""
    if not (need.codes and len(labels)):  # there may be no column
        return np.full(len(labels), need.is_not)
    values = labels[:, need.key]
    # By code; the last is that of no value. So this is three times as fast as `isin`.
    is_meant = np.full(max(int(values.max()), *need.codes) + 2, need.is_not)
    is_meant[list(need.codes)] = not need.is_not
    return is_meant[values]


def _large_enough(snapshot: Snapshot, shape: Shape) -> Bools:
    if shape.lacking:
        return np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
    request = np.array(shape.request)
    asked = np.flatnonzero(request)
    return _all(snapshot.nodes.allocatable[:, asked] >= request[asked])


def _claims_free(ledger: Ledger, shape: Shape) -> Bools:
    mask = np.ones(len(ledger.idle), dtype=np.bool_)
    for claim in shape.own_claims:
        if ledger.claim_users[claim]:
            mask[:] = False
    for claim in shape.claims:
        node = ledger.claim_node[claim]
        if node != NONE:
            mask &= np.arange(len(mask)) == node
    return mask


def _ports_free(ledger: Ledger, shape: Shape) -> Bools:
    return ~_any(ledger.ports[:, list(shape.avoids)] > 0)


def _all(table: Bools) -> Bools:
    """Return of each row whether all of it is true."""
    rows: Bools = np.logical_and.reduce(table, axis=1)
    return rows


def _any(table: Bools) -> Bools:
    """Return of each row whether something of it is true."""
    rows: Bools = np.logical_or.reduce(table, axis=1)
    return rows


def _per_domain(values: Codes | Ints, domain: Codes) -> tuple[Ints, Ints]:
    """Return how many there are in the domain of each node, and on all nodes that have one."""
    inside = domain >= 0
    sums = np.bincount(domain[inside], weights=values[inside], minlength=1).astype(np.int64)
    return np.where(inside, sums[np.where(inside, domain, 0)], 0), sums


def _near_friends(ledger: Ledger, shape: Shape) -> Bools:
    labels = ledger.snapshot.nodes.labels
    mask = np.ones(len(labels), dtype=np.bool_)
    has_any = False
    for selector, key in shape.near:
        domain = labels[:, key]
        here, sums = _per_domain(ledger.counts[selector], domain)
        has_any |= bool(sums.any())
        mask &= np.greater(here, 0)
    if has_any or not shape.is_own_neighbour:
        return mask
    return _all(labels[:, [term.key for term in shape.near]] >= 0)


def _far_from_foes(ledger: Ledger, shape: Shape) -> Bools:
    labels = ledger.snapshot.nodes.labels
    mask = np.ones(len(labels), dtype=np.bool_)
    for foes, key in _foes(ledger, shape):
        here, _ = _per_domain(foes, labels[:, key])
        mask &= np.equal(here, 0)
    return mask


def _foes(ledger: Ledger, shape: Shape) -> Iterator[tuple[Ints, int]]:
    """Yield whom it keeps away from and who keeps away from it, [node], by label of places."""
    for key, selectors, terms in ledger.foes(shape):
        held = terms[ledger.held[terms] > 0]  # what pods say that wait concerns nobody yet
        yield ledger.counts[selectors].sum(axis=0) + ledger.holders[held].sum(axis=0), key


def _evenly_spread(ledger: Ledger, shape: Shape) -> Bools:
    mask = np.ones(len(ledger.idle), dtype=np.bool_)
    for spread in shape.spread:
        mask &= _within_skew(ledger, shape, spread)
    return mask


def until_uneven(ledger: Ledger, shape: Shape, node: int) -> float:
    """Return how many more pods a node takes for sure before their spread opens or closes any.

    As long as no domain has too many, more pods only raise what is the least.
    """
    found = math.inf
    for spread in shape.spread:
        if spread.selector in shape.matches:
            skew = _skew(ledger, shape, spread)
            has_label = ledger.snapshot.nodes.labels[:, spread.key] >= 0
            is_even = bool((skew[has_label] <= spread.max_skew).all())
            found = min(found, spread.max_skew - int(skew[node]) + 1 if is_even else 1)
    return found


def _within_skew(ledger: Ledger, shape: Shape, spread: Spread) -> Bools:
    has_label = ledger.snapshot.nodes.labels[:, spread.key] >= 0
    passed: Bools = has_label & (_skew(ledger, shape, spread) <= spread.max_skew)
    return passed


def _skew(ledger: Ledger, shape: Shape, spread: Spread) -> Ints:
    """Return how uneven it would be with one more pod on a node, [node]."""
    snapshot = ledger.snapshot
    domain = snapshot.nodes.labels[:, spread.key]
    # A node counts only if it has the label of every constraint, as in Kubernetes.
    counted = _all(snapshot.nodes.labels[:, [s.key for s in shape.spread]] >= 0)
    if spread.honours_affinity:
        counted &= _selected(snapshot, shape)
    if spread.honours_taints:
        counted &= _tolerated(snapshot, shape)
    here, _ = _per_domain(np.where(counted, ledger.counts[spread.selector], 0), domain)
    least = int(here[counted].min()) if counted.any() else 0
    if spread.min_domains > len(np.unique(domain[counted])):
        least = 0
    return here + spread.counts_itself - least


FIXED: Final[tuple[tuple[Obstacle, FixedRule], ...]] = (
    (Obstacle.CORDONED, _without_fault(NodeFault.CORDONED)),
    (Obstacle.NOT_READY, _without_fault(NodeFault.NOT_READY)),
    (Obstacle.PRESSURE, _without_fault(NodeFault.PRESSURE)),
    (Obstacle.NO_NETWORK, _without_fault(NodeFault.NO_NETWORK)),
    (Obstacle.TAINT, _tolerated),
    (Obstacle.SELECTOR, _selected),
    (Obstacle.TOO_SMALL, _large_enough),
)

MOVING: Final[tuple[tuple[Obstacle, Callable[[Shape], bool], MovingRule], ...]] = (
    (Obstacle.CLAIM, lambda shape: bool(shape.claims or shape.own_claims), _claims_free),
    (Obstacle.PORT, lambda shape: bool(shape.avoids), _ports_free),
    (Obstacle.AFFINITY, lambda shape: bool(shape.near), _near_friends),
    (Obstacle.ANTI_AFFINITY, lambda shape: bool(shape.apart or shape.shunned), _far_from_foes),
    (Obstacle.SPREAD, lambda shape: bool(shape.spread), _evenly_spread),
)
