"""Why a TrainJob waits: one reason, with numbers, and what would change it."""

import json
from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.jobsets import UID
from tests.trainer_kai.cli.commands.why.trainjob_cluster import (
    NO_ROOM_REASONS,
    TrainJobCluster,
    without_capacity,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import JOBSETS, LEASES, PODGROUPS, QUEUES
from trainer_kai.policy.workloads.state import WorkloadState

Change: TypeAlias = Callable[[TrainJobCluster], None]
Expected: TypeAlias = tuple[str, ...]

GROUP: Final = f"pg-job-{UID}"
NODE: Final = {"nodeName": "node-1"}
_SHARE: Final = {"pod-group-name": GROUP, "gpu-fraction": "0.5"}
PAUSED = "scheduler paused: another scheduler holds Lease kai-scheduler/kai-scheduler (holder x)"
RESUMED = "The scheduler resumes it, unless a user has suspended it as well"
UNSUSPEND = "To start it, set spec.suspend to false"
CHECK = "Check that the scheduler is running (`trainer-kai doctor`)"
_RECORD = "trainer-kai.dev/evicted-by"


def by_another(cluster: TrainJobCluster) -> None:
    """Have pods that wait for KAI."""
    cluster.pods("node", 4)
    cluster.condition(("OverLimit", "team-a is over"), message="x")


def paused(cluster: TrainJobCluster) -> None:
    """Have our scheduler paused after it found no room."""
    without_capacity(cluster)
    (older,) = cluster.groups[""]["status"]["schedulingConditions"]
    message = {"reason": "SchedulerPaused", "message": PAUSED}
    cluster.groups[""]["status"] = {
        "schedulingConditions": [
            older,
            {**message, "type": "SchedulerPaused", "reasons": [message]},
        ]
    }
    cluster.change()


def pulling(cluster: TrainJobCluster) -> None:
    """Have all pods on nodes, one of which cannot get its image."""
    image = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    cluster.running("node", 3)
    cluster.pods("node", spec=NODE, status={"containerStatuses": [image]})


def started_again(cluster: TrainJobCluster) -> None:
    """Have pods of an attempt that is over beside those of the next one."""
    cluster.running("node", 4)
    cluster.pods("node", 4, labels={"jobset.sigs.k8s.io/restart-attempt": "1"})
    cluster.condition(*NO_ROOM_REASONS)


def evicted(cluster: TrainJobCluster) -> None:
    """Have it suspended by the scheduler, as its PodGroup says."""
    report = {"trainJob": "uid-job", "podGroup": "uid-pg", "why": "pods are lost"}
    cluster.groups[""]["metadata"]["uid"] = "uid-pg"
    cluster.groups[""]["metadata"]["annotations"] |= {_RECORD: json.dumps(report)}
    cluster.change(suspend=True)


def forged(cluster: TrainJobCluster) -> None:
    """Have it suspended by its user, with the annotation that we write."""
    cluster.trainjob["metadata"]["annotations"] = {_RECORD: '{"why": "pods are lost"}'}
    cluster.change(suspend=True)


def not_resumed(cluster: TrainJobCluster) -> None:
    """Have its JobSet suspended, though the TrainJob is not."""
    cluster.jobset["spec"]["suspend"] = True
    cluster.change(suspend=False)


def of_kueue(cluster: TrainJobCluster) -> None:
    """Have it suspended by Kueue, which runs in the cluster."""
    labelled_for_kueue(cluster)
    cluster.store.served.add("/apis/kueue.x-k8s.io")


def labelled_for_kueue(cluster: TrainJobCluster) -> None:
    """Have it suspended with a label for Kueue, which does not run in the cluster."""
    cluster.trainjob["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lab"}
    cluster.change(suspend=True)


def may_not_ask_for_kueue(cluster: TrainJobCluster) -> None:
    """Have the same, and a user that may not see the API groups."""
    labelled_for_kueue(cluster)
    cluster.store.forbidden = {"kueue.x-k8s.io"}


def not_admitted(cluster: TrainJobCluster) -> None:
    """Have a JobSet that our webhook has not admitted, so that its pods have no PodGroup."""
    cluster.store.remove(PODGROUPS, Key("default", GROUP))
    del cluster.jobset["metadata"]["annotations"]["trainer-kai.dev/admitted"]
    cluster.store.put(JOBSETS, cluster.jobset)
    text = "NoCapacity: 0 of 4 pods have room"
    report = {"type": "PodScheduled", "status": "False", "message": text}
    cluster.pods("node", 4, status={"conditions": [report]}, grouped=False)


def without_jobset(cluster: TrainJobCluster) -> None:
    """Have nothing but the TrainJob."""
    cluster.store.remove(JOBSETS, Key("default", "job"))
    for group in cluster.groups.values():
        cluster.store.remove(PODGROUPS, Key("default", group["metadata"]["name"]))


def without_groups(cluster: TrainJobCluster) -> None:
    """Have pods and no PodGroups."""
    cluster.store.remove(PODGROUPS, Key("default", GROUP))
    cluster.pods("node", 4)


def webhook_down(cluster: TrainJobCluster) -> None:
    """Have Trainer say that the webhook does not answer."""
    without_jobset(cluster)
    message = 'failed calling webhook "jobset-create.trainer-kai.dev"'
    cluster.event("TrainJob job", "TrainJobResourcesCreationFailed", message)


def incomplete(cluster: TrainJobCluster) -> None:
    """Have three that run, and a fourth that does not find its room again."""
    cluster.running("node", 3)
    cluster.pods("node")


def nominated(cluster: TrainJobCluster) -> None:
    """Have pods wait for a node that others leave."""
    cluster.pods("node", 4, status={"nominatedNodeName": "node-7"})


def for_another_scheduler(cluster: TrainJobCluster) -> None:
    """Have pods that name another scheduler."""
    report = {"type": "PodScheduled", "status": "False", "message": "0/8 nodes are available"}
    spec = {"schedulerName": "default-scheduler"}
    cluster.pods("node", 4, spec=spec, status={"conditions": [report]}, grouped=False)


def explained_on_pods(cluster: TrainJobCluster) -> None:
    """Have the scheduler's reason on pods only, for a user that may not read PodGroups."""
    text = "NoCapacity: 0 of 4 pods have room"
    report = {"type": "PodScheduled", "status": "False", "message": text}
    cluster.pods("node", 4, status={"conditions": [report]})
    cluster.store.forbidden = {"podgroups"}


def lost_queue(cluster: TrainJobCluster) -> None:
    """Have the queue deleted, before the scheduler has reported it."""
    cluster.pods("node", 4)
    cluster.store.remove(QUEUES, Key("", "team-a"))


def lease_expired(age_s: int, holder: str = "kai-0_x") -> Change:
    """Return a change after which no scheduler has led for so long."""

    def change(cluster: TrainJobCluster) -> None:
        without_capacity(cluster)
        cluster.lease(age_s, holder)

    return change


def never_led(cluster: TrainJobCluster) -> None:
    """Have no Lease."""
    cluster.pods("node", 4)
    cluster.store.remove(LEASES, Key("trainer-kai", "trainer-kai-scheduler"))


WAITS: Final = WorkloadState.WAITS
RUNS: Final = WorkloadState.RUNS

# a change of the cluster -> the state, and the reasons of the TrainJob and of its PodGroup
CASES: Final[list[Case[Change, Expected]]] = [
    Case(
        "the scheduler's reason is reported, not KAI's reason beside it",
        without_capacity,
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "the reason of another scheduler is reported as it is",
        by_another,
        (WAITS, "OverLimit: x"),
    ),
    Case("our scheduler is paused", paused, (WAITS, f"SchedulerPaused: {PAUSED}")),
    Case("a TrainJob that runs does not wait", lambda it: it.running("node", 4), (RUNS,)),
    Case(
        "pods of an earlier attempt do not count",
        started_again,
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "a pod on its node says what keeps it",
        pulling,
        (WAITS, "Starting: 1 pod on node-1 is not running yet: ImagePullBackOff: no such image"),
    ),
    Case(
        "pods are about to be created",
        lambda it: it.running("node", 3),
        (WAITS, "PodsMissing: 3 of 4 pods exist. The Job controller creates the missing pods"),
    ),
    Case(
        "a user has suspended it",
        lambda it: it.change(suspend=True),
        (
            WorkloadState.SUSPENDED,
            f"Suspended: spec.suspend is true. {UNSUSPEND}",
        ),
    ),
    Case(
        "Trainer did not resume it yet",
        not_resumed,
        (
            WorkloadState.SUSPENDED,
            (
                "Suspended: The JobSet is suspended, although spec.suspend of TrainJob job is "
                "false. It starts when Trainer resumes the JobSet; if that fails, see the Events "
                "of the TrainJob"
            ),
        ),
    ),
    Case(
        "it was evicted",
        evicted,
        (
            WorkloadState.SUSPENDED,
            f"Suspended: The scheduler evicted the TrainJob: pods are lost. {RESUMED}",
        ),
    ),
    Case(
        "only the TrainJob itself has the record of an eviction",
        forged,
        (
            WorkloadState.SUSPENDED,
            (
                "Suspended: spec.suspend is true, and no PodGroup of the TrainJob records an "
                f"eviction: its annotation {_RECORD} is outdated, or was not written by the "
                f"scheduler. {UNSUSPEND}"
            ),
        ),
    ),
    Case(
        "Kueue has not admitted it",
        of_kueue,
        (
            WorkloadState.SUSPENDED,
            (
                "Suspended: Kueue has not admitted the workload (Kueue queue lab). It starts "
                "afterwards"
            ),
        ),
    ),
    Case(
        "it has a label for Kueue, which does not run",
        labelled_for_kueue,
        (
            WorkloadState.SUSPENDED,
            (
                "Suspended: spec.suspend is true (label kueue.x-k8s.io/queue-name has no effect, "
                f"because the cluster has no API of Kueue). {UNSUSPEND}"
            ),
        ),
    ),
    Case(
        "it has a label for Kueue, and the user may not see whether that runs",
        may_not_ask_for_kueue,
        (
            WorkloadState.SUSPENDED,
            (
                "Suspended: spec.suspend is true, and a label names Kueue queue lab. If Kueue runs "
                "in the cluster, it has not admitted the workload. Otherwise, set spec.suspend to "
                "false to start it"
            ),
        ),
    ),
    Case(
        "the webhook is down",
        webhook_down,
        (
            WAITS,
            (
                'JobSetMissing: failed calling webhook "jobset-create.trainer-kai.dev". Check '
                "the webhook of trainer-kai (`trainer-kai doctor`). Trainer retries with growing "
                "delays; any change of the TrainJob, such as an annotation, makes it retry at once"
            ),
        ),
    ),
    Case(
        "Trainer is down",
        without_jobset,
        (
            WAITS,
            (
                "JobSetMissing: Trainer has not created the JobSet, and no Event gives a reason. "
                "Check that Trainer is running"
            ),
        ),
    ),
    Case(
        "another controller runs it",
        lambda it: it.change(managedBy="example.com/other"),
        (
            WAITS,
            (
                "LeftToOthers: example.com/other runs the TrainJob (spec.managedBy): see the "
                "status that it reports"
            ),
            "PodsMissing: 0 of 4 pods exist. The Job controller creates the missing pods",
        ),
    ),
    Case(
        "the podgrouper is down",
        without_groups,
        (
            WAITS,
            (
                f"GroupMissing: PodGroup {GROUP}, which the pods name, does not exist. Check that "
                "the podgrouper is running (`trainer-kai doctor`)"
            ),
        ),
    ),
    Case(
        "the JobSet was not admitted, so that its pods have no PodGroup",
        not_admitted,
        (WAITS, "NoCapacity: 0 of 4 pods have room"),
    ),
    Case(
        "pods name another scheduler",
        for_another_scheduler,
        (
            WAITS,
            (
                "LeftToOthers: 4 pods wait for scheduler default-scheduler: 0/8 nodes are "
                "available. trainer-kai schedules pods with schedulerName kai-scheduler only"
            ),
        ),
    ),
    Case(
        "pods are gated",
        lambda it: it.pods("node", 4, spec={"schedulingGates": [{"name": "example.com/later"}]}),
        (
            WAITS,
            (
                "Gated: 4 pods have scheduling gates: example.com/later. Wait until their "
                "controllers remove the gates"
            ),
        ),
    ),
    Case(
        "pods are nominated to a node",
        nominated,
        (
            WAITS,
            (
                "WaitingForVictims: 4 pods are nominated to node-7. Wait until the pods that "
                "terminate there are gone"
            ),
        ),
    ),
    Case(
        "the queue does not exist, and the scheduler has not reported that yet",
        lost_queue,
        (
            WAITS,
            (
                "QueueMissing: Queue team-a does not exist. Create it, or suspend the TrainJob, "
                "change its queue label and resume it"
            ),
        ),
    ),
    Case(
        "a leader that was silent a moment is one",
        lease_expired(100),
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "a leader that is silent for long is none, and its status is old",
        lease_expired(3600),
        (
            WAITS,
            (
                "NoScheduler: No scheduler is active: kai-0 last renewed Lease trainer-kai/"
                f"trainer-kai-scheduler at 2025-12-31T23:00:00.000000Z. {CHECK}. Last status: "
                "NoCapacity: 0 of 4 pods have room. It can."
            ),
        ),
    ),
    Case(
        "a scheduler that ended in order holds its Lease no more",
        lease_expired(5, ""),
        (
            WAITS,
            (
                "NoScheduler: No scheduler is active: Lease trainer-kai/trainer-kai-scheduler has "
                f"no holder since 2025-12-31T23:59:55.000000Z. {CHECK}. Last status: NoCapacity: 0 "
                "of 4 pods have room. It can."
            ),
        ),
    ),
    Case(
        "there never was a scheduler",
        never_led,
        (
            WAITS,
            (
                "NoScheduler: No scheduler has run in namespace trainer-kai: Lease trainer-kai/"
                f"trainer-kai-scheduler does not exist. {CHECK}"
            ),
        ),
    ),
    Case(
        "a PodGroup runs and has lost a pod",
        incomplete,
        (
            WAITS,
            (
                "Incomplete: 3 pods run, and 1 more waits for a node. If no node has free "
                "resources in time, the whole PodGroup is evicted and waits again"
            ),
        ),
    ),
    Case(
        "the scheduler has written no status yet",
        lambda it: it.pods("node", 4),
        (
            WAITS,
            (
                "NoStatus: 4 pods wait, and the scheduler has written no status yet. If this "
                "persists, check that the scheduler is running (`trainer-kai doctor`)"
            ),
        ),
    ),
    Case(
        "the GPU of a share is being reserved",
        lambda it: it.pods("node", 4, meta={"annotations": _SHARE}),
        (
            WAITS,
            (
                "NoStatus: 4 pods wait, and the scheduler has written no status yet. It may be "
                "reserving their GPUs: if that fails, an Event GpuReservationFailed says why "
                "(`kubectl describe pod job-node-0-1 -n default`). Else check that the scheduler "
                "is running (`trainer-kai doctor`)"
            ),
        ),
    ),
    Case(
        "the user may not read PodGroups, and the pods have the reason",
        explained_on_pods,
        (WAITS, "NoCapacity: 0 of 4 pods have room"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_the_reason(case: Case[Change, Expected]) -> None:
    """There is one, it has its numbers, and it says what would change it."""
    cluster = TrainJobCluster()
    case.given(cluster)

    assert await cluster.reasons() == case.want
