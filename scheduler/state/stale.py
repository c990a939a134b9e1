"""From when on a unit is stale: it has begun, lacks what it needs, and its grace is over.

Since when it is short stands on its group, as KAI writes it. Who is short and has no such note is
short only since now: stale if it has no grace at all, and else a case for a later snapshot.
"""

import math
from collections import Counter

from scheduler.state.gang import Gang
from scheduler.state.repair import goes_on, grace_of, is_short
from scheduler.state.roll import GATED, RELEASING, STUCK, SUCCEEDED, THERE, WAITING
from scheduler.state.terms import epoch_s
from trainer_kai.api.names import STALE_SINCE

__all__ = ["stale_at"]

_PLACED = (THERE, RELEASING, STUCK)  # who is going is judged when it is gone
_ALIVE = (WAITING, GATED, *_PLACED)


def stale_at(gang: Gang, usual_grace_s: float) -> int | None:
    """Return from when on a unit counts as stale, in seconds since 1970; None for never."""
    group = gang.group
    if group is None or not _may_be_short(gang) or not goes_on(group, gang.jobset):
        return None
    there, exist = _counts(gang, _PLACED), _counts(gang, _ALIVE)
    grace_s = math.ceil(grace_of(group, usual_grace_s))
    if grace_s < 0 or not is_short(group, there, exist):
        return None
    since = epoch_s(group.metadata.annotations.get(STALE_SINCE, ""))
    if since is None:
        return None if grace_s else 0
    return since + grace_s


def _may_be_short(gang: Gang) -> bool:
    """Say whether it is worth a closer look: for most units it is not."""
    has = gang.minima
    return (
        gang.is_sound
        and any(gang.of(leaf, THERE) < least for leaf, least in has.items())
        and any(gang.of(leaf, THERE) for leaf in has)
        and not any(gang.of(leaf, SUCCEEDED) for leaf in has)
    )


def _counts(gang: Gang, states: tuple[int, ...]) -> Counter[str]:
    return Counter({leaf: sum(gang.of(leaf, one) for one in states) for leaf in gang.minima})
