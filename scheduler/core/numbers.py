"""How many nodes could not take a pod, and why: one obstacle for each node, the first."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from scheduler.core.chunks import Runs
from scheduler.core.decision import NodeNumbers, Obstacle
from scheduler.core.feasible import FIXED, MOVING, has_value
from scheduler.core.field import Field
from scheduler.core.ledger import Ledger
from scheduler.core.model import NONE, Bools, Ints, Shape, Slot, Snapshot, Verdict
from scheduler.core.place import Failure
from scheduler.core.sums import total

__all__ = ["node_numbers", "seats"]


def node_numbers(ledger: Ledger, field: Field, failure: Failure, shapes: Runs) -> NodeNumbers:
    """Look at all nodes as the pod did for which there was none; then roll the ledger back."""
    lost, left = _lost(ledger, field)
    counts = {obstacle: int(nodes.sum()) for obstacle, nodes in lost.items()}
    asked = [(r, n) for r, n in enumerate(field.shape.request) if n]
    small = _small(ledger.snapshot, field.shape, lost)
    lacking = {r: int((left & (ledger.room[:, r] < n)).sum()) for r, n in asked}
    here = ledger.room[left]
    _give_up(ledger, [slot for at, slot in failure.slots if at > failure.placed])
    after = ledger.room[left]
    ledger.roll_back(failure.checkpoint)
    _give_up(ledger, [slot for _, slot in failure.slots])
    own = _own(ledger, field.shape, lost)
    before = ledger.room[left]
    ledger.roll_back(failure.checkpoint)
    alike = _alike(ledger, shapes, failure)
    whole = ledger.snapshot.nodes.allocatable[left]
    return NodeNumbers(
        verdict=_verdict(before, _wanted(ledger, shapes)),
        shape=failure.shape,
        placed=failure.placed,
        needed=sum([count for _, count in shapes]),
        counts=counts,
        own=own,
        taints=_taints(ledger.snapshot, field.shape, lost),
        keys=_keys(ledger.snapshot, field.shape, lost),
        small={r: len(has) for r, has in small.items()},
        biggest={r: max(has) for r, has in small.items()},
        lacking={r: n for r, n in lacking.items() if n},
        largest={r: int(here[:, r].max(initial=0)) for r, _ in asked},
        room={r: total(np.maximum(here[:, r], 0)) for r, _ in asked},
        left=alike,
        seats=seats(whole - (before - after), field.shape),
        is_curable=Obstacle.ROOM in counts,
    )


def _lost(ledger: Ledger, field: Field) -> tuple[dict[Obstacle, Bools], Bools]:
    """Return the nodes by what is in the way there, and those of which only room is missing."""
    lost: dict[Obstacle, Bools] = {}
    left = np.ones(len(ledger.idle), dtype=np.bool_)
    for obstacle, mask in _masks(ledger, field):
        if (left & ~mask).any():
            lost[obstacle] = left & ~mask
        left = left & mask
    if left.any():
        lost[Obstacle.ROOM] = left
    return lost, left


def _masks(ledger: Ledger, field: Field) -> list[tuple[Obstacle, Bools]]:
    shape = field.shape
    masks = [(obstacle, rule(ledger.snapshot, shape)) for obstacle, rule in FIXED]
    masks += [
        (obstacle, rule(ledger, shape)) for obstacle, is_asked, rule in MOVING if is_asked(shape)
    ]
    return masks


def _taints(snapshot: Snapshot, shape: Shape, lost: dict[Obstacle, Bools]) -> dict[int, int]:
    """Count the nodes that were lost to each taint."""
    if Obstacle.TAINT not in lost:
        return {}
    here = snapshot.nodes.taints[lost[Obstacle.TAINT]].sum(axis=0).tolist()
    return {taint: n for taint, n in enumerate(here) if n and taint not in shape.tolerates}


def _keys(snapshot: Snapshot, shape: Shape, lost: dict[Obstacle, Bools]) -> dict[str, int]:
    """Count the nodes that were lost to each label: no alternative holds there, and it is wrong."""
    if Obstacle.SELECTOR not in lost:
        return {}
    labels, names = snapshot.nodes.labels[lost[Obstacle.SELECTOR]], snapshot.nodes.key_names
    wrong: dict[str, Bools] = {}
    for alternatives in shape.any_of:
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


def _small(snapshot: Snapshot, shape: Shape, lost: dict[Obstacle, Bools]) -> dict[int, list[int]]:
    """Return for each resource what nodes have that have too little of it even when empty."""
    if Obstacle.TOO_SMALL not in lost:
        return {}
    whole = snapshot.nodes.allocatable[lost[Obstacle.TOO_SMALL]]
    asked = ((r, whole[:, r], n) for r, n in enumerate(shape.request) if n)
    return {r: has[has < n].tolist() for r, has, n in asked if (has < n).any()}


def _give_up(ledger: Ledger, slots: Iterable[Slot]) -> None:
    for slot in slots:
        ledger.give(slot.node, slot.shape)


def _own(ledger: Ledger, shape: Shape, lost: dict[Obstacle, Bools]) -> dict[Obstacle, int]:
    """Count the nodes that were lost to it, and are open as long as its chunk is nowhere."""
    moving = [(it, rule) for it, _, rule in MOVING if it in lost]
    passed = np.ones(len(ledger.idle), dtype=np.bool_)
    for _, rule in moving:
        passed &= rule(ledger, shape)
    own = {it: int((lost[it] & passed).sum()) for it, _ in moving}
    return {it: n for it, n in own.items() if n}


def _alike(ledger: Ledger, shapes: Runs, failure: Failure) -> int:
    """Count the pods without a place that ask for the same; a promise of a node does not matter."""
    every = ledger.snapshot.shapes
    it = replace(every[failure.shape], nominated=NONE)
    found, passed = 0, 0
    for shape, count in shapes:
        passed += count
        left = min(count, passed - failure.placed)
        if left > 0 and replace(every[shape], nominated=NONE) == it:
            found += left
    return found


def seats(whole: Ints, shape: Shape) -> int:
    """Count the pods of a shape for which there would be room, [node, resource]."""
    asked = [r for r, n in enumerate(shape.request) if n]
    if not asked or not len(whole):
        return 0
    request = np.array([shape.request[r] for r in asked])
    return total(np.maximum(whole[:, asked] // request, 0).min(axis=1))


def _wanted(ledger: Ledger, shapes: Runs) -> dict[int, int]:
    wanted: dict[int, int] = {}
    for shape, count in shapes:
        for r, n in enumerate(ledger.snapshot.shapes[shape].request):
            if n:
                wanted[r] = wanted.get(r, 0) + count * n
    return wanted


def _verdict(room: Ints, wanted: dict[int, int]) -> Verdict:
    """Judge by the nodes of which only room is missing, as they are without the chunk."""
    if not len(room):
        return Verdict.NO_NODE_MATCHES
    would_do = all(total(np.maximum(room[:, r], 0)) >= n for r, n in wanted.items())
    return Verdict.FRAGMENTED if would_do else Verdict.NO_CAPACITY
