"""Why something waits, in one word: those of the scheduler, and those that only a look can find.

The scheduler's are spelt here once more, for it takes as long to import as the whole answer may
take; a test compares them.
"""

from enum import StrEnum
from typing import Final

__all__ = ["SCHEDULER_REASONS", "ReasonName"]


class ReasonName(StrEnum):
    """The words that `why` has to find by itself."""

    # Of the scheduler, too.
    PODS_MISSING = "PodsMissing"
    QUEUE_MISSING = "QueueMissing"
    WAITING_FOR_STAGE = "WaitingForStage"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    # Of nobody else.
    GATED = "Gated"
    GROUP_MISSING = "GroupMissing"
    INCOMPLETE = "Incomplete"
    JOBSET_MISSING = "JobSetMissing"
    LEFT_TO_OTHERS = "LeftToOthers"
    NO_SCHEDULER = "NobodySchedules"
    UNEXPLAINED = "NothingSaid"
    SCHEDULER_PAUSED = "SchedulerPaused"  # as the paused scheduler writes it
    STARTING = "Starting"
    SUSPENDED = "Suspended"


SCHEDULER_REASONS: Final = frozenset(
    {
        "Misconfigured",
        "ForbiddenQueue",
        "QueueMissing",
        "PodsMissing",
        "WaitingForStage",
        "ExceedsLimit",
        "NonPreemptibleOverQuota",
        "NoNodeMatches",
        "TopologyUnfit",
        "Fragmented",
        "NoCapacity",
        "PreemptionDelay",
        "WaitingForVictims",
    }
)
