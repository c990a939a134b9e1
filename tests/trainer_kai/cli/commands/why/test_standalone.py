"""The report on pods without a PodGroup: one pod, or the pods of a batch Job."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.why.trainjob_cluster import TrainJobCluster
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import JOBS, LEASES, PODGROUPS, PODS
from trainer_kai.cli.commands.why.output import as_json, as_text
from trainer_kai.cli.commands.why.report import TrainJobReport
from trainer_kai.errors import ConfigError

Change: TypeAlias = Callable[[TrainJobCluster], None]

JOB_NAME: Final = "batch.kubernetes.io/job-name"
SINCE: Final = "2025-12-31T23:58:00+00:00"
CHECK: Final = "heck that the scheduler is running (`trainer-kai doctor`)"
NO_STATUS: Final = (
    "NoStatus: 1 pod waits, and the scheduler has written no status yet. If this persists, "
    f"c{CHECK}"
)


def put_pod(cluster: TrainJobCluster, name: str = "alone", **fields: Any) -> None:
    """Have a pod; keywords are parts of its metadata, spec and status."""
    meta = {"namespace": "default", "name": name, "uid": name, **fields.get("meta", {})}
    spec = {"schedulerName": "kai-scheduler", **fields.get("spec", {})}
    status = {"phase": "Pending", **fields.get("status", {})}
    cluster.store.put(PODS, {"metadata": meta, "spec": spec, "status": status})


def unscheduled(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    """Return the status of a pod for which a scheduler has no node."""
    condition = {"type": "PodScheduled", "status": "False", "lastTransitionTime": SINCE}
    return {"conditions": [{**condition, "reason": reason, "message": message}]}


def pod(**fields: Any) -> Change:
    """Return a change after which there is one pod."""
    return lambda cluster: put_pod(cluster, **fields)


def in_missing_queue(cluster: TrainJobCluster) -> None:
    """Have a pod in a queue that was deleted."""
    put_pod(cluster, meta={"labels": {"kai.scheduler/queue": "team-x"}})


def without_scheduler(cluster: TrainJobCluster) -> None:
    """Have the scheduler stopped after it wrote a reason."""
    cluster.lease(5, "")
    put_pod(cluster, status=unscheduled("NoCapacity: no GPU is free"))


def of_others(cluster: TrainJobCluster) -> None:
    """Have a scheduler in another namespace, which wrote a reason."""
    cluster.store.remove(LEASES, Key("trainer-kai", "trainer-kai-scheduler"))
    put_pod(cluster, status=unscheduled("NoCapacity: no GPU is free"))


def in_podgroup(cluster: TrainJobCluster) -> None:
    """Have a pod that runs, of a PodGroup of four pods that no JobSet owns."""
    meta = {"namespace": "default", "name": "gang"}
    cluster.store.put(PODGROUPS, {"metadata": meta, "spec": {"queue": "team-a", "minMember": 4}})
    spec = {"nodeName": "node-1"}
    put_pod(
        cluster,
        meta={"annotations": {"pod-group-name": "gang"}},
        spec=spec,
        status={"phase": "Running"},
    )


DEFAULT: Final = "queue default-queue (the default, without a label kai.scheduler/queue)"

# a change of the cluster -> the lines of the report
CASES: Final[list[Case[Change, list[str]]]] = [
    Case(
        "the scheduler found no node",
        pod(
            meta={"labels": {"kai.scheduler/queue": "team-a"}},
            status=unscheduled("NoCapacity: no GPU is free. It can start when one is free"),
        ),
        [
            "Pod default/alone waits queue team-a (label kai.scheduler/queue)",
            "NoCapacity (for 2m): no GPU is free. It can start when one is free",
        ],
    ),
    Case(
        "the scheduler wrote a reason that is no name of ours",
        pod(status=unscheduled("GPU sharing is off: set gpu_sharing", "GpuSharing")),
        [
            f"Pod default/alone waits {DEFAULT}",
            "GpuSharing (for 2m): GPU sharing is off: set gpu_sharing",
        ],
    ),
    Case(
        "the scheduler has not reported anything",
        pod(),
        [f"Pod default/alone waits {DEFAULT}", NO_STATUS],
    ),
    Case(
        "the queue exists, and the scheduler has not reported anything",
        pod(meta={"labels": {"kai.scheduler/queue": "team-a"}}),
        ["Pod default/alone waits queue team-a (label kai.scheduler/queue)", NO_STATUS],
    ),
    Case(
        "the queue does not exist",
        in_missing_queue,
        [
            "Pod default/alone waits queue team-x (label kai.scheduler/queue)",
            (
                "QueueMissing: Queue team-x does not exist. Create it, or create the pods anew with"
                " another label kai.scheduler/queue"
            ),
        ],
    ),
    Case(
        "the scheduler does not run",
        without_scheduler,
        [
            f"Pod default/alone waits {DEFAULT}",
            (
                "NoScheduler: No scheduler is active: Lease trainer-kai/trainer-kai-scheduler has "
                f"no holder since 2025-12-31T23:59:55.000000Z. C{CHECK}. Last status: NoCapacity: "
                "no GPU is free"
            ),
        ],
    ),
    Case(
        "the scheduler runs in another namespace",
        of_others,
        [f"Pod default/alone waits {DEFAULT}", "NoCapacity (for 2m): no GPU is free"],
    ),
    Case(
        "another scheduler places it",
        pod(spec={"schedulerName": "default-scheduler"}, status=unscheduled("0/8 nodes")),
        [
            "Pod default/alone waits queue -",
            (
                "LeftToOthers: 1 pod waits for scheduler default-scheduler: 0/8 nodes. trainer-kai"
                " schedules pods with schedulerName kai-scheduler only"
            ),
        ],
    ),
    Case(
        "it has a gate, as the API server writes as well",
        pod(
            spec={"schedulingGates": [{"name": "example.com/later"}]},
            status=unscheduled("Scheduling is blocked", "SchedulingGated"),
        ),
        [
            f"Pod default/alone waits {DEFAULT}",
            (
                "Gated: 1 pod has scheduling gates: example.com/later. Wait until their controllers"
                " remove the gates"
            ),
        ],
    ),
    Case(
        "it is nominated to a node",
        pod(status={"nominatedNodeName": "node-1"}),
        [
            f"Pod default/alone waits {DEFAULT}",
            (
                "WaitingForVictims: 1 pod is nominated to node-1. Wait until the pods that"
                " terminate there are gone"
            ),
        ],
    ),
    Case(
        "it runs",
        pod(spec={"nodeName": "node-1"}, status={"phase": "Running"}),
        [f"Pod default/alone runs {DEFAULT} node node-1"],
    ),
    Case(
        "it is terminating",
        pod(
            meta={"deletionTimestamp": SINCE},
            spec={"nodeName": "node-1"},
            status={"phase": "Running"},
        ),
        [f"Pod default/alone runs {DEFAULT} node node-1", "note: the pod is terminating"],
    ),
    Case(
        "it starts",
        pod(spec={"nodeName": "node-1"}),
        [
            f"Pod default/alone waits {DEFAULT} node node-1",
            "Starting: 1 pod on node-1 is not running yet: the kubelet has not reported a reason",
        ],
    ),
    Case(
        "it has succeeded",
        pod(spec={"nodeName": "node-1"}, status={"phase": "Succeeded"}),
        [f"Pod default/alone complete {DEFAULT} node node-1"],
    ),
    Case(
        "it has failed",
        pod(
            spec={"nodeName": "node-1"},
            status={"phase": "Failed", "reason": "Evicted", "message": "disk pressure"},
        ),
        [f"Pod default/alone failed {DEFAULT} node node-1", "Evicted: disk pressure"],
    ),
    Case(
        "other pods of its PodGroup are not taken to be missing",
        in_podgroup,
        [
            "Pod default/alone runs queue team-a node node-1",
            "",
            "Pod → 1 PodGroup → 1 pod: 1 running",
            "",
            "STAGE PODGROUP AFTER MEMBERS STATE PODS",
            "- gang - - runs 1 running",
        ],
    ),
]


def lines_of(report: TrainJobReport) -> list[str]:
    return [" ".join(line.split()) for line in as_text(report, 1000).splitlines()]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_a_pod(case: Case[Change, list[str]]) -> None:
    """It has its own condition, its queue with the source of that, and its node."""
    cluster = TrainJobCluster()
    case.given(cluster)

    assert lines_of(await cluster.why("alone")) == case.want


async def test_the_exit_code_and_document_of_a_pod() -> None:
    """A program finds the reason where that of a PodGroup is."""
    cluster = TrainJobCluster()
    put_pod(cluster, status=unscheduled("NoCapacity: no GPU is free"))

    report = await cluster.why("alone")

    document = as_json(report)
    (podgroup,) = document["podGroups"]
    assert report.waits
    assert (document["queue"], document["queueSource"]) == ("default-queue", "default")
    assert podgroup["reason"] == {
        "title": "NoCapacity",
        "message": "no GPU is free",
        "since": SINCE,
    }


def put_job(cluster: TrainJobCluster, **fields: Any) -> None:
    """Have a Job called `plain`; keywords are labels, and parts of its spec and status."""
    meta = {"namespace": "default", "name": "plain", "labels": fields.get("labels", {})}
    spec = {"parallelism": 2, **fields.get("spec", {})}
    cluster.store.put(JOBS, {"metadata": meta, "spec": spec, "status": fields.get("status", {})})


def put_job_pods(cluster: TrainJobCluster, number: int, **fields: Any) -> None:
    """Have some more pods of that Job."""
    prefix = fields.pop("prefix", "plain")
    labels = {JOB_NAME: "plain", "kai.scheduler/queue": "team-a"}
    for index in range(number):
        put_pod(cluster, f"{prefix}-{index}", meta={"labels": labels}, **fields)


def ended(name: str) -> dict[str, Any]:
    return {"conditions": [{"type": name, "status": "True", "reason": "Why", "message": "so"}]}


def fifth_pod_waits(cluster: TrainJobCluster) -> None:
    """Have four pods that run, and a fifth for which there is no GPU."""
    put_job(cluster, spec={"parallelism": 5})
    put_job_pods(cluster, 4, spec={"nodeName": "node-1"}, status={"phase": "Running"})
    status = unscheduled("NoCapacity: no GPU is free")
    put_job_pods(cluster, 1, prefix="waiting", status=status)


def refused(cluster: TrainJobCluster) -> None:
    """Have no pods, because a quota is exceeded."""
    put_job(cluster)
    cluster.event("Job plain", "FailedCreate", 'pods "x" is forbidden: exceeded quota')
    cluster.event("Job other", "FailedCreate", "not ours")


def for_kueue(cluster: TrainJobCluster) -> None:
    """Have it suspended, with a label for Kueue, which runs."""
    put_job(cluster, labels={"kueue.x-k8s.io/queue-name": "lab"}, spec={"suspend": True})
    cluster.store.served.add("/apis/kueue.x-k8s.io")


JOBS_CASES: Final[list[Case[Change, list[str]]]] = [
    Case(
        "the fifth pod waits",
        fifth_pod_waits,
        [
            "Job default/plain waits queue team-a (label kai.scheduler/queue)",
            "",
            "Job → 5 pods: 4 running, 1 waiting",
            "",
            "POD STATE NODE PODS",
            "plain-0, plain-1, plain-2 and 1 more runs node-1 4 running",
            "waiting-0 waits - 1 waiting",
            "NoCapacity (for 2m): no GPU is free",
        ],
    ),
    Case(
        "no pod can be created",
        refused,
        [
            "Job default/plain waits queue -",
            (
                "PodsMissing: 0 of 2 pods exist. Job plain cannot create its pods: exceeded quota. "
                "The Job retries, and creates the pods when the cause is removed"
            ),
        ],
    ),
    Case(
        "it is suspended",
        lambda cluster: put_job(cluster, spec={"suspend": True}),
        [
            "Job default/plain suspended queue -",
            "Suspended: spec.suspend is true. To start it, set spec.suspend to false",
        ],
    ),
    Case(
        "Kueue has not admitted it",
        for_kueue,
        [
            "Job default/plain suspended queue -",
            (
                "Suspended: Kueue has not admitted the workload (Kueue queue lab). It starts"
                " afterwards"
            ),
        ],
    ),
    Case(
        "it has failed",
        lambda cluster: put_job(cluster, status=ended("Failed")),
        ["Job default/plain failed queue -", "Why: so"],
    ),
    Case(
        "it is complete",
        lambda cluster: put_job(cluster, status=ended("Complete")),
        ["Job default/plain complete queue -"],
    ),
]


@pytest.mark.parametrize("case", JOBS_CASES, ids=ids)
async def test_a_job(case: Case[Change, list[str]]) -> None:
    """Pods in the same state share a row, with the reason below it."""
    cluster = TrainJobCluster()
    case.given(cluster)

    assert lines_of(await cluster.why(job="plain")) == case.want


async def test_a_job_of_a_trainjob() -> None:
    """The report is that of the TrainJob, with only the PodGroup of the Job."""
    cluster = TrainJobCluster("torchtune-llama3.2-1b")
    put_job(cluster, labels={"jobset.sigs.k8s.io/jobset-name": "job"})
    cluster.pods("model-initializer", group="model-initializer", labels={JOB_NAME: "plain"})

    report = await cluster.why(job="plain")

    assert (report.kind, report.key.name) == ("TrainJob", "job")
    assert [it.podgroup.replicated_jobs for it in report.podgroups] == [{"model-initializer"}]
    assert report.notes == ("Job plain belongs to TrainJob job: only its PodGroup is shown",)


async def test_a_job_that_does_not_exist() -> None:
    """The error names it."""
    with pytest.raises(ConfigError, match=r"^job/plain: not found in namespace default"):
        await TrainJobCluster().why(job="plain")


async def test_few_requests_are_sent() -> None:
    """The pod; the Lease if it waits; and the queue of its label if it has no reason."""
    cluster = TrainJobCluster()
    put_pod(cluster, "runs", spec={"nodeName": "node-1"}, status={"phase": "Running"})
    put_pod(cluster, "waits", status=unscheduled("NoCapacity: no GPU is free"))
    put_pod(cluster, "new", meta={"labels": {"kai.scheduler/queue": "team-a"}})

    numbers = []
    for name in ("runs", "waits", "new"):
        before = len(cluster.store.requests)
        await cluster.why(name)
        numbers.append(len(cluster.store.requests) - before)

    assert numbers == [1, 2, 3]
