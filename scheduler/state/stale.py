"""From when on a unit is stale: it has begun, lacks what it needs, and its grace is over.

Since when it is short stands on its group, as KAI writes it. Who is short and has no such note is
short only since now: stale if it has no grace at all, and else a case for a later snapshot.
"""

import math
from collections import Counter

from scheduler.state.gang import PodGroupRecord
from scheduler.state.repair import is_short, replaces_lost_pods, staleness_grace_s
from scheduler.state.roll import GATED, PENDING, RELEASING, RUNNING, STUCK_RELEASING, SUCCEEDED
from scheduler.state.terms import epoch_s
from trainer_kai.api.names import STALE_SINCE

__all__ = ["stale_at"]

_ON_NODE = (RUNNING, RELEASING, STUCK_RELEASING)  # who is going is judged when it is gone
_EXISTING = (PENDING, GATED, *_ON_NODE)


def stale_at(record: PodGroupRecord, usual_grace_s: float) -> int | None:
    """Return from when on a unit counts as stale, in seconds since 1970; None for never."""
    group = record.group
    if group is None or not _may_be_short(record) or not replaces_lost_pods(group, record.jobset):
        return None
    running, existing = _counts_by_podset(record, _ON_NODE), _counts_by_podset(record, _EXISTING)
    grace_s = math.ceil(staleness_grace_s(group, usual_grace_s))
    if grace_s < 0 or not is_short(group, running, existing):
        return None
    stale_since = epoch_s(group.metadata.annotations.get(STALE_SINCE, ""))
    if stale_since is None:
        return None if grace_s else 0
    return stale_since + grace_s


def _may_be_short(record: PodGroupRecord) -> bool:
    """Say whether it is worth a closer look: for most units it is not."""
    min_members = record.min_members
    return (
        record.is_valid
        and any(
            record.count_of(podset, RUNNING) < minimum for podset, minimum in min_members.items()
        )
        and any(record.count_of(podset, RUNNING) for podset in min_members)
        and not any(record.count_of(podset, SUCCEEDED) for podset in min_members)
    )


def _counts_by_podset(record: PodGroupRecord, states: tuple[int, ...]) -> Counter[str]:
    return Counter(
        {
            podset: sum(record.count_of(podset, one) for one in states)
            for podset in record.min_members
        }
    )
