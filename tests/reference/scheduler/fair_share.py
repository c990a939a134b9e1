"""Fair shares: rules 14 to 17, in exact fractions."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

from tests.reference.scheduler.model import ClusterInfo, QueueInfo
from tests.reference.scheduler.resources import Amount


@dataclass(frozen=True, eq=False)
class ResourceShare:
    """What one queue may say about one resource; numbers may be fractions, -1 is no bound."""

    quota: Any
    weight: Any
    requested: Any
    limit: Any = -1
    priority: int = 100
    created: str = ""
    uid: str = ""

    @property
    def requestable(self) -> Any:
        """Return what it can use."""
        return self.requested if self.limit == -1 else min(self.limit, self.requested)


def divide(total: Any, claims: Sequence[ResourceShare]) -> tuple[list[Any], Any]:
    """Return the share of each queue, and what is left."""
    got = {
        claim: min(total if claim.quota == -1 else claim.quota, claim.requestable)
        for claim in claims
    }
    left = total - sum(got.values())
    if left <= 0:
        return [got[claim] for claim in claims], left
    rests: dict[ResourceShare, Any] = {}
    priorities = sorted({claim.priority for claim in claims}, reverse=True)
    for priority in priorities:
        alike = [claim for claim in claims if claim.priority == priority]
        again = True
        while again and left > 0:
            again, left = _round(alike, left, got, rests)
    for priority in priorities:
        keen = [claim for claim in rests if claim.priority == priority]
        for claim in sorted(keen, key=lambda one: (-rests[one], one.created, one.uid)):
            one = min(1, left)
            got[claim] += one
            left -= one
    return [got[claim] for claim in claims], left


def _round(
    alike: Sequence[ResourceShare],
    left: Any,
    got: dict[ResourceShare, Any],
    rests: dict[ResourceShare, Any],
) -> tuple[bool, Any]:
    """Play one round; return whether another follows, and what is left."""
    keen = [claim for claim in alike if got[claim] < claim.requestable]
    weights = sum(Fraction(claim.weight) for claim in keen)
    if not weights:
        return False, left
    again, at_start = False, left
    for claim in keen:
        offer = at_start * Fraction(claim.weight) / weights
        want = claim.requestable - got[claim]
        if want <= offer:
            give = want
            rests.pop(claim, None)
            again = again or want < offer
        else:
            give = floor(offer)
            if offer > give:
                rests[claim] = offer - give
        got[claim] += give
        left -= give
    return again, left


def set_fair_shares(cluster: ClusterInfo) -> None:
    """Write the fair share of every queue, from the top down."""
    tops = [queue for queue in cluster.queues.values() if not queue.parent]
    for axis in range(3):
        _divide_among(tops, cluster.total[axis], axis)


def _divide_among(queues: list[QueueInfo], total: Amount, axis: int) -> None:
    claims = [
        ResourceShare(
            quota=queue.quota[axis],
            weight=queue.weight[axis],
            requested=queue.requested[axis],
            limit=queue.limit[axis],
            priority=queue.priority,
            created=queue.created,
            uid=queue.uid,
        )
        for queue in queues
    ]
    shares, _ = divide(total, claims)
    for queue, share in zip(queues, shares, strict=True):
        queue.fair_share[axis] = share
        _divide_among(queue.children, share, axis)


def allocatable_share(queue: QueueInfo, axis: int) -> Any:
    """Return the allocatable share of a queue; -1 is no bound."""
    quota, limit = queue.quota[axis], queue.limit[axis]
    if quota == -1:
        return limit
    share = max(quota, queue.fair_share[axis])
    return share if limit == -1 else min(share, limit)
