"""What encode goes by, and what it notes on the way."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from trainer_kai.api.meta import Key
from trainer_kai.api.names import AMD_GPU, DEFAULT_QUEUE, GPU, SCHEDULER_NAME
from trainer_kai.policy.access import QueueAccessMode

__all__ = ["ObjectWarning", "StateOptions", "epoch_s", "format_timestamp"]


@dataclass(frozen=True)
class StateOptions:
    """What a site decides, and the time."""

    now: int  # seconds since 1970
    scheduler_name: str = SCHEDULER_NAME
    default_queue: str = DEFAULT_QUEUE
    stuck_in_releasing_s: int = 120
    max_termination_grace_s: int = 3600  # more than that nobody waits for a pod, whatever it says
    staleness_grace_s: int = 60  # below zero: without end
    gpu_resources: tuple[str, ...] = (GPU, AMD_GPU)
    priority_classes: frozenset[str] = frozenset()  # that a label may choose; none named: all
    kueue: bool = False  # Kueue runs here: it suspends and resumes TrainJobs with its label
    needs_permission: bool = False  # a namespace in no table of permits may not use a closed queue
    default_access: str = (
        QueueAccessMode.CLOSED
    )  # what a queue is that says nothing of who may use it
    consolidates_by_default: bool = (
        True  # whoever is not kept from it by his queue; else who is offered
    )


class ObjectWarning(NamedTuple):
    """What was left aside, and why: pods of a group, or a node or queue (without namespace).

    Or what of a queue or group counts otherwise than it is written.
    """

    object_key: Key
    message: str
    is_pod_pending: bool = False  # a pod that could not be counted waits: its group is told so
    still_counts: bool = False  # the queue or group is there all the same

    @property
    def text(self) -> str:
        """Return what to tell people."""
        return self.message if self.still_counts else f"left aside: {self.message}"


@lru_cache(maxsize=8192)  # siblings are made in the same second
def epoch_s(timestamp: str) -> int | None:
    """Return seconds since 1970; None for what is no time."""
    try:
        moment = datetime.fromisoformat(timestamp)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp())
    except (ValueError, OverflowError):
        return None


def format_timestamp(seconds: int) -> str:
    """Return a time as the API server writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
