"""What holds a TrainJob back, and what it waits for, as it and its PodGroups tell it. Pure."""

from collections.abc import Iterable
from typing import Final

from trainer_kai.api.names import EVICTED_BY, KUEUE_QUEUE
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.evicted import eviction_reason

__all__ = ["why_suspended"]

_RESUMED: Final = "It goes on by itself, unless its user has suspended it, too"
_FORGED: Final = (
    f"no PodGroup of it says that it was evicted: its annotation {EVICTED_BY} is not the"
    " scheduler's, or out of date. It goes on when spec.suspend is false"
)


def why_suspended(job: TrainJob, groups: Iterable[PodGroup]) -> str:
    """Say why a TrainJob is suspended that is; *groups* are its own, perhaps with others."""
    kueue = job.metadata.labels.get(KUEUE_QUEUE)
    evicted = next(filter(None, (eviction_reason(job, group) for group in groups)), "")
    if evicted:
        return f"it was taken off its nodes: {evicted}. {_RESUMED}"
    if kueue:
        return f"Kueue has not admitted it (queue {kueue}). It goes on when Kueue does"
    if job.metadata.annotations.get(EVICTED_BY):
        return _FORGED
    return "somebody has suspended it. It goes on when spec.suspend is false"
