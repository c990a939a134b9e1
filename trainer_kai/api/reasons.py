"""The reasons why a PodGroup waits: their names, what each means, and what to do.

The scheduler writes most of them into conditions, Events and metrics; `trainer-kai why` finds the
others. The names are part of the API: they do not change. This module imports only the standard
library, so that `why` and the scheduler's core can use it.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class ReasonName(StrEnum):
    """The name of a reason why a PodGroup waits, or why its TrainJob does not run."""

    # The scheduler finds these: of several reasons it reports the first in this order,
    # except that NO_NODE_MATCHES outranks a bound of a queue if a pod fits on no empty node.
    MISCONFIGURED = "Misconfigured"
    FORBIDDEN_QUEUE = "ForbiddenQueue"
    QUEUE_MISSING = "QueueMissing"
    PODS_MISSING = "PodsMissing"
    WAITING_FOR_STAGE = "WaitingForStage"
    EXCEEDS_LIMIT = "ExceedsLimit"
    NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
    NO_NODE_MATCHES = "NoNodeMatches"
    TOPOLOGY_UNFIT = "TopologyUnfit"
    FRAGMENTED = "Fragmented"
    NO_CAPACITY = "NoCapacity"
    PREEMPTION_DELAY = "PreemptionDelay"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    # A paused scheduler writes this one.
    SCHEDULER_PAUSED = "SchedulerPaused"
    # Only `why` finds these.
    GATED = "Gated"
    GROUP_MISSING = "GroupMissing"
    INCOMPLETE = "Incomplete"
    JOBSET_MISSING = "JobSetMissing"
    LEFT_TO_OTHERS = "LeftToOthers"
    NO_SCHEDULER = "NoScheduler"
    NO_STATUS = "NoStatus"
    STARTING = "Starting"
    SUSPENDED = "Suspended"


class ReasonText(NamedTuple):
    """What a reason means, and what to do; a message adds names and numbers."""

    meaning: str
    remedy: str


REASONS: Final[Mapping[ReasonName, ReasonText]] = MappingProxyType(
    {
        ReasonName.MISCONFIGURED: ReasonText(
            "A field of the PodGroup, of a pod or of the queue is invalid, or an object that a pod "
            "names does not exist.",
            "Change the field that the message names.",
        ),
        ReasonName.FORBIDDEN_QUEUE: ReasonText(
            "The queue is closed, and the namespace of the PodGroup has no permission to use it.",
            "Ask the owner of the queue to run the command in the message, or choose another "
            "queue.",
        ),
        ReasonName.QUEUE_MISSING: ReasonText(
            "The queue of the PodGroup, or a parent of that queue, does not exist.",
            "Create the queue, or suspend the TrainJob, change its queue label and resume it.",
        ),
        ReasonName.PODS_MISSING: ReasonText(
            "Fewer pods exist, or are free of scheduling gates, than have to start together.",
            "Wait until the Jobs have created the pods. If the message names an error, such as an "
            "exceeded ResourceQuota, remove its cause.",
        ),
        ReasonName.WAITING_FOR_STAGE: ReasonText(
            "An earlier stage of the TrainJob is not complete or not ready yet.",
            "Wait for the pods of the earlier stage. If they do not run, check these first.",
        ),
        ReasonName.EXCEEDS_LIMIT: ReasonText(
            "The queue, or a parent of it, would exceed its limit.",
            "Wait until pods of that queue end, raise the limit, or request less.",
        ),
        ReasonName.NON_PREEMPTIBLE_OVER_QUOTA: ReasonText(
            "The PodGroup is non-preemptible, and its queue, or a parent of it, would exceed its "
            "quota; or the queue is over its quota with PodGroups that cannot be evicted.",
            "Wait until pods of that queue end, raise the quota, or make the PodGroup preemptible.",
        ),
        ReasonName.NO_NODE_MATCHES: ReasonText(
            "No node matches a pod of the PodGroup, whatever is free: labels, taints, size, "
            "volumes, ports or other pods exclude all nodes.",
            "Change what the pod selects, tolerates or requests, or add a node that matches.",
        ),
        ReasonName.TOPOLOGY_UNFIT: ReasonText(
            "The PodGroup requires all its pods in one topology domain, which is not supported "
            "yet.",
            "Use a preferred topology level instead of a required one.",
        ),
        ReasonName.FRAGMENTED: ReasonText(
            "Enough resources are free in total, but not enough on one node.",
            "Wait until a node has enough free, or allow consolidation for the queue.",
        ),
        ReasonName.NO_CAPACITY: ReasonText(
            "The nodes that match have too little free.",
            "Wait until pods end, request less, or add nodes.",
        ),
        ReasonName.PREEMPTION_DELAY: ReasonText(
            "Other pods could be evicted for the PodGroup, but its preemption delay has not "
            "passed.",
            "Wait until the time in the message, or shorten the preemption delay.",
        ),
        ReasonName.WAITING_FOR_VICTIMS: ReasonText(
            "Pods of the PodGroup are nominated to nodes on which evicted pods still terminate.",
            "Wait until the evicted pods have terminated.",
        ),
        ReasonName.SCHEDULER_PAUSED: ReasonText(
            "Another scheduler with the same scheduler name is active, so this scheduler places "
            "no pods.",
            "Stop the other scheduler, or give this one another scheduler name.",
        ),
        ReasonName.GATED: ReasonText(
            "Pods have scheduling gates.",
            "Wait until the controllers that set the gates remove them.",
        ),
        ReasonName.GROUP_MISSING: ReasonText(
            "The pods name a PodGroup that does not exist, or no PodGroup.",
            "Check that the podgrouper is running (`trainer-kai doctor`).",
        ),
        ReasonName.INCOMPLETE: ReasonText(
            "The PodGroup runs with fewer pods than its minimum: pods were lost, and no node has "
            "free resources for their replacements.",
            "Wait for free resources. After its grace period the whole PodGroup is evicted and "
            "waits again.",
        ),
        ReasonName.JOBSET_MISSING: ReasonText(
            "The Kubeflow Trainer has not created the JobSet of the TrainJob.",
            "Remove the cause that the Event in the message reports.",
        ),
        ReasonName.LEFT_TO_OTHERS: ReasonText(
            "Another controller manages the TrainJob, or another scheduler places its pods.",
            "Check that controller or scheduler.",
        ),
        ReasonName.NO_SCHEDULER: ReasonText(
            "No scheduler is active: no process holds its Lease, or the Lease is not renewed.",
            "Check that the scheduler is running (`trainer-kai doctor`).",
        ),
        ReasonName.NO_STATUS: ReasonText(
            "The scheduler has not written a status yet.",
            "If this persists, check that the scheduler is running (`trainer-kai doctor`).",
        ),
        ReasonName.STARTING: ReasonText(
            "The pods are on their nodes, but their containers do not run yet.",
            "Check the container status in the message: an image, a volume or a probe.",
        ),
        ReasonName.SUSPENDED: ReasonText(
            "The TrainJob is suspended: by a user, by Kueue, or by the scheduler, which evicted "
            "it.",
            "A TrainJob that the scheduler or Kueue suspended is resumed by it; otherwise set "
            "spec.suspend to false.",
        ),
    }
)

SCHEDULER_REASONS: Final = frozenset(
    {
        ReasonName.MISCONFIGURED,
        ReasonName.FORBIDDEN_QUEUE,
        ReasonName.QUEUE_MISSING,
        ReasonName.PODS_MISSING,
        ReasonName.WAITING_FOR_STAGE,
        ReasonName.EXCEEDS_LIMIT,
        ReasonName.NON_PREEMPTIBLE_OVER_QUOTA,
        ReasonName.NO_NODE_MATCHES,
        ReasonName.TOPOLOGY_UNFIT,
        ReasonName.FRAGMENTED,
        ReasonName.NO_CAPACITY,
        ReasonName.PREEMPTION_DELAY,
        ReasonName.WAITING_FOR_VICTIMS,
    }
)
