"""Fair shares of queues: the division of each resource by itself, from the top of the tree down.

The division is KAI's, but in integers of any size: floats would give a GPU to the wrong queue
where an offer is all but whole, and a single queue with a weight of 0.6 less than everything.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import NONE, RESOURCE_KINDS, UNBOUND, Ints, ResourceKind
from scheduler.core.model.snapshot import SnapshotQueues

__all__ = ["SiblingQueues", "allocatable_share", "bounds_of", "divide", "fair_share"]

_GRANULARITY: Final = {
    ResourceKind.CPU: 1,
    ResourceKind.MEMORY: 1,
    ResourceKind.GPU: 1000,
}  # a GPU is given whole


class SiblingQueues(NamedTuple):
    """Queues that share one amount, the oldest first."""

    quota: Sequence[int]  # [queue] or UNBOUND
    demand: Sequence[int]  # [queue] what it can use
    weight: Sequence[float]  # [queue]
    priority: Sequence[int]


def fair_share(queues: SnapshotQueues, total: Sequence[int]) -> Ints:
    """Return what each queue is due, [queue, kind]."""
    fair_shares: Ints = np.zeros(queues.quota.shape, dtype=np.int64)
    families: dict[int, list[int]] = {}
    for q, parent in enumerate(queues.parent):
        families.setdefault(parent, []).append(q)
    parents = [NONE]
    for parent in parents:  # it grows while we go down
        rows = families.get(parent, [])
        parents += rows
        for kind in RESOURCE_KINDS:
            amount = int(total[kind] if parent == NONE else fair_shares[parent, kind])
            if rows:
                siblings = _siblings(queues, rows, kind)
                fair_shares[rows, kind] = divide(amount, siblings, _GRANULARITY[kind])
    return fair_shares


def _siblings(queues: SnapshotQueues, rows: list[int], kind: ResourceKind) -> SiblingQueues:
    limit, requested = queues.limit[rows, kind], queues.requested[rows, kind]
    wants = np.where(limit == UNBOUND, requested, np.minimum(limit, requested))
    return SiblingQueues(
        quota=queues.quota[rows, kind].tolist(),
        demand=wants.tolist(),
        weight=queues.weight[rows, kind].tolist(),
        priority=[queues.priority[q] for q in rows],
    )


def divide(amount: int, siblings: SiblingQueues, podgroup: int = 1) -> list[int]:
    """Return the share of each of some queues in an amount, in whole units as far as can be."""
    quota, wants = siblings.quota, siblings.demand
    share = [min(amount if most == UNBOUND else most, wants[q]) for q, most in enumerate(quota)]
    left = amount - sum(share)
    if left <= 0:
        return share
    weight = _as_integers(siblings.weight)
    rest: dict[int, Fraction] = {}  # of offers that were rounded down
    ranked: dict[int, list[int]] = {}
    for q in sorted(range(len(share)), key=lambda q: -siblings.priority[q]):
        ranked.setdefault(siblings.priority[q], []).append(q)
    for rows in ranked.values():
        goes_on = True
        while goes_on and left > 0:
            want = {q: wants[q] - share[q] for q in rows if share[q] < wants[q]}
            given, goes_on = _offer_round(left, want, [weight[q] for q in want], podgroup, rest)
            for q, some in given.items():
                share[q] += some
            left -= sum(given.values())
    for rows in ranked.values():
        for q in sorted((q for q in rows if q in rest), key=lambda q: -rest[q]):
            some = min(podgroup, left)
            share[q] += some
            left -= some
    return share


def _offer_round(
    amount: int,
    want: dict[int, int],
    weights: Sequence[int],
    podgroup: int,
    rest: dict[int, Fraction],
) -> tuple[dict[int, int], bool]:
    """Offer an amount once; return what was taken, and whether somebody left some of its offer."""
    total, given, goes_on = sum(weights), {}, False
    if total == 0:
        return {}, False  # none has weight
    for (q, needed_pods), weight in zip(want.items(), weights, strict=True):
        offer = amount * weight  # of what is total times less
        if needed_pods * total <= offer:
            given[q] = needed_pods
            rest.pop(q, None)
            goes_on = goes_on or needed_pods * total < offer
        else:
            given[q] = offer // (total * podgroup) * podgroup
            if over := offer - given[q] * total:
                rest[q] = Fraction(over, total)
    return given, goes_on


def _as_integers(details: Iterable[float]) -> list[int]:
    """Return numbers times what makes all of them whole, as they are written."""
    exact = [Fraction(str(it)) if it % 1 else int(it) for it in details]
    times = math.lcm(*(number.denominator for number in exact))
    return [int(number * times) for number in exact]


def allocatable_share(queues: SnapshotQueues, fair_shares: Ints) -> Ints:
    """Return what each queue may fill, [queue, kind]: its quota at least, its limit at most."""
    quota, limit = queues.quota, queues.limit
    at_least = np.maximum(quota, fair_shares)
    capped = np.where(limit == UNBOUND, at_least, np.minimum(at_least, limit))
    return np.where(quota == UNBOUND, limit, capped)


def bounds_of(rows: Ints) -> list[list[float]]:
    """Return quotas, limits or shares; without bound is infinite. None is rounded, as in floats."""
    return [[math.inf if it == UNBOUND else it for it in row] for row in rows.tolist()]
