"""Fit errors: how many nodes cannot take a pod, and why; each node counts for its first reason."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.podgroup import ReservedPlace, SchedulingSignature
from scheduler.core.model.rejections import (
    FitErrorReason,
    FitErrors,
    MigRefusal,
    ReservationPodPlaces,
    ShareShortage,
)
from scheduler.core.model.resources import NONE, Bools, Ints, total
from scheduler.core.model.snapshot import GpuMode, Snapshot
from scheduler.core.nodes.capacity import count_fitting_pods
from scheduler.core.nodes.devices import WHOLE_GPU, DeviceShares, share_on_nodes
from scheduler.core.nodes.placement import PlacementFailure
from scheduler.core.nodes.predicates import DYNAMIC_PREDICATES, STATIC_PREDICATES, has_value
from scheduler.core.nodes.ranking import NodeRanking
from scheduler.core.nodes.statement import Statement
from trainer_kai.api.reasons import UnschedulableReason


class _WithoutAttempt(NamedTuple):
    """What is free without the attempt, and without the reserved places that its pods give up."""

    before: Ints  # [node, resource]
    free_shares: int
    fitting: int  # pods beside those of the attempt, if no others were there
    own_counts: dict[FitErrorReason, int]


class _FreeGpus(NamedTuple):
    """What a node has free of GPUs for a pod that requests shares, in thousandths."""

    node: int
    share: int  # of each GPU that the pod requests there
    free: int  # of each of so many GPUs as the pod requests: the ones with the most
    total: int
    new_gpus: int  # GPUs of the pod that no pod shares yet: each needs a reservation pod
    places: int  # for these


def collect_fit_errors(
    statement: Statement, ranking: NodeRanking, failure: PlacementFailure, signatures: SignatureRuns
) -> FitErrors:
    """Check all nodes for the pod that fits on none; then roll the statement back."""
    by_reason, left = _nodes_by_reason(statement, ranking)
    requested = [(r, n) for r, n in enumerate(ranking.signature.request) if n]
    too_small = _too_small(statement.snapshot, ranking.signature, by_reason)
    insufficient = {r: int((left & (statement.free[:, r] < n)).sum()) for r, n in requested}
    here, shortage = statement.free[left], _share_shortage(statement, ranking, left)
    without = _roll_back(statement, ranking, failure, by_reason)
    return FitErrors(
        reason=_reason(statement.snapshot, without.before, without.free_shares, signatures, left),
        signature=failure.signature,
        placed=failure.placed,
        needed=sum([count for _, count in signatures]),
        counts={reason: int(nodes.sum()) for reason, nodes in by_reason.items()},
        own_counts=without.own_counts,
        taints=_nodes_by_taint(statement.snapshot, ranking.signature, by_reason),
        keys=_nodes_by_label(statement.snapshot, ranking.signature, by_reason),
        too_small={r: len(has) for r, has in too_small.items()},
        largest_allocatable={r: max(has) for r, has in too_small.items()},
        insufficient={r: n for r, n in insufficient.items() if n},
        largest_free={r: int(here[:, r].max(initial=0)) for r, _ in requested},
        total_free={r: total(np.maximum(here[:, r], 0)) for r, _ in requested},
        unplaced=_count_unplaced(statement, signatures, failure),
        fitting=without.fitting,
        is_resolvable=FitErrorReason.ROOM in by_reason,
        share_shortage=shortage,
        mig_refusals=_mig_refusals(statement.snapshot, ranking.signature, by_reason),
    )


def _roll_back(
    statement: Statement,
    ranking: NodeRanking,
    failure: PlacementFailure,
    by_reason: dict[FitErrorReason, Bools],
) -> _WithoutAttempt:
    """Roll the statement back; nodes are those of which only free resources are too small."""
    left = by_reason.get(FitErrorReason.ROOM, np.zeros(len(statement.idle), dtype=np.bool_))
    places = failure.reserved_places
    _deallocate(statement, [place for at, place in places if at > failure.placed])
    after = statement.free.copy()
    statement.roll_back(failure.checkpoint)
    _deallocate(statement, [place for _, place in places])
    own_counts = _own_counts(statement, ranking.signature, by_reason)
    before, free_shares = statement.free.copy(), _free_shares(statement, left)
    statement.roll_back(failure.checkpoint)
    allocatable = statement.snapshot.nodes.allocatable - (before - after)
    fitting = count_fitting_pods(statement.snapshot, allocatable, ranking.signature, left)
    return _WithoutAttempt(before[left], free_shares, fitting, own_counts)


def _nodes_by_reason(
    statement: Statement, ranking: NodeRanking
) -> tuple[dict[FitErrorReason, Bools], Bools]:
    """Return the nodes by their first reason, and those of which only free resources are short."""
    by_reason: dict[FitErrorReason, Bools] = {}
    left = np.ones(len(statement.idle), dtype=np.bool_)
    for fit_error_reason, mask in _masks(statement, ranking):
        if (left & ~mask).any():
            by_reason[fit_error_reason] = left & ~mask
        left = left & mask
    if left.any():
        by_reason[FitErrorReason.ROOM] = left
    return by_reason, left


def _masks(statement: Statement, ranking: NodeRanking) -> list[tuple[FitErrorReason, Bools]]:
    signature = ranking.signature
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


def _nodes_by_taint(
    snapshot: Snapshot, signature: SchedulingSignature, by_reason: dict[FitErrorReason, Bools]
) -> dict[int, int]:
    if FitErrorReason.TAINT not in by_reason:
        return {}
    here = snapshot.nodes.taints[by_reason[FitErrorReason.TAINT]].sum(axis=0).tolist()
    return {
        taint: n for taint, n in enumerate(here) if n and taint not in signature.tolerated_taints
    }


def _nodes_by_label(
    snapshot: Snapshot, signature: SchedulingSignature, by_reason: dict[FitErrorReason, Bools]
) -> dict[str, int]:
    """Count the nodes on which no alternative holds, for each label that does not match."""
    if FitErrorReason.SELECTOR not in by_reason:
        return {}
    labels = snapshot.nodes.labels[by_reason[FitErrorReason.SELECTOR]]
    names = snapshot.nodes.key_names
    wrong: dict[str, Bools] = {}
    for alternatives in signature.node_affinity:
        is_out = np.ones(len(labels), dtype=np.bool_)
        of_entry: dict[str, Bools] = {}
        for terms in alternatives:
            fails = np.zeros(len(labels), dtype=np.bool_)
            for requirement in terms:
                misses = ~has_value(labels, requirement)
                fails |= misses
                name = requirement.label or names[requirement.key]
                of_entry[name] = of_entry.get(name, misses) | misses
            is_out &= fails
        for name, misses in of_entry.items():
            wrong[name] = wrong.get(name, False) | (misses & is_out)
    counts = {name: int(nodes.sum()) for name, nodes in wrong.items()}
    return {name: n for name, n in counts.items() if n}


def _too_small(
    snapshot: Snapshot, signature: SchedulingSignature, by_reason: dict[FitErrorReason, Bools]
) -> dict[int, list[int]]:
    """Return for each resource what the nodes have that are too small even when empty."""
    if FitErrorReason.TOO_SMALL not in by_reason:
        return {}
    allocatable = snapshot.nodes.allocatable[by_reason[FitErrorReason.TOO_SMALL]]
    request = [*signature.request]
    if signature.shared_devices and snapshot.resources.gpus:
        request[snapshot.resources.gpus[0]] = signature.shared_devices * WHOLE_GPU
    requested = ((r, allocatable[:, r], n) for r, n in enumerate(request) if n)
    return {r: has[has < n].tolist() for r, has, n in requested if (has < n).any()}


def _mig_refusals(
    snapshot: Snapshot, signature: SchedulingSignature, by_reason: dict[FitErrorReason, Bools]
) -> dict[MigRefusal, int]:
    if not signature.requests_mig or FitErrorReason.GPU_MODE not in by_reason:
        return {}
    mode = snapshot.nodes.gpu_mode[by_reason[FitErrorReason.GPU_MODE]]
    counts = {
        MigRefusal.NO_MIG_NODE: int((mode == GpuMode.WHOLE).sum()),
        MigRefusal.SINGLE_STRATEGY: int((mode == GpuMode.MIG_SINGLE).sum()),
    }
    counts[MigRefusal.LEGACY_PODS] = len(mode) - sum(counts.values())
    return {cause: n for cause, n in counts.items() if n}


def _deallocate(statement: Statement, reserved_places: Iterable[ReservedPlace]) -> None:
    for reserved_place in reserved_places:
        statement.deallocate(reserved_place.node, reserved_place.signature, reserved_place.slots)


def _own_counts(
    statement: Statement, signature: SchedulingSignature, by_reason: dict[FitErrorReason, Bools]
) -> dict[FitErrorReason, int]:
    dynamic = [(it, rule) for it, _, rule in DYNAMIC_PREDICATES if it in by_reason]
    passed = np.ones(len(statement.idle), dtype=np.bool_)
    for _, rule in dynamic:
        passed &= rule(statement, signature)
    own = {it: int((by_reason[it] & passed).sum()) for it, _ in dynamic}
    return {it: n for it, n in own.items() if n}


def _count_unplaced(
    statement: Statement, signatures: SignatureRuns, failure: PlacementFailure
) -> int:
    """Count the pods without a node that request the same; nominated nodes do not matter."""
    every = statement.snapshot.signatures
    it = replace(every[failure.signature], nominated_node=NONE)
    found, passed = 0, 0
    for signature, count in signatures:
        passed += count
        left = min(count, passed - failure.placed)
        if left > 0 and replace(every[signature], nominated_node=NONE) == it:
            found += left
    return found


def _requested_amounts(
    snapshot: Snapshot, signatures: SignatureRuns, nodes: Bools
) -> dict[int, int]:
    """Return what pods request of each resource, and under NONE in shares of GPUs of some nodes."""
    wanted: dict[int, int] = {}
    for row, count in signatures:
        signature = snapshot.signatures[row]
        for r, n in enumerate(signature.request):
            if n:
                wanted[r] = wanted.get(r, 0) + count * n
        if signature.shared_devices:
            least = int(share_on_nodes(snapshot, signature)[nodes].min(initial=2 * WHOLE_GPU))
            share = signature.shared_devices * least
            wanted[NONE] = wanted.get(NONE, 0) + count * share
    return wanted


def _reason(
    snapshot: Snapshot, free: Ints, free_shares: int, signatures: SignatureRuns, nodes: Bools
) -> UnschedulableReason:
    """Return the reason by the nodes of which only resources are short, without the attempt.

    Of GPUs, what is free of shared ones counts as well.
    """
    if not len(free):
        return UnschedulableReason.NO_NODE_MATCHES
    if any(snapshot.signatures[row].unknown_resources for row, _ in signatures):
        return UnschedulableReason.NO_CAPACITY  # a later pod fits no node
    wanted = _requested_amounts(snapshot, signatures, nodes)
    gpus = snapshot.resources.gpus
    free_of = {r: total(np.maximum(free[:, r], 0)) for r in {*wanted, *gpus} - {NONE}}
    free_gpus = sum([free_of[r] for r in gpus]) + free_shares
    wanted_gpus = sum([wanted.get(r, 0) for r in (*gpus, NONE)])
    is_enough = wanted_gpus <= free_gpus and all(
        free_of[r] + (free_shares if r in gpus else 0) >= n for r, n in wanted.items() if r != NONE
    )
    return UnschedulableReason.FRAGMENTED if is_enough else UnschedulableReason.NO_CAPACITY


def _free_shares(statement: Statement, nodes: Bools) -> int:
    """Return what is free of the shared GPUs of some nodes with no more in use than they have."""
    devices, free = statement.devices, statement.free
    return sum(
        [
            devices.rooms(node)
            for node in devices.later
            if nodes[node] and free[node, devices.column[node]] >= 0
        ]
    )


def _share_shortage(
    statement: Statement, ranking: NodeRanking, nodes: Bools
) -> ShareShortage | None:
    if not ranking.signature.shared_devices:
        return None
    found = [_free_gpus(statement, ranking, node) for node in np.flatnonzero(nodes).tolist()]
    nearest = max(found, key=lambda it: (it.free > 0, it.free - it.share), default=None)
    largest = 0 if nearest is None else nearest.free
    return ShareShortage(
        insufficient=sum([it.free < it.share for it in found]),
        requested=min([it.share for it in found], default=2 * WHOLE_GPU),
        largest_free=largest,
        largest_node=nearest.node if nearest is not None and largest else NONE,
        total_free=sum([it.total for it in found]),
        places=_missing_places(found),
    )


def _free_gpus(statement: Statement, ranking: NodeRanking, node: int) -> _FreeGpus:
    devices, needed = statement.devices, ranking.signature.shared_devices
    share, free = devices.share(ranking.row, node), statement.free[node].tolist()
    gpus = free[devices.column[node]]
    if gpus < 0:  # more GPUs are used than the node has
        return _FreeGpus(node, share, free=0, total=0, new_gpus=0, places=0)
    whole = gpus // WHOLE_GPU
    shared = sum([0 < used <= WHOLE_GPU - share for used in devices.used_later(node)])
    return _FreeGpus(
        node,
        share,
        free=_room_of_each(devices, node, whole, needed),
        total=whole * WHOLE_GPU + devices.rooms(node),
        new_gpus=max(needed - shared, 0),
        places=max(free[statement.snapshot.resources.pods] - 1, 0),  # one is for the pod itself
    )


def _room_of_each(devices: DeviceShares, node: int, whole: int, needed: int) -> int:
    """Return what at least is free of each of so many GPUs of a node, those with the most."""
    if needed <= whole:
        return WHOLE_GPU
    used = sorted([it for it in devices.used_later(node) if it > 0])[: needed - whole]
    return max(WHOLE_GPU - used[-1], 0) if len(used) == needed - whole else 0


def _missing_places(found: list[_FreeGpus]) -> ReservationPodPlaces | None:
    """Return the places that are missing on nodes with GPUs that have enough free."""
    short = [it for it in found if it.free >= it.share and it.places < it.new_gpus]
    if not short:
        return None
    nearest = min(short, key=lambda it: it.new_gpus - it.places)
    return ReservationPodPlaces(len(short), nearest.new_gpus, nearest.places)
