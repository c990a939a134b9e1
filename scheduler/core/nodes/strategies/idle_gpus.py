"""Idle GPUs that no pod that waits can use, and why: the fragments of the pods that wait now.

Each pod is tried alone, on each node as it is after a plan: neither other pods of its PodGroup nor
its queue matter. What it lacks is looked at in a fixed order, and of several pods the one counts
that gets furthest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import FitErrorReason
from scheduler.core.model.resources import NONE, Bools, Ints, ResourceKind
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.model.snapshot import NodeFault, PodState, Snapshot
from scheduler.core.nodes.device_sorts.gpu_share_table import (
    WHOLE_GPU,
    GpuShareTable,
    gpu_columns,
    share_on_nodes,
)
from scheduler.core.nodes.node_resources import NodeResources
from scheduler.core.nodes.predicates import STATIC_PREDICATES, all_of
from scheduler.core.nodes.statement import Change

MAX_SHAPES: Final = 64  # of pods that wait, those with the smallest requests


class IdleCause(IntEnum):
    """Why no pod that waits can use a GPU, in the order in which what a pod lacks is looked at."""

    OTHER = 0  # labels, taints and all that is not counted below
    NODE_TOO_SMALL = 1  # a pod needs more GPUs than are idle there
    PART_OF_GPU = 2  # what is left of a shared GPU is too little
    CPU = 3
    MEMORY = 4


_OTHER_RESOURCE: Final = 5  # a pod lacks it, and neither GPUs nor CPU nor memory
_FITS: Final = 6


class UnusableGpus(NamedTuple):
    """Amounts are in thousandths of a GPU; nodes that take no pods have none."""

    idle: int  # whether a pod can use them or not
    by_node: Mapping[int, Mapping[IdleCause, int]]  # of nodes with any

    @property
    def by_cause(self) -> dict[IdleCause, int]:
        found = dict.fromkeys(IdleCause, 0)
        for causes in self.by_node.values():
            for cause, amount in causes.items():
                found[cause] += amount
        return found


class _Idle(NamedTuple):
    """What is idle on each node; GPUs that no pod can get do not count."""

    amounts: Ints  # [node, resource]
    whole: Ints  # [node] GPUs of any resource
    left: Ints  # [node, slot] thousandths of shared GPUs


def unusable_gpus(
    snapshot: Snapshot, allocations: Iterable[PodGroupAllocation] = ()
) -> UnusableGpus:
    """Return them as they are when *allocations* of a plan are bound; none if no pod waits."""
    placed = tuple(allocations)
    idle = _idle_after(snapshot, placed)
    total = WHOLE_GPU * idle.whole + idle.left.sum(axis=1)
    shapes = _waiting_shapes(snapshot, {it.podgroup for it in placed})
    if not shapes or not total.any():
        return UnusableGpus(int(total.sum()), {})
    reached, least = np.zeros(len(total), dtype=np.int64), np.full(len(total), 2 * WHOLE_GPU)
    for shape in shapes:
        allowed = _allowed(snapshot, shape)
        needed = share_on_nodes(snapshot, shape) if shape.shared_devices else WHOLE_GPU
        reached = np.maximum(reached, np.where(allowed, _reached(snapshot, shape, idle), 0))
        least = np.where(allowed, np.minimum(least, needed), least)
    too_small = np.where(idle.left < least[:, None], idle.left, 0).sum(axis=1)
    parts = np.where(reached > 0, too_small, 0)
    parts = np.where(reached == IdleCause.NODE_TOO_SMALL, idle.left.sum(axis=1), parts)
    rest = np.where(reached == _FITS, 0, total - parts)
    cause = np.where(reached < _OTHER_RESOURCE, reached, IdleCause.OTHER)
    return UnusableGpus(int(total.sum()), dict(_by_node(cause, rest, parts)))


def _by_node(cause: Ints, rest: Ints, parts: Ints) -> Iterator[tuple[int, Mapping[IdleCause, int]]]:
    for node in np.flatnonzero(rest + parts).tolist():
        found = dict[IdleCause, int]()
        if rest[node]:
            found[IdleCause(int(cause[node]))] = int(rest[node])
        if parts[node]:
            found[IdleCause.PART_OF_GPU] = int(parts[node])
        yield node, found


def _idle_after(snapshot: Snapshot, allocations: Sequence[PodGroupAllocation]) -> _Idle:
    resources = NodeResources(snapshot)
    shares = GpuShareTable(snapshot, resources)
    for it in (bind for allocation in allocations for bind in allocation.binds):
        change = Change(
            it.node, int(snapshot.pods.signature[it.pod]), 1, on_idle=True, held=it.held
        )
        resources.add(change)
        if shares.concerns(change.signature):
            shares.add(change)
    promised = np.zeros_like(resources.idle)
    for row, count in _nominated(snapshot, {it.podgroup for it in allocations}):
        one = snapshot.signatures[row]
        promised[one.nominated_node] += count * np.array(one.request)
    idle = resources.idle - (promised - snapshot.nodes.releasing.clip(min=0)).clip(min=0)
    gpus = list(snapshot.resources.gpus)
    takes_pods = np.equal(snapshot.nodes.fault, NodeFault.NONE)
    whole = (idle[:, gpus] // WHOLE_GPU).clip(min=0).sum(axis=1)
    left = np.zeros((len(takes_pods), max(map(len, shares.now.values()), default=0)), np.int64)
    for node, used in shares.now.items():
        if shares.column[node] != NONE and resources.idle[node, shares.column[node]] >= 0:
            left[node, : len(used)] = [WHOLE_GPU - n if 0 < n < WHOLE_GPU else 0 for n in used]
    return _Idle(idle, np.where(takes_pods, whole, 0), left * takes_pods[:, None])


def _nominated(snapshot: Snapshot, placed: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the signatures of nominated pods, and how many: they get what terminates, then idle."""
    pods = snapshot.pods
    waits = (pods.state == PodState.PENDING) & (pods.podgroup != NONE) & (pods.signature != NONE)
    waits &= ~np.isin(pods.podgroup, list(placed))
    counts = np.bincount(pods.signature[waits], minlength=len(snapshot.signatures)).tolist()
    for row, one in enumerate(snapshot.signatures):
        if one.nominated_node != NONE and counts[row]:
            yield row, counts[row]


