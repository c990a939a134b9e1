"""Groups and pods that are missing are made as the real controllers make them."""

from typing import Any

import pytest
import yaml

from tests.support.case import Case, ids
from tests.support.jobsets import RUNTIMES, UID, recorded
from tests.support.tree import ROOT
from tests.support.world import pod, trainjob
from trainer_kai.api.meta import Key
from trainer_kai.api.names import JOB_INDEX, JOBSET_NAME, POD_GROUP, REPLICATED_JOB, SUBGROUP
from trainer_kai.cli.documents import Document
from trainer_kai.cli.grouping import group_workloads
from trainer_kai.cli.objects import Given, read_objects
from trainer_kai.policy.groups import Rules

RULES = Rules("bundled", "kai-scheduler", "default-queue")
FOLDER = ROOT / "tests" / "fixtures" / "runtimes"


def runtime(name: str) -> dict[str, Any]:
    """Return a runtime that Trainer ships."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found


def grouped(*objects: dict[str, Any]) -> Given:
    """Read objects, and make what is missing."""
    given = read_objects(Document("a.yaml", it) for it in objects)
    group_workloads(given, RULES)
    return given


def places(given: Given) -> dict[str, tuple[str, str]]:
    """Return group and sub-group of each pod."""
    return {
        key.name: (
            it.metadata.annotations.get(POD_GROUP, ""),
            it.metadata.labels.get(SUBGROUP, ""),
        )
        for key, it in given.cluster.pods.items()
    }


def jobset(**spec: Any) -> dict[str, Any]:
    """Return a JobSet that asks for our scheduler by name, as KAI's users write it."""
    template = {"schedulerName": "kai-scheduler", "containers": [{"name": "node"}]}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": template}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "default", "uid": UID},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}], **spec},
    }


def owned(uid: str) -> dict[str, Any]:
    """Return a JobSet whose controller is a TrainJob of that uid."""
    made = jobset()
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "js"}
    made["metadata"]["ownerReferences"] = [{**owner, "uid": uid, "controller": True}]
    return made


def test_a_jobset_is_believed_unless_its_trainjob_has_another_uid() -> None:
    """Files often hold no TrainJob, or none of their uids; one that has another is told."""
    mine = trainjob("js", "in-no-file")
    for known in ([], [mine], [{**mine, "metadata": {**mine["metadata"], "uid": "u"}}]):
        assert grouped(owned("u"), *known).cluster.pod_groups
    other = {**mine, "metadata": {**mine["metadata"], "uid": "another"}}
    given = grouped(owned("u"), other)

    assert not given.cluster.pod_groups
    assert not given.cluster.pods
    told = "the TrainJob that it names as its controller has another uid"
    assert f"JobSet default/js: gets no PodGroup: {told}" in given.notes


def member(name: str) -> dict[str, Any]:
    """Return a pod of the JobSet that nobody has told its group."""
    labels = {JOBSET_NAME: "js", REPLICATED_JOB: "node", JOB_INDEX: "0"}
    return pod(name, labels=labels)


def test_the_first_stage_of_a_trainjob_is_made() -> None:
    """Later pods are anticipated by the group."""
    given = grouped(trainjob("job", "deepspeed-distributed", 3), runtime("deepspeed-distributed"))

    assert places(given) == {
        "job-node-0-0": ("pg-job-UID", "node-replica-0"),
        "job-node-0-1": ("pg-job-UID", "node-replica-0"),
    }
    (group,) = given.cluster.pod_groups.values()
    assert group.spec.queue == "team-a"
    assert '"launcher-replica-"' in group.metadata.annotations["trainer-kai.dev/anticipated"]
    assert given.notes == []


@pytest.mark.parametrize("name", RUNTIMES)
def test_every_shipped_runtime_has_pods_in_groups(name: str) -> None:
    """All pods that are made have a group that is there."""
    given = grouped(trainjob("job", name), runtime(name))

    assert given.cluster.pods
    for group, sub_group in places(given).values():
        subs = given.cluster.pod_groups[Key("default", group)].spec.sub_groups
        assert sub_group in {sub.name for sub in subs}


def test_two_trainjobs_are_two_jobsets() -> None:
    """Although neither has a uid yet."""
    given = grouped(
        trainjob("a", "torch-distributed"),
        trainjob("b", "torch-distributed"),
        runtime("torch-distributed"),
    )

    uids = {it.metadata.uid for it in given.cluster.jobsets.values()}
    owners = {it.metadata.owner_references[0].uid for it in given.cluster.pod_groups.values()}
    assert uids == owners == {"default.a", "default.b"}


