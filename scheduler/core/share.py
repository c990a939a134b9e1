"""Fair shares: what each queue may count on, top down, each resource by itself.

The division is KAI's to the digit, roundings included, so that either scheduler tells the same
numbers. Floats are exact here as long as amounts times weights stay below 2^53, past use aside.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model import KINDS, NONE, UNBOUND, Floats, Ints, Kind, Queues

__all__ = ["Siblings", "allocatable_share", "divide", "fair_share"]

_DIGITS: Final = 6  # 2.01 times 1000 is a little less than 2010
_WHOLE: Final = {Kind.CPU: 1, Kind.MEMORY: 1, Kind.GPU: 1000}  # a GPU is given whole


class Siblings(NamedTuple):
    """Queues that share one amount, the oldest first."""

    quota: Floats  # [queue] or UNBOUND
    wants: Floats  # [queue] what it can use
    weight: Floats  # [queue]
    usage: Floats  # [queue] past use as a part
    priority: Sequence[int]


def fair_share(queues: Queues, total: Sequence[int], past_use: float) -> Floats:
    """Return what each queue is due, [queue, kind]."""
    due = np.zeros(queues.quota.shape)
    families: dict[int, list[int]] = {}
    for q, parent in enumerate(queues.parent):
        families.setdefault(parent, []).append(q)
    parents = [NONE]
    for parent in parents:  # it grows while we go down
        rows = families.get(parent, [])
        parents += rows
        for kind in KINDS:
            amount = float(total[kind]) if parent == NONE else due[parent, kind]
            if rows:
                due[rows, kind] = _divide_rows(queues, rows, kind, amount, past_use)
    return due


def _divide_rows(
    queues: Queues, rows: list[int], kind: Kind, amount: float, past_use: float
) -> Floats:
    unit = _WHOLE[kind]
    quota, limit = queues.quota[rows, kind], queues.limit[rows, kind]
    requested = queues.requested[rows, kind]
    siblings = Siblings(
        quota=np.where(quota == UNBOUND, UNBOUND, quota / unit),
        wants=np.where(limit == UNBOUND, requested, np.minimum(limit, requested)) / unit,
        weight=queues.weight[rows, kind],
        usage=queues.usage[rows, kind],
        priority=[queues.priority[q] for q in rows],
    )
    share = divide(amount / unit, siblings, past_use)
    return share if unit == 1 else np.round(share * unit, _DIGITS)


def divide(amount: float, siblings: Siblings, past_use: float) -> Floats:
    """Return the share of each of some queues in an amount, in whole units as far as can be."""
    quota, wants = siblings.quota, siblings.wants
    share = np.minimum(np.where(quota == UNBOUND, amount, quota), wants)
    left = amount - share.sum()
    if left <= 0:
        return share
    rest = np.zeros(len(share))  # of offers that were rounded down
    ranks = sorted(set(siblings.priority), reverse=True)
    ranked = [np.flatnonzero(np.equal(siblings.priority, rank)) for rank in ranks]
    for rows in ranked:
        while True:
            given, goes_on = _round(left, siblings, rows, share, rest, past_use)
            left -= given
            if not goes_on or left == 0:
                break
    for rows in ranked:
        for q in rows[np.argsort(-rest[rows], kind="stable")]:
            if rest[q] > 0 and left > 0:
                share[q] += min(1.0, left)
                left -= min(1.0, left)
    return share


def _round(
    amount: float,
    siblings: Siblings,
    rows: Ints,
    share: Floats,
    rest: Floats,
    past_use: float,
) -> tuple[float, bool]:
    """Offer an amount once; return what was taken, and whether somebody left some of its offer."""
    want = siblings.wants[rows] - share[rows]
    open_rows = rows[want > 0]
    want = want[want > 0]
    weight = siblings.weight[open_rows]
    if not weight.sum() > 0:
        return 0.0, False
    # In weights, not in parts of one: whole numbers, and nothing is rounded but what is said so.
    past = siblings.usage[open_rows] * weight.sum()
    claim = np.maximum(0.0, weight + past_use * (weight - past))
    claims = claim.sum()
    if not claims > 0:
        return 0.0, False  # all of them have had more than their part
    offers = amount * claim  # of what is claims times less
    whole, over = np.divmod(offers, claims)
    is_content = want * claims <= offers
    given = np.where(is_content, want, whole)
    share[open_rows] += given
    is_rounded = ~is_content & (over > 0)
    rest[open_rows[is_rounded]] = over[is_rounded] / claims
    rest[open_rows[is_content]] = 0.0
    return float(given.sum()), bool(((given > 0) & (want * claims < offers)).any())


def allocatable_share(queues: Queues, due: Floats) -> Floats:
    """Return what each queue may fill, [queue, kind]: its quota at least, its limit at most."""
    quota, limit = queues.quota, queues.limit
    at_least = np.maximum(quota, due)
    capped = np.where(limit == UNBOUND, at_least, np.minimum(at_least, limit))
    return np.where(quota == UNBOUND, limit, capped)
