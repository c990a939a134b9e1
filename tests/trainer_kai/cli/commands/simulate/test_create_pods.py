"""Missing PodGroups and pods are created as the real controllers create them."""

from typing import Any

import pytest
import yaml

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.workloads.jobsets import RUNTIMES, UID, recorded
from tests.support.workloads.simulate_objects import pod, trainjob
from trainer_kai.api.meta import Key
from trainer_kai.api.names import JOB_INDEX, JOBSET_NAME, POD_GROUP, REPLICATED_JOB, SUBGROUP
from trainer_kai.api.resources import JOBSETS
from trainer_kai.cli.commands.simulate.create_pods import create_missing_objects
from trainer_kai.cli.input.cluster import InputCluster, read_cluster
from trainer_kai.cli.input.documents import Document
from trainer_kai.errors import ConfigError
from trainer_kai.policy.podgroups.manifests import GroupingRules

RULES = GroupingRules("bundled", "kai-scheduler", "default-queue")
FOLDER = ROOT / "tests" / "fixtures" / "runtimes"


def runtime(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found


def grouped(*objects: dict[str, Any]) -> InputCluster:
    """Read objects, and make what is missing."""
    inputs = read_cluster(Document("a.yaml", it) for it in objects)
    create_missing_objects(inputs, RULES)
    return inputs


def places(inputs: InputCluster) -> dict[str, tuple[str, str]]:
    """Return PodGroup and SubGroup of each pod."""
    return {
        key.name: (
            it.metadata.annotations.get(POD_GROUP, ""),
            it.metadata.labels.get(SUBGROUP, ""),
        )
        for key, it in inputs.cluster.pods.items()
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
    """Files often hold no TrainJob, or no uids; another uid is reported."""
    trainjob_of_set = trainjob("js", "in-no-file")
    for known in (
        [],
        [trainjob_of_set],
        [{**trainjob_of_set, "metadata": {**trainjob_of_set["metadata"], "uid": "u"}}],
    ):
        assert grouped(owned("u"), *known).cluster.pod_groups
    other = {**trainjob_of_set, "metadata": {**trainjob_of_set["metadata"], "uid": "another"}}
    inputs = grouped(owned("u"), other)

    assert not inputs.cluster.pod_groups
    assert not inputs.cluster.pods
    note = "the TrainJob that it names as its controller has another uid"
    assert f"JobSet default/js: gets no PodGroup: {note}" in inputs.notes


def member(name: str) -> dict[str, Any]:
    """Return a pod of the JobSet without a PodGroup."""
    labels = {JOBSET_NAME: "js", REPLICATED_JOB: "node", JOB_INDEX: "0"}
    return pod(name, labels=labels)


def test_the_first_stage_of_a_trainjob_is_made() -> None:
    """Later pods are anticipated by the PodGroup."""
    inputs = grouped(trainjob("job", "deepspeed-distributed", 3), runtime("deepspeed-distributed"))

    assert places(inputs) == {
        "job-node-0-0": ("pg-job-UID", "node-replica-0"),
        "job-node-0-1": ("pg-job-UID", "node-replica-0"),
    }
    (group,) = inputs.cluster.pod_groups.values()
    assert group.spec.queue == "team-a"
    assert '"launcher-replica-"' in group.metadata.annotations["trainer-kai.dev/anticipated"]
    assert inputs.notes == []


@pytest.mark.parametrize("name", RUNTIMES)
def test_every_shipped_runtime_has_pods_in_groups(name: str) -> None:
    """All pods that are created have a PodGroup that exists."""
    inputs = grouped(trainjob("job", name), runtime(name))

    assert inputs.cluster.pods
    for group, sub_group in places(inputs).values():
        subs = inputs.cluster.pod_groups[Key("default", group)].spec.sub_groups
        assert sub_group in {sub.name for sub in subs}


def test_two_trainjobs_are_two_jobsets() -> None:
    """Although neither has a uid yet."""
    inputs = grouped(
        trainjob("a", "torch-distributed"),
        trainjob("b", "torch-distributed"),
        runtime("torch-distributed"),
    )

    uids = {it.metadata.uid for it in inputs.cluster.workload_objects[JOBSETS].values()}
    owners = {it.metadata.owner_references[0].uid for it in inputs.cluster.pod_groups.values()}
    assert uids == owners == {"default.a", "default.b"}


def test_a_trainjob_without_its_runtime_is_reported() -> None:
    """It is in no file; if the plan then has no pods at all, that is an error."""
    message = "its ClusterTrainingRuntime none is in no file. Add the file with another -f"
    inputs = grouped(trainjob("job", "none"), pod("other"))

    assert inputs.notes == [f"TrainJob default/job: ignored: {message}"]
    assert [key.name for key in inputs.cluster.pods] == ["other"]
    with pytest.raises(ConfigError) as refused:
        grouped(trainjob("job", "none"), trainjob("second", "none"))
    assert [*map(str, refused.value.faults)] == [
        f"TrainJob default/job: {message}",
        f"TrainJob default/second: {message}",
    ]


def test_a_trainjob_that_never_runs_is_reported() -> None:
    """With the reason, and it has no pods."""
    job = trainjob("job", "torch-distributed")
    job["spec"]["managedBy"] = "example.org/other"

    inputs = grouped(job, runtime("torch-distributed"))

    (note,) = inputs.notes
    assert note.startswith("TrainJob default/job: never runs: spec.managedBy: 'example.org/other'")
    assert not inputs.cluster.pods


TORCH = {"runtimeRef": {"name": "torch-distributed"}}
GOING = {**trainjob("job", "torch")["metadata"], "deletionTimestamp": "2026-01-05T09:00:00Z"}
NOTHING = [
    Case(
        "a suspended TrainJob gets no pods",
        {"spec": {"suspend": True, **TORCH}},
        "spec.suspend is true",
    ),
    Case(
        "a TrainJob that is over gets no pods",
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        "it is Complete",
    ),
    Case("a TrainJob that is deleted gets no pods", {"metadata": GOING}, "it is being deleted"),
    Case(
        "a TrainJob of no nodes gets no pods",
        {"spec": {"trainer": {"numNodes": 0}, **TORCH}},
        "its numbers of pods are 0",
    ),
]


@pytest.mark.parametrize("case", NOTHING, ids=ids)
def test_a_trainjob_without_pods_is_reported(case: Case[dict[str, Any], str]) -> None:
    """With the reason: it would vanish without a word."""
    job = {**trainjob("job", "torch-distributed"), **case.given}

    inputs = grouped(job, runtime("torch-distributed"))

    assert not inputs.cluster.pods
    assert inputs.notes == [f"TrainJob default/job: makes no pods: {case.want}"]


def test_a_trainjob_of_another_scheduler_is_reported() -> None:
    """Its runtime asks for it."""
    other = runtime("torch-distributed")
    job = other["spec"]["template"]["spec"]["replicatedJobs"][0]
    job["template"]["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"

    (note,) = grouped(trainjob("job", "torch-distributed"), other).notes

    assert note.startswith(
        "TrainJob default/job: ignored: spec.runtimeRef: its pods have another scheduler, "
    )


def test_a_trainjob_whose_jobset_is_there_is_not_built_again() -> None:
    """What is there counts."""
    built = jobset()
    built["metadata"]["name"] = "job"

    inputs = grouped(trainjob("job", "torch-distributed"), runtime("torch-distributed"), built)

    assert list(places(inputs)) == ["job-node-0-0", "job-node-0-1"]
    assert list(inputs.cluster.pod_groups) == [Key("default", f"pg-job-{UID}")]


def test_pods_that_have_no_podgroup_are_grouped() -> None:
    """They are those that are there; none is made."""
    inputs = grouped(jobset(), member("js-node-0-0-x1"))

    assert places(inputs) == {"js-node-0-0-x1": (f"pg-js-{UID}", "node-replica-0")}


def test_what_is_grouped_stays() -> None:
    """An existing PodGroup is not replaced, and a pod keeps its own."""
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

    inputs = grouped(jobset(), member("a"), own, there)

    assert inputs.cluster.pod_groups[key].spec.queue == "other" != group.spec.queue
    assert places(inputs) == {"a": (key.name, "node-replica-0"), "b": ("mine", "")}


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
    """It names another scheduler, and has no mark."""
    other = recorded("torch-distributed")

    inputs = grouped(other)

    assert not inputs.cluster.pods
    assert not inputs.cluster.pod_groups
