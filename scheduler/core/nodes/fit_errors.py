"""Fit errors: how many nodes cannot take a pod, and why; each node counts for its first reason."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.podgroup import ReservedPlace, SchedulingSignature
from scheduler.core.model.rejections import (
    DomainShortage,
    FitErrorReason,
    FitErrors,
    MigRefusal,
    RoomShortage,
)
from scheduler.core.model.resources import NONE, Bools, Ints, total
from scheduler.core.model.snapshot import GpuMode, Snapshot
from scheduler.core.nodes.capacity import count_fitting_pods, fitting_by_domain
from scheduler.core.nodes.placement import PlacementFailure, PlacementRequest
from scheduler.core.nodes.predicates import STATIC_PREDICATES, fits_empty_node, has_value
from scheduler.core.nodes.ranking import NodeRanking
from scheduler.core.nodes.statement import Statement
from scheduler.core.nodes.working_nodes import WorkingNodes
from trainer_kai.api.reasons import UnschedulableReason


class _WithoutAttempt(NamedTuple):
    """What is free without the attempt, and without the reserved places that its pods give up."""

    before: Ints  # [node, resource]
    free_gpus: int  # thousandths, beside whole ones
    are_devices_enough: bool
    fitting: int  # pods beside those of the attempt, if no others were there
    own_counts: dict[FitErrorReason, int]


def collect_fit_errors(
    nodes: WorkingNodes, ranking: NodeRanking, failure: PlacementFailure, signatures: SignatureRuns
) -> FitErrors:
    """Check all nodes for the pod that fits on none; then roll the statement back."""
    snapshot, free = nodes.snapshot, nodes.resources.free
    by_reason, left = _nodes_by_reason(nodes, ranking)
    requested = nodes.resources.requests(ranking.row)
    too_small = _too_small(nodes, ranking, by_reason)
    insufficient = {r: int((left & (free[:, r] < n)).sum()) for r, n in requested}
    without_devices = by_reason.get(FitErrorReason.DEVICES, np.zeros_like(left))
    shortages = nodes.devices.shortages(ranking.row, left | without_devices)
    here = free[left]
    without = _roll_back(nodes, ranking, failure, by_reason, signatures)
    return FitErrors(
        reason=_reason(nodes, without, signatures, left),
        signature=failure.signature,
        placed=failure.placed,
        needed=sum([count for _, count in signatures]),
        counts={reason: int(nodes.sum()) for reason, nodes in by_reason.items()},
        own_counts=without.own_counts,
        taints=_nodes_by_taint(snapshot, ranking.signature, by_reason),
        keys=_nodes_by_label(snapshot, ranking.signature, by_reason),
        too_small={r: len(has) for r, has in too_small.items()},
        largest_allocatable={r: max(has) for r, has in too_small.items()},
        insufficient={r: n for r, n in insufficient.items() if n},
        largest_free={r: int(here[:, r].max(initial=0)) for r, _ in requested},
        total_free={r: total(np.maximum(here[:, r], 0)) for r, _ in requested},
        unplaced=_count_unplaced(snapshot, signatures, failure),
        fitting=without.fitting,
        is_resolvable=FitErrorReason.ROOM in by_reason,
        device_shortages=shortages,
        mig_refusals=_mig_refusals(snapshot, ranking.signature, by_reason),
        placed_before=(*_placed_runs(signatures, failure),),
    )


def room_shortage(
    nodes: WorkingNodes, ranking: NodeRanking, signatures: SignatureRuns
) -> RoomShortage | None:
    """Return what an attempt lacks by counting what fits, as its fit errors would say.

    Equal pods that need only room fill the nodes, in whatever order. None where more than that is
    to be known: they lack more, are of several kinds, may use devices or mind other pods.
    """
    row, requested = ranking.row, nodes.resources.requests(ranking.row)
    if not requested or nodes.devices.of[row] or not ranking.has_no_relations:
        return None
    columns, needed = zip(*requested, strict=True)
    free, allocatable = nodes.resources.free, nodes.snapshot.nodes.allocatable
    if not ranking.fits_empty.all():
        free, allocatable = free[ranking.fits_empty], allocatable[ranking.fits_empty]
    if not len(free):
        return None
    amounts = np.array(needed)[:, None]  # resources come first: that is faster
    free, most = free.T.take(columns, axis=0), signatures[0][1]
    here = (free // amounts).min(axis=0).clip(0, most)
    placed = int(here.sum())
    if placed and len(signatures) > 1:
        return None
    if placed >= most:
        return RoomShortage(row)
    pods = _count_unplaced(nodes.snapshot, signatures, PlacementFailure(row, placed, 0))
    would_fit = (allocatable.T.take(columns, axis=0) // amounts).min(axis=0) - here
    if int(would_fit.clip(0, pods).sum()) < pods:
        return None
    is_short = (free - here * amounts < amounts).any(axis=1).tolist()
    return RoomShortage(
        row, tuple([r for r, it in zip(columns, is_short, strict=True) if it]), pods
    )


def domain_errors(nodes: WorkingNodes, request: PlacementRequest) -> FitErrors | None:
    """Return which pods do not fit in one domain; None if they need not be in one.

    Those of the first sub-group that fits in no empty domain, else of the first that fits in none
    as it is, else of the last one. There are counts of nodes if any node is in a domain. It is
    resolvable if the largest domain would be enough without other pods.
    """
    shortages = request.strategy.shortages(request.tasks)
    if not shortages:
        return None
    found = [_domain_errors(nodes, request, it) for it in shortages]
    never = [it for it in found if not it.is_resolvable]
    not_now = [it for it in found if it.unplaced]
    return [*never, *not_now, found[-1]][0]


def _domain_errors(
    nodes: WorkingNodes, request: PlacementRequest, shortage: DomainShortage
) -> FitErrors:
    snapshot = nodes.snapshot
    domain_of = snapshot.topologies[shortage.topology].domains[shortage.level]
    is_in = np.isin(domain_of, shortage.domains)
    outside, inside = int((~is_in).sum()), int(is_in.sum())
    numbers = {FitErrorReason.DOMAIN: outside, FitErrorReason.ROOM: inside}
    tasks = tuple([it for it in request.tasks if it.podset.name in shortage.podsets])
    runs = Counter[int]()
    for podset, pods, expected in tasks:
        runs.update(snapshot.pods.signature[[*pods]].tolist())
        runs.update({podset.expected_signature: expected} if expected else {})
    domains = np.where(is_in, domain_of, NONE)
    shortage = shortage._replace(largest=_fitting_in_largest(nodes, runs, domains))
    signature = next(iter(runs))
    return FitErrors(
        reason=UnschedulableReason.TOPOLOGY_UNFIT,
        signature=signature,
        placed=shortage.fitting,
        needed=shortage.needed,
        counts={reason: n for reason, n in numbers.items() if n} if inside else {},
        own_counts={},
        taints={},
        keys={},
        too_small={},
        largest_allocatable={},
        insufficient={},
        largest_free={},
        total_free={},
        unplaced=shortage.needed - shortage.fitting,
        fitting=shortage.largest,
        is_resolvable=shortage.largest >= shortage.needed,
        domain_shortage=shortage,
    )


def _fitting_in_largest(nodes: WorkingNodes, runs: Mapping[int, int], domains: Ints) -> int:
    """Return how many of some pods fit in the largest domain if no others are there, at most."""
    snapshot, alike = nodes.snapshot, dict[Hashable, tuple[int, int, Bools]]()
    for row, count in runs.items():
        mask = fits_empty_node(snapshot, snapshot.signatures[row])
        devices = tuple([it.request_key(row) for it in nodes.devices.of[row]])
        key = snapshot.signatures[row].request, devices, mask.tobytes()
        alike[key] = row, count + (alike[key][1] if key in alike else 0), mask
    found = np.zeros(int(domains.max(initial=0)) + 1, dtype=np.int64)
    for row, count, mask in alike.values():
        most = fitting_by_domain(nodes, snapshot.nodes.allocatable, row, mask, domains)
        found[: len(most)] += np.minimum(most, count)
    return int(found.max())


def _roll_back(
    nodes: WorkingNodes,
    ranking: NodeRanking,
    failure: PlacementFailure,
    by_reason: dict[FitErrorReason, Bools],
    signatures: SignatureRuns,
) -> _WithoutAttempt:
    """Roll the statement back; nodes are those of which only free resources are too small."""
    statement, free = nodes.statement, nodes.resources.free
    left = by_reason.get(FitErrorReason.ROOM, np.zeros(len(free), dtype=np.bool_))
    places = failure.reserved_places
    _deallocate(statement, [place for at, place in places if at > failure.placed])
    after = free.copy()
    statement.roll_back(failure.checkpoint)
    _deallocate(statement, [place for _, place in places])
    own_counts = _own_counts(nodes, ranking.signature, by_reason)
    before, free_gpus = free.copy(), nodes.devices.free_on(left)
    are_enough = nodes.devices.are_enough(signatures, left)
    statement.roll_back(failure.checkpoint)
    allocatable = nodes.snapshot.nodes.allocatable - (before - after)
    fitting = count_fitting_pods(nodes, allocatable, ranking.row, left)
    if ranking.signature.claims:
        alike = _placed_alike(nodes.snapshot, signatures, failure)
        for most in nodes.devices.fitting(ranking.row, allocatable):
            fitting = min(fitting, max(total(most[left]) - alike, 0))
    return _WithoutAttempt(before[left], free_gpus, are_enough, fitting, own_counts)


def _nodes_by_reason(
    nodes: WorkingNodes, ranking: NodeRanking
) -> tuple[dict[FitErrorReason, Bools], Bools]:
    """Return the nodes by their first reason, and those of which only free resources are short."""
    by_reason: dict[FitErrorReason, Bools] = {}
    left = ranking.subset.within(np.ones(len(nodes.resources.free), dtype=np.bool_))
    if not left.all():
        by_reason[FitErrorReason.DOMAIN] = ~left
    for fit_error_reason, mask in _masks(nodes, ranking):
        if (left & ~mask).any():
            by_reason[fit_error_reason] = left & ~mask
        left = left & mask
    if left.any():
        by_reason[FitErrorReason.ROOM] = left
    return by_reason, left


def _masks(nodes: WorkingNodes, ranking: NodeRanking) -> list[tuple[FitErrorReason, Bools]]:
    signature = ranking.signature
    masks = [
        (fit_error_reason, rule(nodes.snapshot, signature))
        for fit_error_reason, rule in STATIC_PREDICATES
    ]
    return [*masks, *nodes.relations.why_not(signature)]


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
    nodes: WorkingNodes, ranking: NodeRanking, by_reason: dict[FitErrorReason, Bools]
) -> dict[int, list[int]]:
    """Return for each resource what the nodes have that are too small even when empty."""
    if FitErrorReason.TOO_SMALL not in by_reason:
        return {}
    allocatable = nodes.snapshot.nodes.allocatable[by_reason[FitErrorReason.TOO_SMALL]]
    request = [*ranking.signature.request]
    for devices in nodes.devices.of[ranking.row]:
        needed = devices.empty_request(ranking.row)
        if needed is not None:
            request[needed[0]] = needed[1]
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
        statement.deallocate(reserved_place.node, reserved_place.signature, reserved_place.held)


def _own_counts(
    nodes: WorkingNodes, signature: SchedulingSignature, by_reason: dict[FitErrorReason, Bools]
) -> dict[FitErrorReason, int]:
    dynamic = [*nodes.relations.why_not(signature, by_reason)]
    passed = np.ones(len(nodes.resources.free), dtype=np.bool_)
    for _, mask in dynamic:
        passed &= mask
    own = {it: int((by_reason[it] & passed).sum()) for it, _ in dynamic}
    return {it: n for it, n in own.items() if n}


def _count_unplaced(
    snapshot: Snapshot, signatures: SignatureRuns, failure: PlacementFailure
) -> int:
    """Count the pods without a node that request the same; nominated nodes do not matter."""
    it = _without_nomination(snapshot, failure.signature)
    found, passed = 0, 0
    for signature, count in signatures:
        passed += count
        left = min(count, passed - failure.placed)
        if left > 0 and _without_nomination(snapshot, signature) == it:
            found += left
    return found


def _without_nomination(snapshot: Snapshot, signature: int) -> SchedulingSignature:
    it = snapshot.signatures[signature]
    return it if it.nominated_node == NONE else replace(it, nominated_node=NONE)


def _placed_alike(snapshot: Snapshot, signatures: SignatureRuns, failure: PlacementFailure) -> int:
    """Count the pods of the attempt with a node that have the same claims."""
    claims = snapshot.signatures[failure.signature].claims
    placed = _placed_runs(signatures, failure)
    return sum([n for signature, n in placed if snapshot.signatures[signature].claims == claims])


def _placed_runs(signatures: SignatureRuns, failure: PlacementFailure) -> Iterator[tuple[int, int]]:
    """Yield how many pods of each signature have a node; they are placed in this order."""
    left = failure.placed
    for signature, count in signatures:
        if left > 0:
            yield signature, min(left, count)
        left -= count


def _requested_amounts(
    nodes: WorkingNodes, signatures: SignatureRuns, mask: Bools
) -> dict[int, int]:
    """Return what pods request of each resource, and under NONE of GPUs beside whole ones."""
    wanted: dict[int, int] = {}
    for row, count in signatures:
        for r, n in nodes.resources.requests(row):
            wanted[r] = wanted.get(r, 0) + count * n
        if nodes.devices.of[row]:
            gpus = count * nodes.devices.requested_gpus(row, mask)
            wanted[NONE] = wanted.get(NONE, 0) + gpus
    return wanted


def _reason(
    nodes: WorkingNodes, without: _WithoutAttempt, signatures: SignatureRuns, mask: Bools
) -> UnschedulableReason:
    """Return the reason by the nodes of which only resources are short, without the attempt.

    Free parts of shared GPUs count as free GPUs.
    """
    snapshot, free, more_gpus = nodes.snapshot, without.before, without.free_gpus
    if not len(free):
        return UnschedulableReason.NO_NODE_MATCHES
    if any(snapshot.signatures[row].unknown_resources for row, _ in signatures):
        return UnschedulableReason.NO_CAPACITY  # a later pod fits no node
    wanted = _requested_amounts(nodes, signatures, mask)
    gpus = snapshot.resources.gpus
    free_of = {r: total(np.maximum(free[:, r], 0)) for r in {*wanted, *gpus} - {NONE}}
    free_gpus = sum([free_of[r] for r in gpus]) + more_gpus
    wanted_gpus = sum([wanted.get(r, 0) for r in (*gpus, NONE)])
    are_resources_enough = wanted_gpus <= free_gpus and all(
        free_of[r] + (more_gpus if r in gpus else 0) >= n for r, n in wanted.items() if r != NONE
    )
    is_enough = are_resources_enough and without.are_devices_enough
    return UnschedulableReason.FRAGMENTED if is_enough else UnschedulableReason.NO_CAPACITY
