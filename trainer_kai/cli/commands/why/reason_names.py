"""The names of the reasons why a PodGroup waits: the scheduler's, and those only `why` finds.

The scheduler's are repeated here, for it takes as long to import as the whole report may take; a
test compares them.
"""

from enum import StrEnum
from typing import Final

__all__ = ["SCHEDULER_REASONS", "ReasonName"]


class ReasonName(StrEnum):
    """The reasons that `why` finds by itself."""

    # The scheduler has these as well.
    PODS_MISSING = "PodsMissing"
    QUEUE_MISSING = "QueueMissing"
    WAITING_FOR_STAGE = "WaitingForStage"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    # Only `why` finds these.
    GATED = "Gated"
    GROUP_MISSING = "GroupMissing"
    INCOMPLETE = "Incomplete"
    JOBSET_MISSING = "JobSetMissing"
    LEFT_TO_OTHERS = "LeftToOthers"
    NO_SCHEDULER = "NoScheduler"
    NO_STATUS = "NoStatus"
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
