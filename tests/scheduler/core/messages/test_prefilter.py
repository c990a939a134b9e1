"""The sentence of each pre-filter failure."""

from typing import Final

import pytest

from scheduler.core.messages.rejection_messages import prefilter_message
from scheduler.core.model.rejections import (
    PreFilterCause,
    PreFilterFailure,
    QueueLabel,
    StageProgress,
)
from tests.support.case import Case, ids
from trainer_kai.api.reasons import UnschedulableReason

QUEUE: Final = "kai.scheduler/queue"


def about_pod(cause: PreFilterCause, *values: str) -> PreFilterFailure:
    return PreFilterFailure(cause, values, pod="pod w-0")


# a failure -> its message
MESSAGES: list[Case[PreFilterFailure, str]] = [
    Case(
        "a field of the PodGroup",
        PreFilterFailure(
            PreFilterCause.INVALID_PODGROUP, ("spec.minMember: -1 must be 0 or more",)
        ),
        "The PodGroup is invalid: spec.minMember: -1 must be 0 or more. It can start when "
        "this is corrected",
    ),
    Case(
        "a missing PodGroup is named",
        PreFilterFailure(PreFilterCause.PODGROUP_MISSING, ("ns/pg",)),
        "The pods name PodGroup ns/pg, which does not exist. They can start when it is created",
    ),
    Case(
        "a pod that the podgrouper has yet to group",
        about_pod(PreFilterCause.NOT_GROUPED, "ReplicaSet web-1", "2026-01-05T08:00:30Z"),
        "The scheduler waits until pod w-0 has a PodGroup, which the podgrouper makes for its "
        "owner (ReplicaSet web-1). Without one it is scheduled alone from 2026-01-05T08:00:30Z on",
    ),
    Case(
        "pods that do not count",
        PreFilterFailure(PreFilterCause.IGNORED_PODS, ("Pods of PodGroup ns/pg do not count",)),
        "Pods of PodGroup ns/pg do not count",
    ),
    Case(
        "a priority class",
        PreFilterFailure(
            PreFilterCause.PRIORITY_CLASS_REFUSED, ("spec.priorityClassName: choose train",)
        ),
        "spec.priorityClassName: choose train",
    ),
    Case(
        "negative requests are named",
        about_pod(PreFilterCause.INVALID_REQUESTS, "the request of cpu is negative"),
        "The requests of pod w-0 are invalid: the request of cpu is negative. It can start "
        "when they are corrected",
    ),
    Case(
        "a limit of a pod",
        about_pod(
            PreFilterCause.POD_SPEC_LIMIT, "spec.volumes: 300 volumes; at most 256 are supported"
        ),
        "The spec of pod w-0 exceeds a limit: spec.volumes: 300 volumes; at most 256 are supported",
    ),
    Case(
        "a limit of a namespace, exceeded alone",
        PreFilterFailure(
            PreFilterCause.PODGROUP_CONSTRAINT_LIMIT, ("ns", 2048, 3000, 1, "spec.affinity")
        ),
        "The pods of the PodGroup have 3000 different terms about other pods and 1 host "
        "ports, but at most 2048 are supported in a namespace (ns). It can never start unless"
        " its pods have at most 2048 in spec.affinity (equal pods count once), or are in "
        "several PodGroups that start one after another",
    ),
    Case(
        "a limit of a namespace, exceeded together",
        PreFilterFailure(
            PreFilterCause.NAMESPACE_CONSTRAINT_LIMIT, ("ns", 2048, 64, 1, "spec.affinity")
        ),
        "The pods of namespace ns have more than 2048 different terms about other pods and "
        "host ports together; the PodGroup has 64 terms and 1 host ports, and older ones are "
        "ahead of it. It can start when older ones are deleted, or when pods of the namespace"
        " have fewer in spec.affinity (equal pods count once)",
    ),
    Case(
        "a missing claim is named",
        about_pod(PreFilterCause.VOLUME_CLAIM_MISSING, "data"),
        "PersistentVolumeClaim data of pod w-0 does not exist. It can start when the claim exists",
    ),
    Case(
        "a claim that is deleted",
        about_pod(PreFilterCause.VOLUME_CLAIM_TERMINATING, "data"),
        "PersistentVolumeClaim data of pod w-0 is being deleted. It can start when a new "
        "claim exists",
    ),
    Case(
        "a claim without its volume",
        about_pod(PreFilterCause.VOLUME_CLAIM_LOST, "data"),
        "PersistentVolumeClaim data of pod w-0 has lost its volume. It can start when a new "
        "claim exists",
    ),
    Case(
        "a missing volume is named",
        about_pod(PreFilterCause.VOLUME_MISSING, "data", "pv-1"),
        "PersistentVolumeClaim data of pod w-0 is bound to PersistentVolume pv-1, which does "
        "not exist. It can start when the volume exists",
    ),
    Case(
        "no queue named",
        PreFilterFailure(PreFilterCause.QUEUE_NOT_NAMED, ("a, b",)),
        "The PodGroup names no queue. It can start when it names one: a, b",
    ),
    Case(
        "no queue named, and there is none",
        PreFilterFailure(PreFilterCause.QUEUE_NOT_NAMED, ("",)),
        "The PodGroup names no queue, and no queue takes PodGroups. It can start when a queue"
        " is created and the PodGroup names it",
    ),
    Case(
        "an inner queue",
        PreFilterFailure(PreFilterCause.QUEUE_HAS_CHILDREN, ("all", "a, b")),
        "Queue all has child queues, so it takes no PodGroups. It can start when it names a "
        "descendant of queue all: a, b",
    ),
    Case(
        "an inner queue without valid descendants",
        PreFilterFailure(PreFilterCause.QUEUE_HAS_CHILDREN, ("all", "")),
        "Queue all has child queues, so it takes no PodGroups, and none of its descendants is"
        " valid. It can start when one of these is corrected and the PodGroup names it",
    ),
    Case(
        "a cycle of queues",
        PreFilterFailure(PreFilterCause.QUEUE_CYCLE, ("a", "a → b → a")),
        "Queue a is its own ancestor: a → b → a. It can start when spec.parentQueue of one of"
        " these queues is corrected",
    ),
    Case(
        "a closed queue",
        PreFilterFailure(
            PreFilterCause.QUEUE_CLOSED,
            (
                "ns",
                "red",
                "annotation x of queue red",
                "system:serviceaccounts:ns",
                "use",
                "queues.scheduling.run.ai/red",
                "trainer-kai queue allow red -n ns",
            ),
        ),
        "Namespace ns may not use queue red, which is closed (annotation x of queue red). It "
        "can start when group system:serviceaccounts:ns is granted the verb use on "
        "queues.scheduling.run.ai/red in that namespace: trainer-kai queue allow red -n ns",
    ),
    Case(
        "a held queue",
        PreFilterFailure(
            PreFilterCause.QUEUE_HELD,
            ("red", "annotation x: Hold of queue all", "trainer-kai queue release all"),
        ),
        "Queue red is held, so nothing starts in it (annotation x: Hold of queue all). It can "
        "start when the queue is released: trainer-kai queue release all",
    ),
    Case(
        "an access review in progress",
        PreFilterFailure(PreFilterCause.QUEUE_ACCESS_PENDING, ("ns", "red")),
        "The access review whether namespace ns may use queue red is in progress. It can start "
        "when the access is granted",
    ),
    Case(
        "an access that is not known",
        PreFilterFailure(PreFilterCause.QUEUE_ACCESS_UNKNOWN, ("ns", "red")),
        "The access review whether namespace ns may use queue red has no answer yet: the API "
        "server cannot be reached. It can start when the access is granted",
    ),
    Case(
        "a queue that does not exist",
        PreFilterFailure(PreFilterCause.QUEUE_MISSING, ("red", "a, b")),
        "Queue red does not exist. It can start when queue red is created, or when it names "
        "another queue (suspend its workload, change the label kai.scheduler/queue, and resume "
        "it): a, b",
    ),
    Case(
        "no queue at all",
        PreFilterFailure(PreFilterCause.QUEUE_MISSING, ("red", "")),
        "Queue red does not exist, and no other queue takes PodGroups. It can start when "
        "queue red is created",
    ),
    Case(
        "a parent that does not exist",
        PreFilterFailure(PreFilterCause.PARENT_QUEUE_MISSING, ("red", "all")),
        "Queue red has the parent queue all, which does not exist. It can start when the "
        "parent queue is created, or when spec.parentQueue of queue red is corrected",
    ),
    Case(
        "a queue label of a pod",
        about_pod(PreFilterCause.QUEUE_MISSING, "red", "a, b")._replace(
            queue_label=QueueLabel(QUEUE, "red", "blue")
        ),
        "Pod w-0 has the label kai.scheduler/queue: red, but its PodGroup is in queue blue. "
        "Queue red does not exist. It can start when queue red is created, or when it names "
        "another queue (suspend its workload, change the label kai.scheduler/queue, and resume "
        "it): a, b",
    ),
    Case(
        "an earlier stage is named",
        PreFilterFailure(
            PreFilterCause.EARLIER_STAGE,
            (StageProgress("data", is_complete=True, done=1, needed=2),),
        ),
        "1 of 2 pods of replicatedJob data have succeeded. It can start when that earlier stage is "
        "complete",
    ),
    Case(
        "a stage of which pods still run",
        PreFilterFailure(
            PreFilterCause.EARLIER_STAGE,
            (StageProgress("data", is_complete=True, done=2, needed=2),),
        ),
        "2 of 2 pods of replicatedJob data have succeeded, but some still run. It can start when "
        "that earlier stage is complete",
    ),
    Case(
        "two earlier stages are named",
        PreFilterFailure(
            PreFilterCause.EARLIER_STAGE,
            (
                StageProgress("data", is_complete=True, done=0, needed=2),
                StageProgress("driver", is_complete=False, done=1, needed=4),
            ),
        ),
        "0 of 2 pods of replicatedJob data have succeeded; 1 of 4 pods of replicatedJob driver are "
        "ready. It can start when these earlier stages are complete and ready",
    ),
    Case(
        "an invalid share of a GPU",
        about_pod(PreFilterCause.INVALID_GPU_SHARE, "gpu-memory", "'3Gi' must be MiB; write 3072"),
        "The annotation gpu-memory of pod w-0 is invalid: '3Gi' must be MiB; write 3072. It can "
        "start when the annotation is corrected or removed",
    ),
    Case(
        "a share of a GPU and a whole GPU",
        about_pod(
            PreFilterCause.INVALID_GPU_SHARE, "gpu-fraction", "it cannot be set together with x"
        ),
        "The annotation gpu-fraction of pod w-0 is invalid: it cannot be set together with x. It "
        "can start when the annotation is corrected or removed",
    ),
    Case(
        "MIG by annotation",
        about_pod(PreFilterCause.LEGACY_MIG, "nvidia.com/mig-1g.5gb"),
        "The annotation nvidia.com/mig-1g.5gb of pod w-0 requests MIG profiles by annotation, "
        "which is not supported. It can start when it requests them as resources",
    ),
    Case(
        "a part of a GPU",
        about_pod(PreFilterCause.SHARED_GPU, "gpu-fraction"),
        "The annotation gpu-fraction of pod w-0 requests a share of a GPU, and the scheduler binds "
        "no such pods, because its setting gpu_sharing.enabled is false. It can start when the "
        "setting is true, or when it requests whole GPUs",
    ),
    Case(
        "a part of a GPU without the webhook",
        about_pod(PreFilterCause.GPU_SHARE_NOT_ADMITTED, "gpu-fraction", "prefix"),
        "The annotation gpu-fraction of pod w-0 requests a share of a GPU, but the pod has no "
        "valid annotation prefix: it was created while the webhook of trainer-kai did not change "
        "it. Delete the pod, so that it is created again",
    ),
    Case(
        "a ResourceClaim asks for what is not supported",
        about_pod(
            PreFilterCause.CLAIM_UNSUPPORTED,
            "gpus",
            "request 'r' asks for adminAccess",
            "it is gone",
        ),
        "spec.resourceClaims[gpus] of pod w-0: request 'r' asks for adminAccess, which is not "
        "supported. It can start when it is gone",
    ),
    Case(
        "a ResourceClaim that is invalid",
        about_pod(PreFilterCause.CLAIM_INVALID, "gpus", "request 'r' has count 0", "it is larger"),
        "spec.resourceClaims[gpus] of pod w-0: request 'r' has count 0. It can start when it is "
        "larger",
    ),
    Case(
        "a ResourceClaim that is not there yet",
        about_pod(PreFilterCause.CLAIM_NOT_READY, "gpus", "it is not created yet", "it exists"),
        "spec.resourceClaims[gpus] of pod w-0: it is not created yet. It can start when it exists",
    ),
    Case(
        "a resource for which a DeviceClass stands",
        about_pod(PreFilterCause.EXTENDED_RESOURCE, "example.com/gpu", "gpus"),
        "pod w-0 requests example.com/gpu, which no node has and DeviceClass gpus stands for; the "
        "scheduler allocates devices only by ResourceClaims. It can start when it has a "
        "ResourceClaim of that class instead, or when nodes have the resource",
    ),
    Case(
        "a claim that is not created",
        about_pod(PreFilterCause.VOLUME_CLAIM_NOT_CREATED, "w-0-scratch"),
        "PersistentVolumeClaim w-0-scratch of pod w-0 is not created yet. It can start when "
        "the claim exists",
    ),
    Case(
        "a claim that is not bound",
        about_pod(PreFilterCause.VOLUME_CLAIM_UNBOUND, "data"),
        "PersistentVolumeClaim data of pod w-0 is not bound to a volume yet. It can start "
        "when it is bound",
    ),
    Case(
        "no volume that fits",
        about_pod(PreFilterCause.NO_VOLUME_LEFT, "data", "local"),
        "No free PersistentVolume of StorageClass local fits PersistentVolumeClaim data of "
        "pod w-0. It can start when one is created or released",
    ),
    Case(
        "a Topology that does not exist",
        PreFilterFailure(PreFilterCause.TOPOLOGY_MISSING, ("the PodGroup", "dc", "racks, zones")),
        "The topologyConstraint of the PodGroup names Topology dc, which does not exist. It can "
        "start when it is created, or when the PodGroup names an existing Topology: racks, zones",
    ),
    Case(
        "no Topology",
        PreFilterFailure(PreFilterCause.TOPOLOGY_MISSING, ("sub-group w", "dc", "")),
        "The topologyConstraint of sub-group w names Topology dc, which does not exist. It can "
        "start when it is created",
    ),
    Case(
        "a level that does not exist",
        PreFilterFailure(
            PreFilterCause.TOPOLOGY_LEVEL_MISSING, ("sub-group w", "row", "dc", "zone, rack")
        ),
        "The topologyConstraint of sub-group w requires level row, which Topology dc does not "
        "have. It can start when sub-group w names one of its levels: zone, rack",
    ),
]


@pytest.mark.parametrize("case", MESSAGES, ids=ids)
def test_messages(case: Case[PreFilterFailure, str]) -> None:
    assert prefilter_message(case.given) == case.want


def test_each_cause_has_a_message_and_a_reason() -> None:
    """And each reason before nodes are looked at, but for missing pods, has a cause."""
    assert {it.given.cause for it in MESSAGES} == set(PreFilterCause)
    assert {it.reason for it in PreFilterCause} == {
        UnschedulableReason.MISCONFIGURED,
        UnschedulableReason.FORBIDDEN_QUEUE,
        UnschedulableReason.QUEUE_HELD,
        UnschedulableReason.QUEUE_MISSING,
        UnschedulableReason.GROUP_MISSING,
        UnschedulableReason.WAITING_FOR_STAGE,
        UnschedulableReason.NO_NODE_MATCHES,
        UnschedulableReason.TOPOLOGY_UNFIT,
    }
    assert all(it.given.reason is it.given.cause.reason for it in MESSAGES)
