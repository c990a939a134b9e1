"""How many nodes could not take a pod, and why: one obstacle for each node, the first."""

import numpy as np

from scheduler.core.decision import NodeNumbers, Obstacle
from scheduler.core.feasible import FIXED, MOVING
from scheduler.core.field import Field
from scheduler.core.ledger import Ledger
from scheduler.core.model import Bools, Verdict
from scheduler.core.place import Failure

__all__ = ["node_numbers"]


def node_numbers(
    ledger: Ledger, field: Field, failure: Failure, shapes: tuple[int, ...]
) -> NodeNumbers:
    """Look at all nodes as the pod did for which there was none; then roll the ledger back."""
    counts: dict[Obstacle, int] = {}
    left = np.ones(len(ledger.idle), dtype=np.bool_)
    for obstacle, mask in _masks(ledger, field):
        lost = int((left & ~mask).sum())
        if lost:
            counts[obstacle] = lost
        left &= mask
    asked = [(r, n) for r, n in enumerate(field.shape.request) if n]
    lacking = {r: int((left & (ledger.room[:, r] < n)).sum()) for r, n in asked}
    largest = {r: int(ledger.room[left, r].max(initial=0)) for r, _ in asked}
    if left.any():
        counts[Obstacle.ROOM] = int(left.sum())
    ledger.roll_back(failure.checkpoint)
    wanted = _wanted(ledger, shapes)
    room = {r: int(np.maximum(ledger.room[left, r], 0).sum()) for r in wanted}
    return NodeNumbers(
        verdict=_verdict(bool(left.any()), room, wanted),
        shape=failure.shape,
        placed=failure.placed,
        needed=len(shapes),
        counts=counts,
        lacking={r: n for r, n in lacking.items() if n},
        largest=largest,
        room=room,
        wanted=wanted,
        is_curable=any(obstacle in counts for obstacle in _CURABLE),
    )


def _masks(ledger: Ledger, field: Field) -> list[tuple[Obstacle, Bools]]:
    shape = field.shape
    masks = [(obstacle, rule(ledger.snapshot, shape)) for obstacle, rule in FIXED]
    masks.append((Obstacle.SELECTOR, field.fixed))  # and what the site filters
    masks += [
        (obstacle, rule(ledger, shape)) for obstacle, is_asked, rule in MOVING if is_asked(shape)
    ]
    return masks


def _wanted(ledger: Ledger, shapes: tuple[int, ...]) -> dict[int, int]:
    wanted: dict[int, int] = {}
    for shape in shapes:
        for r, n in enumerate(ledger.snapshot.shapes[shape].request):
            if n:
                wanted[r] = wanted.get(r, 0) + n
    return wanted


def _verdict(has_candidates: bool, room: dict[int, int], wanted: dict[int, int]) -> Verdict:
    if not has_candidates:
        return Verdict.NO_NODE_MATCHES
    would_do = all(room[r] >= n for r, n in wanted.items())
    return Verdict.FRAGMENTED if would_do else Verdict.NO_CAPACITY


_CURABLE = (
    Obstacle.CLAIM,
    Obstacle.PORT,
    Obstacle.ANTI_AFFINITY,
    Obstacle.SPREAD,
    Obstacle.ROOM,
)
