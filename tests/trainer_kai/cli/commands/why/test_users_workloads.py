"""The report on Jobs and JobSets of users, which have PodGroups as TrainJobs do."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import job, user_jobset
from tests.trainer_kai.cli.commands.why.trainjob_cluster import TrainJobCluster
from tests.trainer_kai.cli.commands.why.users_cluster import SCHEDULER, Fields, UsersCluster
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CONTROLLER_UID, EVICTED_BY, JOBSET_NAME, JOBSET_UID
from trainer_kai.api.resources import JOBS, JOBSETS, PODGROUPS, PODS, TRAINJOBS
from trainer_kai.cli.commands.why.command import parse_subject
from trainer_kai.cli.commands.why.output import as_text
from trainer_kai.cli.commands.why.report import TrainJobReport
from trainer_kai.errors import ConfigError

Change: TypeAlias = Callable[[UsersCluster], object]

TEAM: Final = {"kai.scheduler/queue": "team-a"}
SINCE: Final = "2025-12-31T23:58:00+00:00"
RUNS: Final = {"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}
NO_GPU: Final = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "NoCapacity: no GPU is free",
            "lastTransitionTime": SINCE,
        }
    ]
}


def waiting(reason: str, message: str) -> Fields:
    """Return the status of a PodGroup that waits."""
    condition = {
        "type": "UnschedulableOnNodePool",
        "status": "True",
        "reason": "Unschedulable",
        "reasons": [{"reason": reason, "message": message}],
        "lastTransitionTime": SINCE,
    }
    return {"schedulingConditions": [condition]}


def ended(name: str) -> Fields:
    condition = {"type": name, "status": "True", "reason": "Why", "message": "so"}
    return {"conditions": [condition]}


def no_room(cluster: UsersCluster) -> None:
    """Have a Job whose two pods wait."""
    group = cluster.submit(job("train", labels=TEAM))
    status = waiting("NoCapacity", "no GPU is free")
    cluster.store.put(PODGROUPS, {**group, "status": status})
    cluster.job_pods("train", 2)


def without_leader(cluster: UsersCluster) -> None:
    """Have a Job whose pods wait while no scheduler leads."""
    cluster.submit(job("train", labels=TEAM))
    cluster.job_pods("train", 2)
    cluster.lease(5, "")


def partly_running(cluster: UsersCluster) -> None:
    """Have a Job of which one pod runs, and the other waits."""
    cluster.submit(job("train", labels=TEAM))
    cluster.job_pods("train", 1, **RUNS)
    cluster.job_pods("train", 1, status=NO_GPU)


def gang(cluster: UsersCluster) -> None:
    """Have a Job that asks for a gang, of which one pod exists."""
    annotations = {"kai.scheduler/batch-min-member": "2"}
    cluster.submit(job("train", labels=TEAM, annotations=annotations))
    cluster.job_pods("train", 1)


def without_podgroup(cluster: UsersCluster) -> None:
    """Have a Job whose PodGroup is missing."""
    cluster.submit(job("train", labels=TEAM))
    cluster.store.remove(PODGROUPS, Key("default", "pg-train-uid-train"))
    cluster.job_pods("train", 2, grouped=False)


def replaced(cluster: UsersCluster) -> None:
    """Have the pod of a Job that was deleted, and had the same name."""
    cluster.submit(job("train", labels=TEAM))
    cluster.job_pods("train", 1, labels={CONTROLLER_UID: "old"}, **RUNS)


def evicted(cluster: UsersCluster) -> None:
    """Have a Job that the scheduler suspended."""
    group = cluster.submit(job("train", labels=TEAM), spec={"suspend": True})
    group["metadata"]["uid"] = "uid-group"
    record = {"trainJob": "uid-train", "podGroup": "uid-group", "why": "team-b reclaims its quota"}
    group["metadata"]["annotations"][EVICTED_BY] = msgspec.json.encode(record).decode()
    cluster.store.put(PODGROUPS, group)


def unreviewed(cluster: UsersCluster) -> None:
    """Have a Job that was created while the webhook did not run."""
    it = job("train", labels=TEAM)
    cluster.store.put(JOBS, it)
    cluster.job_pods("train", 1, grouped=False, status=NO_GPU)


def for_default_scheduler(cluster: UsersCluster) -> None:
    """Have a Job that names no scheduler."""
    it = job("train", scheduler="default-scheduler")
    cluster.store.put(JOBS, it)
    status = {"conditions": [{**NO_GPU["conditions"][0], "message": "0/3 nodes are available"}]}
    spec = {"schedulerName": "default-scheduler"}
    cluster.job_pods("train", 1, grouped=False, spec=spec, status=status)


def managed_elsewhere(cluster: UsersCluster) -> None:
    """Have a Job that another cluster runs."""
    it = job("train")
    it["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    cluster.store.put(JOBS, it)


def moved(cluster: UsersCluster) -> None:
    """Have a running Job whose label names another queue now."""
    it = job("train", labels=TEAM)
    cluster.submit(it)
    cluster.job_pods("train", 2, **RUNS)
    it["metadata"]["labels"] = {"kai.scheduler/queue": "team-b"}
    cluster.store.put(JOBS, it)


HEAD: Final = "Job default/train waits queue team-a"
TABLE: Final = ["", "STAGE PODGROUP AFTER MEMBERS STATE PODS"]
UNREVIEWED: Final = (
    "the Job has no annotation trainer-kai.dev/admitted, because the webhook of trainer-kai did not"
    " review its creation. So its pods have no PodGroup, and start one by one. Create it anew; if"
    " it still has none, see `trainer-kai doctor`"
)
# a change of the cluster -> the lines of the report
JOB_CASES: Final[list[Case[Change, list[str]]]] = [
    Case(
        "its pods wait",
        no_room,
        [
            HEAD,
            "",
            "Job → 1 PodGroup → 2 pods: 2 waiting",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods waits 2 waiting",
            "NoCapacity (for 2m): no GPU is free",
        ],
    ),
    Case(
        "no scheduler leads",
        without_leader,
        [
            HEAD,
            "",
            "Job → 1 PodGroup → 2 pods: 2 waiting",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods waits 2 waiting",
            (
                "NoScheduler: No scheduler is active: Lease"
                " trainer-kai/trainer-kai-scheduler has no holder since"
                " 2025-12-31T23:59:55.000000Z. Check that the scheduler is running"
                " (`trainer-kai doctor`)"
            ),
        ],
    ),
    Case(
        "it runs with its first pod",
        partly_running,
        [
            "Job default/train runs queue team-a",
            "",
            "Job → 1 PodGroup → 2 pods: 1 running, 1 waiting",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods runs 1 running, 1 waiting",
            "the PodGroup runs with its minimum; 1 more can start (NoCapacity: no GPU is free)",
        ],
    ),
    Case(
        "a pod of a gang is missing",
        gang,
        [
            HEAD,
            "",
            "Job → 1 PodGroup → 1 pod: 1 waiting",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods waits 1 waiting",
            "PodsMissing: 1 of 2 pods exist. The Job controller creates the missing pods",
        ],
    ),
    Case(
        "its PodGroup is missing",
        without_podgroup,
        [
            "Job default/train waits queue team-a (label kai.scheduler/queue)",
            "",
            "Job → 1 PodGroup → 2 pods: 2 waiting",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods waits 2 waiting",
            (
                "GroupMissing: PodGroup pg-train-uid-train does not exist, and the pods name no"
                " PodGroup. Check that the podgrouper is running (`trainer-kai doctor`)"
            ),
        ],
    ),
    Case(
        "pods of an earlier Job of the same name do not count",
        replaced,
        [
            HEAD,
            "",
            "Job → 1 PodGroup → 0 pods",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods waits -",
            "PodsMissing: 0 of 1 pod exist. The Job controller creates the missing pods",
        ],
    ),
    Case(
        "the scheduler evicted it",
        evicted,
        [
            "Job default/train suspended queue team-a",
            (
                "Suspended: The scheduler evicted the Job: team-b reclaims its quota. The scheduler"
                " resumes it, unless a user has suspended it as well"
            ),
            "",
            "Job → 1 PodGroup → 0 pods",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods suspended -",
        ],
    ),
    Case(
        "its user suspended it",
        lambda cluster: cluster.submit(job("train", labels=TEAM), spec={"suspend": True}),
        [
            "Job default/train suspended queue team-a",
            "Suspended: spec.suspend is true. To start it, set spec.suspend to false",
            "",
            "Job → 1 PodGroup → 0 pods",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods suspended -",
        ],
    ),
    Case(
        "it has failed",
        lambda cluster: cluster.submit(job("train", labels=TEAM), status=ended("Failed")),
        [
            "Job default/train failed queue team-a (label kai.scheduler/queue)",
            "Why: so",
        ],
    ),
    Case(
        "its label names another queue",
        moved,
        [
            "Job default/train runs queue team-a",
            "",
            "Job → 1 PodGroup → 2 pods: 2 running",
            *TABLE,
            "1/1 pg-train-uid-train - 2 pods runs 2 running",
            (
                "note: the label names queue team-b; it takes effect when the Job is suspended and"
                " resumed"
            ),
        ],
    ),
    Case(
        "admission did not review it",
        unreviewed,
        [
            (
                "Job default/train waits queue default-queue (the default, without a label"
                " kai.scheduler/queue)"
            ),
            "",
            "Job → 1 pod: 1 waiting",
            "",
            "POD STATE NODE PODS",
            "train-1 waits - 1 waiting",
            "NoCapacity (for 2m): no GPU is free",
            f"note: {UNREVIEWED}",
        ],
    ),
    Case(
        "it is for the default scheduler",
        for_default_scheduler,
        [
            "Job default/train waits queue -",
            "",
            "Job → 1 pod: 1 waiting",
            "",
            "POD STATE NODE PODS",
            "train-1 waits - 1 waiting",
            (
                "LeftToOthers: 1 pod waits for scheduler default-scheduler: 0/3 nodes are"
                " available. trainer-kai schedules pods with schedulerName kai-scheduler only. To"
                " have it schedule the Job, create that anew with this name"
            ),
        ],
    ),
    Case(
        "another cluster runs it",
        managed_elsewhere,
        [
            "Job default/train waits queue -",
            (
                "LeftToOthers: kueue.x-k8s.io/multikueue runs the Job (spec.managedBy): see the"
                " status that it reports"
            ),
        ],
    ),
]


def lines_of(report: TrainJobReport) -> list[str]:
    return [" ".join(line.split()) for line in as_text(report, 1000).splitlines()]


@pytest.mark.parametrize("case", JOB_CASES, ids=ids)
async def test_a_job(case: Case[Change, list[str]]) -> None:
    """Its only PodGroup is shown like those of a TrainJob."""
    cluster = UsersCluster()
    case.given(cluster)

    assert lines_of(await cluster.why(job="train")) == case.want


def jobset_pods(cluster: UsersCluster, number: int, **fields: Fields) -> None:
    labels = {
        JOBSET_NAME: "steps",
        JOBSET_UID: "uid-steps",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        CONTROLLER_UID: "uid-of-its-job",
    }
    cluster.job_pods("steps", number, labels=labels, **fields)


def waiting_jobset(cluster: UsersCluster) -> None:
    """Have a JobSet of which all four pods wait."""
    group = cluster.submit(user_jobset("steps", labels=TEAM))
    status = waiting("NoCapacity", "no GPU is free")
    cluster.store.put(PODGROUPS, {**group, "status": status})
    jobset_pods(cluster, 4)


def other_jobset(scheduler: str) -> Change:
    """Return a change after which there is a JobSet without the mark of admission or pods."""
    it = user_jobset("steps", scheduler=scheduler)
    return lambda cluster: cluster.store.put(JOBSETS, it)


STEPS_ROW: Final = "1/1 pg-steps-uid-steps - 4 node"
JOBSET_CASES: Final[list[Case[Change, list[str]]]] = [
    Case(
        "its pods wait",
        waiting_jobset,
        [
            "JobSet default/steps waits queue team-a",
            "",
            "JobSet → 1 PodGroup → 4 pods: 4 waiting",
            *TABLE,
            f"{STEPS_ROW} waits 4 waiting",
            "NoCapacity (for 2m): no GPU is free",
        ],
    ),
    Case(
        "its user suspended it",
        lambda cluster: cluster.submit(user_jobset("steps", labels=TEAM), spec={"suspend": True}),
        [
            "JobSet default/steps suspended queue team-a",
            "Suspended: spec.suspend is true. To start it, set spec.suspend to false",
            "",
            "JobSet → 1 PodGroup → 0 pods",
            *TABLE,
            f"{STEPS_ROW} suspended -",
        ],
    ),
    Case(
        "it is complete",
        lambda cluster: cluster.submit(
            user_jobset("steps", labels=TEAM), status=ended("Completed")
        ),
        ["JobSet default/steps complete queue team-a (label kai.scheduler/queue)"],
    ),
    Case(
        "it is for another scheduler",
        other_jobset("volcano"),
        [
            "JobSet default/steps waits queue -",
            (
                "LeftToOthers: The pods are for scheduler volcano. To have trainer-kai schedule"
                " the JobSet, create it anew with spec.replicatedJobs[0].template.spec.template"
                ".spec.schedulerName: kai-scheduler"
            ),
            "",
            "JobSet → 0 PodGroups → 0 pods",
        ],
    ),
    Case(
        "admission did not review it",
        other_jobset("kai-scheduler"),
        [
            "JobSet default/steps waits queue -",
            f"GroupMissing: {UNREVIEWED.replace('the Job', 'The JobSet', 1)}",
            "",
            "JobSet → 0 PodGroups → 0 pods",
        ],
    ),
]


@pytest.mark.parametrize("case", JOBSET_CASES, ids=ids)
async def test_a_jobset(case: Case[Change, list[str]]) -> None:
    """One without a TrainJob."""
    cluster = UsersCluster()
    case.given(cluster)

    assert lines_of(await cluster.why_of("JobSet", "steps")) == case.want


async def test_a_jobset_of_a_trainjob() -> None:
    """The report is that of the TrainJob, and says so."""
    cluster = TrainJobCluster()
    (owner,) = cluster.jobset["metadata"]["ownerReferences"]
    owner["apiVersion"] = TRAINJOBS.api_version
    cluster.store.put(JOBSETS, cluster.jobset)

    report = await cluster.why_of("JobSet", "job")

    assert (report.kind, report.key.name) == ("TrainJob", "job")
    assert report.notes == ("JobSet job belongs to TrainJob job",)


@pytest.mark.parametrize(
    ("name", "kind"), [("job", "TrainJob"), ("steps", "JobSet"), ("train", "Job"), ("x", "Pod")]
)
async def test_a_name_alone(name: str, kind: str) -> None:
    """A TrainJob first, then a JobSet, a Job and a pod."""
    cluster = UsersCluster()
    cluster.submit(user_jobset("steps"))
    cluster.submit(job("steps"))
    cluster.submit(job("train"))
    for pod in ("x", "train", "job"):
        meta = {"namespace": "default", "name": pod, "uid": pod}
        cluster.store.put(PODS, {"metadata": meta, "spec": {"schedulerName": SCHEDULER}})

    assert (await cluster.why_of("", name)).kind == kind


async def test_a_name_of_a_job_without_the_right_to_read_jobsets() -> None:
    """The kinds that come later are read all the same."""
    cluster = UsersCluster()
    cluster.submit(job("train"))
    cluster.store.forbidden.add("jobsets")

    assert (await cluster.why_of("", "train")).kind == "Job"


async def test_a_name_of_no_object() -> None:
    """The error names the kinds."""
    message = "^lost: namespace default has no TrainJob, JobSet, Job or pod with this name$"
    with pytest.raises(ConfigError, match=message):
        await UsersCluster().why_of("", "lost")


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("x", ("", "x")),
        ("job/x", ("Job", "x")),
        ("jobs/x", ("Job", "x")),
        ("job.batch/x", ("Job", "x")),
        ("jobs.v1.batch/x", ("Job", "x")),
        ("JobSet/x", ("JobSet", "x")),
        ("jobsets.jobset.x-k8s.io/x", ("JobSet", "x")),
        ("trainjobs.trainer.kubeflow.org/x", ("TrainJob", "x")),
        ("po/x", ("Pod", "x")),
    ],
)
def test_kinds_are_named_as_for_kubectl(text: str, subject: tuple[str, str]) -> None:
    """Singular, plural, and with the API group."""
    assert parse_subject(text) == subject


@pytest.mark.parametrize("text", ["job.example.org/x", "secret/x", "job/", "a/job/x", "/x", ""])
def test_other_kinds_are_refused(text: str) -> None:
    """The error lists what is possible."""
    with pytest.raises(ConfigError, match="must be the name of a workload or pod, or trainjob/"):
        parse_subject(text)


async def test_few_requests_are_sent() -> None:
    """The Job, its PodGroups, its pods; the Lease, who holds the room that they wait for, nodes."""
    cluster = UsersCluster()
    no_room(cluster)

    await cluster.why(job="train")

    assert len(cluster.store.requests) == 7
