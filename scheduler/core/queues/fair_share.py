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

# A GPU is given whole.
_GRANULARITY: Final = {ResourceKind.CPU: 1, ResourceKind.MEMORY: 1, ResourceKind.GPU: 1000}


class SiblingQueues(NamedTuple):
    quota: Sequence[int]  # [queue] or UNBOUND
    demand: Sequence[int]  # [queue] what it can use
    weight: Sequence[float]  # [queue]
    priority: Sequence[int]


def fair_share(queues: SnapshotQueues, total: Sequence[int]) -> Ints:
    fair_shares: Ints = np.zeros(queues.quota.shape, dtype=np.int64)
    families: dict[int, list[int]] = {}
    for q, parent in enumerate(queues.parent):
        families.setdefault(parent, []).append(q)
    parents = [NONE]
    for parent in parents:  # it grows while the tree is walked down
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
    demand = np.where(limit == UNBOUND, requested, np.minimum(limit, requested))
    return SiblingQueues(
        quota=queues.quota[rows, kind].tolist(),
        demand=demand.tolist(),
        weight=queues.weight[rows, kind].tolist(),
        priority=[queues.priority[q] for q in rows],
    )


def divide(amount: int, siblings: SiblingQueues, granularity: int = 1) -> list[int]:
    """Return the share of each queue in an amount, in multiples of *granularity* if possible."""
    quota, demand = siblings.quota, siblings.demand
    share = [min(amount if most == UNBOUND else most, demand[q]) for q, most in enumerate(quota)]
    left = amount - sum(share)
    if left <= 0:
        return share
    weight = _as_integers(siblings.weight)
    rest: dict[int, Fraction] = {}  # of offers that were rounded down
    ranked: dict[int, list[int]] = {}
    for q in sorted(range(len(share)), key=lambda q: -siblings.priority[q]):
        ranked.setdefault(siblings.priority[q], []).append(q)
    for rows in ranked.values():
        is_any_content = True
        while is_any_content and left > 0:
            want = {q: demand[q] - share[q] for q in rows if share[q] < demand[q]}
            weights = [weight[q] for q in want]
            given, is_any_content = _offer_round(left, want, weights, granularity, rest)
            for q, some in given.items():
                share[q] += some
            left -= sum(given.values())
    for rows in ranked.values():
        for q in sorted((q for q in rows if q in rest), key=lambda q: -rest[q]):
            some = min(granularity, left)
            share[q] += some
            left -= some
    return share


def _offer_round(
    amount: int,
    want: dict[int, int],
    weights: Sequence[int],
    granularity: int,
    rest: dict[int, Fraction],
) -> tuple[dict[int, int], bool]:
    """Offer an amount once; return what was taken, and whether any queue took less than offered."""
    total, given, is_any_content = sum(weights), {}, False
    if total == 0:
        return {}, False  # none has weight
    for (q, missing), weight in zip(want.items(), weights, strict=True):
        offer = amount * weight  # as a multiple of 1/total
        if missing * total <= offer:
            given[q] = missing
            rest.pop(q, None)
            is_any_content = is_any_content or missing * total < offer
        else:
            given[q] = offer // (total * granularity) * granularity
            if over := offer - given[q] * total:
                rest[q] = Fraction(over, total)
    return given, is_any_content


def _as_integers(numbers: Iterable[float]) -> list[int]:
    """Return the weights multiplied by the least factor that makes all of them whole."""
    exact = [Fraction(str(it)) if it % 1 else int(it) for it in numbers]
    times = math.lcm(*(number.denominator for number in exact))
    return [int(number * times) for number in exact]


def allocatable_share(queues: SnapshotQueues, fair_shares: Ints) -> Ints:
    """Return the allocatable share of each queue, [queue, kind]: from its quota to its limit."""
    quota, limit = queues.quota, queues.limit
    at_least = np.maximum(quota, fair_shares)
    capped = np.where(limit == UNBOUND, at_least, np.minimum(at_least, limit))
    return np.where(quota == UNBOUND, limit, capped)


def bounds_of(rows: Ints) -> list[list[float]]:
    """Return quotas, limits or shares; without bound is infinite. None is rounded, as in floats."""
    return [[math.inf if it == UNBOUND else it for it in row] for row in rows.tolist()]
