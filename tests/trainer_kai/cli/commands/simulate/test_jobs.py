"""Jobs and JobSets of users in `trainer-kai simulate`: their pods, PodGroups and rows."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import (
    cron_job,
    job,
    node,
    pod,
    queue,
    user_jobset,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ADMITTED, JOB_NAME, POD_GROUP, QUEUE, SUBGROUP
from trainer_kai.cli.commands.simulate.create_pods import create_missing_objects
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, prepare, run
from trainer_kai.cli.commands.simulate.text_output import as_text
from trainer_kai.cli.input.cluster import InputCluster, read_cluster
from trainer_kai.cli.input.documents import Document
from trainer_kai.policy.podgroups.manifests import GroupingRules

RULES = GroupingRules("bundled", "kai-scheduler", "default-queue")
TEAM = {QUEUE: "team-a"}


def grouped(*objects: dict[str, Any]) -> InputCluster:
    inputs = read_cluster(Document("a.yaml", it) for it in objects)
    create_missing_objects(inputs, RULES)
    return inputs


def test_the_pods_of_a_job_are_made() -> None:
    """They are in one flat PodGroup, with the labels that the Job controller gives them."""
    inputs = grouped(job("train", 2, labels=TEAM))

    ((key, group),) = inputs.cluster.pod_groups.items()
    assert key == Key("default", "pg-train-UID")
    assert (group.spec.queue, group.spec.min_member, group.spec.sub_groups) == ("team-a", 1, ())
    pods = inputs.cluster.pods
    assert [it.name for it in pods] == ["train-0", "train-1"]
    for it in pods.values():
        meta = it.metadata
        assert (meta.annotations[POD_GROUP], meta.labels[JOB_NAME]) == (key.name, "train")
        assert SUBGROUP not in meta.labels
        assert [(owner.kind, owner.name) for owner in meta.owner_references] == [("Job", "train")]


def test_the_namespace_names_the_queue_of_a_job() -> None:
    """As admission does it."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    space["metadata"] = {"name": "default", "labels": TEAM}

    for it in (job("train"), user_jobset("steps")):
        (group,) = grouped(it, space).cluster.pod_groups.values()
        assert group.spec.queue == "team-a"


def test_the_pods_of_a_job_are_grouped() -> None:
    """Those that exist; no others are made, and a pod of another Job is not among them."""
    labels = {JOB_NAME: "train"}
    inputs = grouped(
        job("train", 4), pod("train-x1", labels=labels), pod("y", labels={JOB_NAME: "y"})
    )

    assert {
        key.name: it.metadata.annotations.get(POD_GROUP) for key, it in inputs.cluster.pods.items()
    } == {"train-x1": "pg-train-UID", "y": None}


def changed(**status: Any) -> dict[str, Any]:
    return {**job("train"), "status": status}


def suspended(it: dict[str, Any]) -> dict[str, Any]:
    return {**it, "spec": {**it["spec"], "suspend": True}}


OTHERS = "the pods are for scheduler default-scheduler. To have trainer-kai schedule the"
# an object without pods -> what is noted
WITHOUT_PODS: list[Case[dict[str, Any], list[str]]] = [
    Case("a Job that began", changed(startTime="2026-01-05T09:00:00Z"), []),
    Case("a complete Job", changed(conditions=[{"type": "Complete", "status": "True"}]), []),
    Case(
        "a suspended Job",
        suspended(job("train")),
        ["Job default/train: makes no pods: spec.suspend is true"],
    ),
    Case(
        "a suspended JobSet of a user",
        suspended(user_jobset("steps")),
        ["JobSet default/steps: makes no pods: spec.suspend is true"],
    ),
    Case(
        "a Job for another scheduler",
        job("train", scheduler="default-scheduler"),
        [
            (
                "Job default/train: makes no pods: spec.template.spec.schedulerName:"
                f" {OTHERS} Job, set kai-scheduler here"
            )
        ],
    ),
    Case(
        "a JobSet for another scheduler",
        user_jobset("steps", scheduler="default-scheduler"),
        [
            (
                "JobSet default/steps: makes no pods:"
                " spec.replicatedJobs[0].template.spec.template.spec.schedulerName:"
                f" {OTHERS} JobSet, set kai-scheduler here"
            )
        ],
    ),
    Case(
        "a CronJob",
        cron_job("nightly", job("x")),
        ["ignored: batch/v1 CronJob, because only its Jobs have pods (1)"],
    ),
    Case(
        "a Job of a JobSet",
        job(
            "steps-node-0",
            ownerReferences=[{"kind": "JobSet", "name": "steps", "controller": True}],
        ),
        [],
    ),
]


@pytest.mark.parametrize("case", WITHOUT_PODS, ids=ids)
def test_a_workload_without_pods(case: Case[dict[str, Any], list[str]]) -> None:
    """Its missing pods have ended, or are not wanted; what a user may not expect is noted."""
    inputs = grouped(case.given)

    assert not inputs.cluster.pods
    assert inputs.notes == case.want


def test_jobs_for_another_scheduler_share_a_note() -> None:
    """A dump of a cluster has many."""
    others = [job(f"j{i}", scheduler="default-scheduler") for i in range(3)]

    (note,) = grouped(*others).notes

    assert note.startswith("Job default/j0 and 2 more: makes no pods: ")


def test_a_run_of_a_cron_job_is_a_job() -> None:
    """Jobs of other controllers are not grouped."""
    owner = {"name": "nightly", "uid": "u", "controller": True}
    run_of = [{**owner, "apiVersion": "batch/v1", "kind": "CronJob"}]
    of_ray = [{**owner, "apiVersion": "ray.io/v1", "kind": "RayJob"}]

    inputs = grouped(job("run", ownerReferences=run_of), job("ray", ownerReferences=of_ray))

    assert [*inputs.cluster.pod_groups] == [Key("default", "pg-run-UID")]


def test_rows_name_the_job() -> None:
    """The Job starts with the pods that fit; the JobSet of a user only as a whole."""
    objects = [
        node("a", 3),
        queue("team-a", 8),
        job("train", 2, labels=TEAM, creationTimestamp="2026-01-05T09:00:00Z"),
        user_jobset("steps", 2, labels=TEAM, creationTimestamp="2026-01-05T09:00:01Z"),
    ]
    options = SimulationOptions()
    result = run(prepare([Document("a.yaml", it) for it in objects], options), options)

    lines = [" ".join(line.split()) for line in as_text(result).splitlines()]
    assert "default/pg-train-UID (job/train) team-a 2 0 -" in lines
    (waiting,) = (it for it in lines if it.startswith("default/pg-steps-UID"))
    assert waiting.startswith("default/pg-steps-UID team-a 0 4 ")
    bound = [it["pod"] for it in result.document["cycles"][0]["binds"]]
    assert bound == ["train-0", "train-1"]


def test_a_job_that_was_admitted_keeps_its_queue() -> None:
    """Its labels are those that admission wrote."""
    admitted = job("train", labels=TEAM, annotations={ADMITTED: "v1"})
    marks = {QUEUE: "team-b", "trainer-kai.dev/gang": "Main"}
    admitted["spec"]["template"]["metadata"] = {"labels": marks}

    (group,) = grouped(admitted).cluster.pod_groups.values()

    assert group.spec.queue == "team-a"
