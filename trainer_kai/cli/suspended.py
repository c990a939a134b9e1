"""Who holds a TrainJob back, and what it waits for, as far as it tells by itself. Pure."""

from typing import Final

import msgspec

from trainer_kai.api.names import EVICTED_BY, KUEUE_QUEUE
from trainer_kai.api.trainjob import TrainJob

__all__ = ["why_suspended"]

_RESUMED: Final = "It goes on by itself, unless somebody else has suspended it, too"


def why_suspended(job: TrainJob) -> str:
    """Say who has suspended a TrainJob that is."""
    kueue = job.metadata.labels.get(KUEUE_QUEUE)
    evicted = job.metadata.annotations.get(EVICTED_BY)
    if evicted:
        return f"it was taken off its nodes: {_why_evicted(evicted)}. {_RESUMED}"
    if kueue:
        return f"Kueue has not admitted it (queue {kueue}). It goes on when Kueue does"
    return "somebody has suspended it. It goes on when spec.suspend is false"


def _why_evicted(record: str) -> str:
    """Return why, out of what the scheduler notes on a TrainJob; else the note."""
    try:
        told = msgspec.json.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return record
    return str(told["why"]) if isinstance(told, dict) and told.get("why") else record
