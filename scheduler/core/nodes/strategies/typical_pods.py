"""Typical pods: the shapes of most pods of a snapshot, those on nodes and those that wait.

They stand for the pods that are to come. Pods that have ended count less and less. There is no
other history: the same objects have the same typical pods, in whatever order they were seen.
"""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import NONE, Floats, Ints, ResourceKind
from scheduler.core.model.snapshot import POD_WEIGHT, PodState, Snapshot

MAX_SHAPES: Final = 64
_COVERED: Final = 95  # % of what all pods weigh
WEIGHTS: Final = 10_000  # what the weights of all pods come to
_WHOLE_GPU: Final = 1000


class _Shape(NamedTuple):
    request: tuple[int, ...]  # by resource
    devices: int  # of how many GPUs it requests a share
    share: int  # thousandths of each


class TypicalPods(NamedTuple):
    """Shapes of pods that use whole GPUs or shares of them, the most frequent one first."""

    weight: Floats  # [shape] whole numbers, so that sums are exact
    columns: list[int]  # resources that a shape requests
    request: Ints  # [shape, column]
    devices: Ints  # [shape] of how many GPUs it requests a share
    needed: Ints  # [need] thousandths of one GPU that it can use: each number once
    need: Ints  # [shape] row of these


def typical_pods(snapshot: Snapshot) -> TypicalPods:
    shapes = [
        (shape, weight) for shape, weight in _most_frequent(snapshot) if _uses_gpus(snapshot, shape)
    ]
    rows = np.array([it.request for it, _ in shapes], dtype=np.int64)
    rows = rows.reshape(-1, len(snapshot.resources.names))
    columns = np.flatnonzero(rows.any(axis=0)).tolist()
    needed = [it.share or _WHOLE_GPU for it, _ in shapes]
    each, need = np.unique(np.array(needed, dtype=np.int64), return_inverse=True)
    return TypicalPods(
        weight=np.array([weight for _, weight in shapes], dtype=np.float64),
        columns=columns,
        request=rows[:, columns],
        devices=np.array([it.devices for it, _ in shapes], dtype=np.int64),
        needed=each,
        need=need.astype(np.int64),
    )


def _most_frequent(snapshot: Snapshot) -> list[tuple[_Shape, int]]:
    """Return the shapes of most pods, and their weights."""
    rows, stays = snapshot.pods.signature, snapshot.pods.state <= PodState.RUNNING
    pods = np.bincount(rows[stays & (rows != NONE)], minlength=len(snapshot.signatures)).tolist()
    counts = Counter[_Shape]()
    for row, (one, count) in enumerate(zip(snapshot.signatures, pods, strict=True)):
        weight = POD_WEIGHT * count + snapshot.ended.get(row, 0)
        if weight:
            counts[_shape(one)] += weight
    total, covered, last = counts.total(), 0, 0
    found = []
    for shape, count in sorted(counts.items(), key=lambda it: (-it[1], it[0]))[:MAX_SHAPES]:
        if 100 * covered >= _COVERED * total and count < last:  # none of equal ones is left out
            break
        covered, last = covered + count, count
        found.append((shape, WEIGHTS * count // total))
    return found


def _shape(one: SchedulingSignature) -> _Shape:
    if not one.shared_devices:
        return _Shape(one.request, 0, 0)
    # A request for memory is the share that its queue is charged while it waits.
    share = one.device_share or one.queue_request[ResourceKind.GPU] // one.shared_devices
    return _Shape(one.request, one.shared_devices, min(max(share, 1), _WHOLE_GPU))


def _uses_gpus(snapshot: Snapshot, shape: _Shape) -> bool:
    """Others can use no GPU of any node: what they are in need of changes no order of nodes."""
    return bool(shape.devices) or any(shape.request[r] for r in snapshot.resources.gpus)
