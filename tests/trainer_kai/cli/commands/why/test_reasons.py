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
from trainer_kai.cli.commands.why.report import WorkloadState

Change: TypeAlias = Callable[[TrainJobCluster], None]
Expected: TypeAlias = tuple[str, ...]

GROUP: Final = f"pg-job-{UID}"
NODE: Final = {"nodeName": "node-1"}
PAUSED = "scheduler paused: another scheduler holds Lease kai-scheduler/kai-scheduler (holder x)"
RESUMED = "It goes on by itself, unless its user has suspended it, too"
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
    """Have it suspended by Kueue."""
    cluster.trainjob["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lab"}
    cluster.change(suspend=True)


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
    """Have pods that ask another scheduler."""
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
        "what another scheduler says is told as it is",
        by_another,
        (WAITS, "OverLimit: x"),
    ),
    Case("our scheduler is paused", paused, (WAITS, f"SchedulerPaused: {PAUSED}")),
    Case("whoever runs does not wait", lambda it: it.running("node", 4), (RUNS,)),
    Case(
        "pods of an earlier attempt do not count",
        started_again,
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "a pod on its node says what keeps it",
        pulling,
        (WAITS, "Starting: 1 pod on node-1 does not run yet: ImagePullBackOff: no such image"),
    ),
    Case(
        "pods that are about to be made say nothing",
        lambda it: it.running("node", 3),
        (WAITS, "PodsMissing: pods are missing: 3 of 4 exist. Their Jobs make the others"),
    ),
    Case(
        "nobody has suspended it but a user",
        lambda it: it.change(suspend=True),
        (
            WorkloadState.SUSPENDED,
            "Suspended: somebody has suspended it. It goes on when spec.suspend is false",
        ),
    ),
    Case(
        "Trainer did not resume it yet",
        not_resumed,
        (
            WorkloadState.SUSPENDED,
            (
                "Suspended: its JobSet is suspended, though spec.suspend of job is false. "
                "It goes on when Trainer resumes it; if that fails an event of the job says why"
            ),
        ),
    ),
    Case(
        "it was evicted",
        evicted,
        (
            WorkloadState.SUSPENDED,
            f"Suspended: it was taken off its nodes: pods are lost. {RESUMED}",
        ),
    ),
    Case(
        "only it says itself that it was evicted",
        forged,
        (
            WorkloadState.SUSPENDED,
            (
                f"Suspended: no PodGroup of it says that it was evicted: its annotation {_RECORD} "
                "is not the scheduler's, or out of date. It goes on when spec.suspend is false"
            ),
        ),
    ),
    Case(
        "Kueue holds it",
        of_kueue,
        (
            WorkloadState.SUSPENDED,
            "Suspended: Kueue has not admitted it (queue lab). It goes on when Kueue does",
        ),
    ),
    Case(
        "the webhook is down",
        webhook_down,
        (
            WAITS,
            (
                'JobSetMissing: failed calling webhook "jobset-create.trainer-kai.dev". The '
                "webhook of trainer-kai has to answer. Trainer tries again by itself, ever more "
                "rarely; any change of the TrainJob, an annotation too, makes it try at once"
            ),
        ),
    ),
    Case(
        "Trainer is down",
        without_jobset,
        (
            WAITS,
            "JobSetMissing: Trainer has not made its JobSet, and has not said why: it may not run",
        ),
    ),
    Case(
        "it is left to somebody else",
        lambda it: it.change(managedBy="example.com/other"),
        (
            WAITS,
            (
                "LeftToOthers: spec.managedBy leaves it to example.com/other: whoever that is "
                "knows how far it is"
            ),
            "PodsMissing: pods are missing: 0 of 4 exist. Their Jobs make the others",
        ),
    ),
    Case(
        "the podgrouper is down",
        without_groups,
        (
            WAITS,
            (
                f"GroupMissing: its pods are in the PodGroup {GROUP}, which does not exist. It "
                "goes on when the podgrouper, or whoever groups them, makes it"
            ),
        ),
    ),
    Case(
        "pods ask another scheduler",
        for_another_scheduler,
        (
            WAITS,
            "LeftToOthers: 4 pods wait for default-scheduler, not for us: 0/8 nodes are available",
        ),
    ),
    Case(
        "pods are gated",
        lambda it: it.pods("node", 4, spec={"schedulingGates": [{"name": "example.com/later"}]}),
        (
            WAITS,
            "Gated: 4 pods are gated. It goes on when these gates are gone: example.com/later",
        ),
    ),
    Case(
        "pods have the promise of a node",
        nominated,
        (
            WAITS,
            "WaitingForVictims: 4 pods have the promise of node-7, and can start when others left",
        ),
    ),
    Case(
        "the queue is not there, and nobody has said so yet",
        lost_queue,
        (
            WAITS,
            (
                "QueueMissing: queue team-a does not exist. It goes on when that is made, or when "
                "it is suspended and resumed with another"
            ),
        ),
    ),
    Case(
        "a leader that was silent a moment is one",
        lease_expired(100),
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "a leader that is silent for long is none, and what it said is old",
        lease_expired(3600),
        (
            WAITS,
            (
                "NobodySchedules: no scheduler runs: kai-0 has not renewed the Lease trainer-kai/"
                "trainer-kai-scheduler since 2025-12-31T23:00:00.000000Z. It goes on when the "
                "scheduler runs. The last that was said of it: NoCapacity: 0 of 4 pods have room. "
                "It can."
            ),
        ),
    ),
    Case(
        "a scheduler that ended in order holds its Lease no more",
        lease_expired(5, ""),
        (
            WAITS,
            (
                "NobodySchedules: no scheduler runs: nobody holds the Lease trainer-kai/trainer-"
                "kai-scheduler since 2025-12-31T23:59:55.000000Z. It goes on when the scheduler "
                "runs. The last that was said of it: NoCapacity: 0 of 4 pods have room. It can."
            ),
        ),
    ),
    Case(
        "there never was a scheduler",
        never_led,
        (
            WAITS,
            (
                "NobodySchedules: no scheduler has ever run, or not in its namespace: there is no "
                "Lease trainer-kai/trainer-kai-scheduler. It goes on when the scheduler runs"
            ),
        ),
    ),
    Case(
        "a unit has begun and lost a pod",
        incomplete,
        (
            WAITS,
            (
                "Incomplete: 3 pods run, and 1 more needs room. If there is none in time it is "
                "taken off its nodes whole, and starts anew"
            ),
        ),
    ),
    Case(
        "nobody has said anything yet",
        lambda it: it.pods("node", 4),
        (
            WAITS,
            (
                "NothingSaid: 4 pods wait: nobody has said why yet. If that stays so, the "
                "scheduler may not run"
            ),
        ),
    ),
    Case(
        "pods say it where groups may not be read",
        explained_on_pods,
        (WAITS, "NoCapacity: 0 of 4 pods have room"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_the_reason(case: Case[Change, Expected]) -> None:
    """There is one, it has its numbers, and it says what would change it."""
    cluster = TrainJobCluster()
    case.given(cluster)

    report = await cluster.why()

    reasons = [
        it for it in (report.reason, *(podgroup.reason for podgroup in report.podgroups)) if it
    ]
    assert (report.state, *(f"{it.title}: {it.message}" for it in reasons)) == case.want
