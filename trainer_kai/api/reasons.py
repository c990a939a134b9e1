"""The reasons why a PodGroup waits: their names, what each means, and what to do.

The scheduler writes most of them into conditions, Events and metrics; `trainer-kai why` finds the
others. The names are part of the API: they do not change. This module imports only the standard
library, so that `why` and the scheduler's core can use it.
"""

from enum import StrEnum
from typing import Final, Self


class UnschedulableReason(StrEnum):
    """Why a PodGroup waits, or why its TrainJob does not run, by the name that users read.

    Each has its rank: of several reasons the scheduler reports the one with the smallest, except
    that NO_NODE_MATCHES outranks a bound of a queue if a pod fits on no empty node. And a *meaning*
    and a *remedy* for the documentation; a message adds names and numbers.
    """

    rank: int
    meaning: str
    remedy: str

    def __new__(cls, name: str, meaning: str, remedy: str) -> Self:
        it = str.__new__(cls, name)
        it._value_, it.meaning, it.remedy = name, meaning, remedy
        it.rank = len(cls.__members__)
        return it

    # The scheduler finds these.
    MISCONFIGURED = (
        "Misconfigured",
        (
            "A field of the PodGroup, of a pod or of the queue is invalid, or an object that a pod "
            "names does not exist."
        ),
        "Change the field that the message names.",
    )
    FORBIDDEN_QUEUE = (
        "ForbiddenQueue",
        "The queue is closed, and the namespace of the PodGroup has no permission to use it.",
        "Ask the owner of the queue to run the command in the message, or choose another queue.",
    )
    QUEUE_HELD = (
        "QueueHeld",
        "The queue, or a parent of it, is held: nothing starts in it until it is released.",
        (
            "Ask the owner of the queue, who releases it with the command in the message, or name "
            "another queue."
        ),
    )
    QUEUE_MISSING = (
        "QueueMissing",
        "The queue of the PodGroup, or a parent of that queue, does not exist.",
        "Create the queue, or suspend the TrainJob, change its queue label and resume it.",
    )
    GROUP_MISSING = (
        "GroupMissing",
        "The pods name a PodGroup that does not exist, or no PodGroup.",
        "Check that the podgrouper is running (`trainer-kai doctor`).",
    )
    PODS_MISSING = (
        "PodsMissing",
        "Fewer pods exist, or are free of scheduling gates, than have to start together.",
        (
            "Wait until the Jobs have created the pods. If the message names an error, such as an "
            "exceeded ResourceQuota, remove its cause."
        ),
    )
    WAITING_FOR_STAGE = (
        "WaitingForStage",
        "An earlier stage of the TrainJob is not complete or not ready yet.",
        "Wait for the pods of the earlier stage. If they do not run, check these first.",
    )
    WAITING_FOR_HEAD = (
        "WaitingForHead",
        "The queue starts its PodGroups in strict order, and an earlier one waits.",
        "Wait until the PodGroup that the message names has started.",
    )
    EXCEEDS_LIMIT = (
        "ExceedsLimit",
        "The queue, or a parent of it, would exceed its limit.",
        "Wait until pods of that queue end, raise the limit, or request less.",
    )
    NON_PREEMPTIBLE_OVER_QUOTA = (
        "NonPreemptibleOverQuota",
        (
            "The PodGroup is non-preemptible, and its queue, or a parent of it, would exceed its "
            "quota; or the queue is over its quota with PodGroups that cannot be evicted."
        ),
        "Wait until pods of that queue end, raise the quota, or make the PodGroup preemptible.",
    )
    NO_NODE_MATCHES = (
        "NoNodeMatches",
        (
            "No node matches a pod of the PodGroup, whatever is free: labels, taints, size, "
            "volumes, ports or other pods exclude all nodes."
        ),
        "Change what the pod selects, tolerates or requests, or add a node that matches.",
    )
    TOPOLOGY_UNFIT = (
        "TopologyUnfit",
        (
            "The PodGroup requires its pods in one topology domain, and no domain has enough free "
            "for them; or the Topology or level that it names does not exist."
        ),
        "Wait until enough is free in one domain, or require a wider level, or only prefer it.",
    )
    FRAGMENTED = (
        "Fragmented",
        "Enough resources are free in total, but not enough on one node.",
        "Wait until a node has enough free, or allow consolidation for the queue.",
    )
    NO_CAPACITY = (
        "NoCapacity",
        "The nodes that match have too little free.",
        "Wait until pods end, request less, or add nodes.",
    )
    PREEMPTION_DELAY = (
        "PreemptionDelay",
        "Other pods could be evicted for the PodGroup, but its preemption delay has not passed.",
        "Wait until the time in the message, or shorten the preemption delay.",
    )
    WAITING_FOR_VICTIMS = (
        "WaitingForVictims",
        "Pods of the PodGroup are nominated to nodes on which evicted pods still terminate.",
        "Wait until the evicted pods have terminated.",
    )
    # A paused scheduler writes this one.
    SCHEDULER_PAUSED = (
        "SchedulerPaused",
        (
            "Another scheduler with the same scheduler name is active, so this scheduler places "
            "no pods."
        ),
        "Stop the other scheduler, or give this one another scheduler name.",
    )
    # Only `why` finds these.
    GATED = (
        "Gated",
        "Pods have scheduling gates.",
        "Wait until the controllers that set the gates remove them.",
    )
    INCOMPLETE = (
        "Incomplete",
        (
            "The PodGroup runs with fewer pods than its minimum: pods were lost, and no node has "
            "free resources for their replacements."
        ),
        (
            "Wait for free resources. After its grace period the whole PodGroup is evicted and "
            "waits again."
        ),
    )
    JOBSET_MISSING = (
        "JobSetMissing",
        "The Kubeflow Trainer has not created the JobSet of the TrainJob.",
        "Remove the cause that the Event in the message reports.",
    )
    LEFT_TO_OTHERS = (
        "LeftToOthers",
        "Another controller manages the TrainJob, or another scheduler places its pods.",
        "Check that controller or scheduler.",
    )
    NO_SCHEDULER = (
        "NoScheduler",
        "No scheduler is active: no process holds its Lease, or the Lease is not renewed.",
        "Check that the scheduler is running (`trainer-kai doctor`).",
    )
    NO_STATUS = (
        "NoStatus",
        "The scheduler has not written a status yet.",
        "If this persists, check that the scheduler is running (`trainer-kai doctor`).",
    )
    STARTING = (
        "Starting",
        "The pods are on their nodes, but their containers do not run yet.",
        "Check the container status in the message: an image, a volume or a probe.",
    )
    SUSPENDED = (
        "Suspended",
        "The TrainJob is suspended: by a user, by Kueue, or by the scheduler, which evicted it.",
        (
            "A TrainJob that the scheduler or Kueue suspended is resumed by it; otherwise set "
            "spec.suspend to false."
        ),
    )


SCHEDULER_REASONS: Final = frozenset(
    it for it in UnschedulableReason if it.rank <= UnschedulableReason.WAITING_FOR_VICTIMS.rank
)
