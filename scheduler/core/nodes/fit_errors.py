"""Fit errors: how many nodes cannot take a pod, and why; each node counts for its first reason."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from scheduler.core.gang.tasks_to_allocate import SignatureRuns
from scheduler.core.model.failures import FitErrorReason, FitErrors, UnschedulableReason
from scheduler.core.model.podgroup import ReservedPlace, SchedulingSignature
from scheduler.core.model.resources import NONE, Bools, Ints, total
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.capacity import count_fitting_pods
from scheduler.core.nodes.placement import PlacementFailure
from scheduler.core.nodes.predicates import DYNAMIC_PREDICATES, STATIC_PREDICATES, has_value
from scheduler.core.nodes.ranking import NodeRanking
from scheduler.core.nodes.statement import Statement

__all__ = [
    "collect_fit_errors",
]


def collect_fit_errors(
    statement: Statement, field: NodeRanking, failure: PlacementFailure, signatures: SignatureRuns
) -> FitErrors:
    """Look at all nodes as the pod did for which there was none; then roll the ledger back."""
    evicted, left = _nodes_by_reason(statement, field)
    counts = {fit_error_reason: int(nodes.sum()) for fit_error_reason, nodes in evicted.items()}
    requested = [(r, n) for r, n in enumerate(field.signature.request) if n]
    small = _small(statement.snapshot, field.signature, evicted)
    insufficient = {r: int((left & (statement.free[:, r] < n)).sum()) for r, n in requested}
    here = statement.free[left]
    _deallocate(
        statement,
        [reserved_place for at, reserved_place in failure.reserved_places if at > failure.placed],
    )
    after = statement.free[left]
    statement.roll_back(failure.checkpoint)
    _deallocate(statement, [reserved_place for _, reserved_place in failure.reserved_places])
    own = _own_counts(statement, field.signature, evicted)
    before = statement.free[left]
    statement.roll_back(failure.checkpoint)
    alike = _count_unplaced(statement, signatures, failure)
    whole = statement.snapshot.nodes.allocatable[left]
    return FitErrors(
        reason=_reason(before, _wanted(statement, signatures)),
        signature=failure.signature,
        placed=failure.placed,
        needed=sum([count for _, count in signatures]),
        counts=counts,
        own_counts=own,
        taints=_taints(statement.snapshot, field.signature, evicted),
        keys=_keys(statement.snapshot, field.signature, evicted),
        too_small={r: len(has) for r, has in small.items()},
        largest_allocatable={r: max(has) for r, has in small.items()},
        insufficient={r: n for r, n in insufficient.items() if n},
        largest_free={r: int(here[:, r].max(initial=0)) for r, _ in requested},
        total_free={r: total(np.maximum(here[:, r], 0)) for r, _ in requested},
        unplaced=alike,
        fitting=count_fitting_pods(whole - (before - after), field.signature),
        is_resolvable=FitErrorReason.ROOM in counts,
    )


def _nodes_by_reason(
    statement: Statement, field: NodeRanking
) -> tuple[dict[FitErrorReason, Bools], Bools]:
    """Return the nodes by what is in the way there, and those of which only room is missing."""
    evicted: dict[FitErrorReason, Bools] = {}
    left = np.ones(len(statement.idle), dtype=np.bool_)
    for fit_error_reason, mask in _masks(statement, field):
        if (left & ~mask).any():
            evicted[fit_error_reason] = left & ~mask
        left = left & mask
    if left.any():
        evicted[FitErrorReason.ROOM] = left
    return evicted, left


def _masks(statement: Statement, field: NodeRanking) -> list[tuple[FitErrorReason, Bools]]:
    signature = field.signature
    masks = [
        (fit_error_reason, rule(statement.snapshot, signature))
        for fit_error_reason, rule in STATIC_PREDICATES
    ]
    masks += [
        (fit_error_reason, rule(statement, signature))
        for fit_error_reason, is_needed, rule in DYNAMIC_PREDICATES
        if is_needed(signature)
    ]
    return masks


def _taints(
    snapshot: Snapshot, signature: SchedulingSignature, evicted: dict[FitErrorReason, Bools]
) -> dict[int, int]:
    """Count the nodes that were lost to each taint."""
    if FitErrorReason.TAINT not in evicted:
        return {}
    here = snapshot.nodes.taints[evicted[FitErrorReason.TAINT]].sum(axis=0).tolist()
    return {
        taint: n for taint, n in enumerate(here) if n and taint not in signature.tolerated_taints
    }


def _keys(
    snapshot: Snapshot, signature: SchedulingSignature, evicted: dict[FitErrorReason, Bools]
) -> dict[str, int]:
    """Count the nodes that were lost to each label: no alternative holds there, and it is wrong."""
    if FitErrorReason.SELECTOR not in evicted:
        return {}
    labels, names = (
        snapshot.nodes.labels[evicted[FitErrorReason.SELECTOR]],
        snapshot.nodes.key_names,
    )
    wrong: dict[str, Bools] = {}
    for alternatives in signature.node_affinity:
        is_out = np.ones(len(labels), dtype=np.bool_)
        of_entry: dict[str, Bools] = {}
        for terms in alternatives:
            fails = np.zeros(len(labels), dtype=np.bool_)
            for need in terms:
                misses = ~has_value(labels, need)
                fails |= misses
                name = need.label or names[need.key]
                of_entry[name] = of_entry.get(name, misses) | misses
            is_out &= fails
        for name, misses in of_entry.items():
            wrong[name] = wrong.get(name, False) | (misses & is_out)
    counts = {name: int(nodes.sum()) for name, nodes in wrong.items()}
    return {name: n for name, n in counts.items() if n}


def _small(
    snapshot: Snapshot, signature: SchedulingSignature, evicted: dict[FitErrorReason, Bools]
) -> dict[int, list[int]]:
    """Return for each resource what nodes have that have too little of it even when empty."""
    if FitErrorReason.TOO_SMALL not in evicted:
        return {}
    whole = snapshot.nodes.allocatable[evicted[FitErrorReason.TOO_SMALL]]
    requested = ((r, whole[:, r], n) for r, n in enumerate(signature.request) if n)
    return {r: has[has < n].tolist() for r, has, n in requested if (has < n).any()}


def _deallocate(statement: Statement, reserved_places: Iterable[ReservedPlace]) -> None:
    for reserved_place in reserved_places:
        statement.deallocate(reserved_place.node, reserved_place.signature)


def _own_counts(
    statement: Statement, signature: SchedulingSignature, evicted: dict[FitErrorReason, Bools]
) -> dict[FitErrorReason, int]:
    """Count the nodes that were lost to it, and are open as long as its chunk is nowhere."""
    moving = [(it, rule) for it, _, rule in DYNAMIC_PREDICATES if it in evicted]
    passed = np.ones(len(statement.idle), dtype=np.bool_)
    for _, rule in moving:
        passed &= rule(statement, signature)
    own = {it: int((evicted[it] & passed).sum()) for it, _ in moving}
    return {it: n for it, n in own.items() if n}


def _count_unplaced(
    statement: Statement, signatures: SignatureRuns, failure: PlacementFailure
) -> int:
    """Count the pods without a place that ask for the same; a promise of a node does not matter."""
    every = statement.snapshot.signatures
    it = replace(every[failure.signature], nominated_node=NONE)
    found, passed = 0, 0
    for signature, count in signatures:
        passed += count
        left = min(count, passed - failure.placed)
        if left > 0 and replace(every[signature], nominated_node=NONE) == it:
            found += left
    return found


def _wanted(statement: Statement, signatures: SignatureRuns) -> dict[int, int]:
    needed_pods: dict[int, int] = {}
    for signature, count in signatures:
        for r, n in enumerate(statement.snapshot.signatures[signature].request):
            if n:
                needed_pods[r] = needed_pods.get(r, 0) + count * n
    return needed_pods


def _reason(room: Ints, needed_pods: dict[int, int]) -> UnschedulableReason:
    """Judge by the nodes of which only room is missing, as they are without the chunk."""
    if not len(room):
        return UnschedulableReason.NO_NODE_MATCHES
    would_do = all(total(np.maximum(room[:, r], 0)) >= n for r, n in needed_pods.items())
    return UnschedulableReason.FRAGMENTED if would_do else UnschedulableReason.NO_CAPACITY