def test_a_trainjob_without_its_runtime_is_told() -> None:
    """Nobody can know what it is."""
    given = grouped(trainjob("job", "none"))

    assert given.notes == [
        "TrainJob default/job: left out: its ClusterTrainingRuntime none is in no file"
    ]
    assert not given.cluster.pods


def test_a_trainjob_that_never_runs_is_told() -> None:
    """With the reason, and it has no pods."""
    job = trainjob("job", "torch-distributed")
    job["spec"]["managedBy"] = "example.org/other"

    given = grouped(job, runtime("torch-distributed"))

    (note,) = given.notes
    assert note.startswith("TrainJob default/job: never runs: spec.managedBy: example.org/other")
    assert not given.cluster.pods


TORCH = {"runtimeRef": {"name": "torch-distributed"}}
GOING = {**trainjob("job", "torch")["metadata"], "deletionTimestamp": "2026-01-05T09:00:00Z"}
NOTHING = [
    Case("held back", {"spec": {"suspend": True, **TORCH}}, "spec.suspend is true"),
    Case(
        "over",
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        "it is Complete",
    ),
    Case("going", {"metadata": GOING}, "it is being deleted"),
    Case("no nodes", {"spec": {"trainer": {"numNodes": 0}, **TORCH}}, "its numbers come to 0"),
]


@pytest.mark.parametrize("case", NOTHING, ids=ids)
def test_who_makes_no_pods_is_told(case: Case[dict[str, Any], str]) -> None:
    """With the reason: it would vanish without a word."""
    job = {**trainjob("job", "torch-distributed"), **case.given}

    given = grouped(job, runtime("torch-distributed"))

    assert not given.cluster.pods
    assert given.notes == [f"TrainJob default/job: makes no pods: {case.want}"]


def test_a_trainjob_of_another_scheduler_is_told() -> None:
    """Its runtime asks for it."""
    other = runtime("torch-distributed")
    job = other["spec"]["template"]["spec"]["replicatedJobs"][0]
    job["template"]["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"

    (note,) = grouped(trainjob("job", "torch-distributed"), other).notes

    assert note.startswith("TrainJob default/job: left out: spec.runtimeRef: its pods are left to ")


def test_a_trainjob_whose_jobset_is_there_is_not_built_again() -> None:
    """What is there counts."""
    built = jobset()
    built["metadata"]["name"] = "job"

    given = grouped(trainjob("job", "torch-distributed"), runtime("torch-distributed"), built)

    assert list(places(given)) == ["job-node-0-0", "job-node-0-1"]
    assert list(given.cluster.pod_groups) == [Key("default", f"pg-job-{UID}")]


def test_pods_that_nobody_grouped_are_grouped() -> None:
    """They are those that are there; none is made."""
    given = grouped(jobset(), member("js-node-0-0-x1"))

    assert places(given) == {"js-node-0-0-x1": (f"pg-js-{UID}", "node-replica-0")}


def test_what_is_grouped_stays() -> None:
    """A group that is there is not written over, and a pod keeps its own."""
    first = grouped(jobset(), member("a"))
    ((key, group),) = first.cluster.pod_groups.items()
    there = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": key.name, "namespace": "default"},
        "spec": {"queue": "other", "minMember": 1},
    }
    own = member("b")
    own["metadata"]["annotations"] = {POD_GROUP: "mine"}

    given = grouped(jobset(), member("a"), own, there)

    assert given.cluster.pod_groups[key].spec.queue == "other" != group.spec.queue
    assert places(given) == {"a": (key.name, "node-replica-0"), "b": ("mine", "")}


@pytest.mark.parametrize(
    "change",
    [
        {"spec": jobset(suspend=True)["spec"]},
        {"status": {"restarts": 1}},
        {"status": {"terminalState": "Completed"}},
        {"status": {"replicatedJobsStatus": [{"name": "node", "active": 1}]}},
    ],
)
def test_a_jobset_that_was_begun_gets_no_pods(change: dict[str, Any]) -> None:
    """Those that are missing are gone, or not wanted."""
    assert not grouped({**jobset(), **change}).cluster.pods


def test_a_jobset_of_another_scheduler_is_left_alone() -> None:
    """It did not ask for ours, and nobody marked it."""
    other = recorded("torch-distributed")

    given = grouped(other)

    assert not given.cluster.pods
    assert not given.cluster.pod_groups