def _waiting_shapes(snapshot: Snapshot, placed: set[int]) -> list[SchedulingSignature]:
    """Return what pods that wait request, each once: the smallest first."""
    pods = snapshot.pods
    waits = (pods.state == PodState.PENDING) & (pods.podgroup != NONE) & (pods.signature != NONE)
    if placed:
        waits &= ~np.isin(pods.podgroup, list(placed))
    found = [snapshot.signatures[row] for row in np.unique(pods.signature[waits]).tolist()]
    gpus = snapshot.resources.gpus

    def size(one: SchedulingSignature) -> tuple[int, ...]:
        share = one.shared_devices * (one.device_share or WHOLE_GPU)
        return sum([one.request[r] for r in gpus]) + share, *one.queue_request, *one.request

    fitting = [it for it in found if size(it)[0] and it.nominated_node == NONE]
    return sorted(fitting, key=size)[:MAX_SHAPES]


def _allowed(snapshot: Snapshot, shape: SchedulingSignature) -> Bools:
    """Return the nodes to which a pod may go, whatever it requests of their resources, [node]."""
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for reason, rule in STATIC_PREDICATES:
        if reason != FitErrorReason.TOO_SMALL:
            mask &= rule(snapshot, shape)
    return mask


def _reached(snapshot: Snapshot, shape: SchedulingSignature, idle: _Idle) -> Ints:
    """Return how far a pod gets on each node: what it lacks first, or `_FITS`, [node]."""
    resources, kinds = snapshot.resources, snapshot.resources.kinds
    fits = idle.amounts >= np.array(shape.request)
    memory = [r for r, kind in enumerate(kinds) if kind == ResourceKind.MEMORY]
    others = [r for r in range(len(kinds)) if r not in (resources.cpu, *memory, *resources.gpus)]
    steps = (
        (IdleCause.NODE_TOO_SMALL, _has_gpus(snapshot, shape, idle, fits)),
        (IdleCause.CPU, fits[:, resources.cpu]),
        (IdleCause.MEMORY, all_of(fits[:, memory])),
        (_OTHER_RESOURCE, all_of(fits[:, others]) & (not shape.unknown_resources)),
    )
    found = np.full(len(fits), _FITS)
    for lacking, has in reversed(steps):
        found = np.where(has, found, lacking)
    return found


def _has_gpus(snapshot: Snapshot, shape: SchedulingSignature, idle: _Idle, fits: Bools) -> Bools:
    if not shape.shared_devices:
        return all_of(fits[:, list(snapshot.resources.gpus)])
    column, share = gpu_columns(snapshot), share_on_nodes(snapshot, shape)
    whole = idle.amounts[np.arange(len(column)), np.maximum(column, 0)] // WHOLE_GPU
    rooms = (idle.left >= np.maximum(share, 1)[:, None]).sum(axis=1)
    is_enough: Bools = whole.clip(min=0) + rooms >= shape.shared_devices
    return is_enough & np.not_equal(column, NONE) & np.less_equal(share, WHOLE_GPU)
