"""TrainJobs to submit, and what is read off objects."""

from typing import Any

import pytest

from e2e.cluster.resources import Obj
from e2e.cluster.trainjobs import (
    Submission,
    condition,
    patch_entry,
    pod_annotations,
    replicated_jobs,
)
from tests.support.case import Case, ids

REFERENCE = {"name": "torch", "kind": "ClusterTrainingRuntime"}
NO_GPUS = {"limits": {"nvidia.com/gpu": 0}}
TEMPLATE = {"spec": {"suspend": True}}

SPECS = [
    Case(
        "what is not asked for is the runtime's to say",
        Submission("job", "torch"),
        {"runtimeRef": REFERENCE},
    ),
    Case(
        "a number of nodes",
        Submission("job", "torch", num_nodes=3),
        {"runtimeRef": REFERENCE, "trainer": {"numNodes": 3}},
    ),
    Case(
        "no GPU is a wish as well",
        Submission("job", "torch", gpus=0),
        {"runtimeRef": REFERENCE, "trainer": {"resourcesPerNode": NO_GPUS}},
    ),
    Case(
        "a runtime of the namespace's own",
        Submission("job", "torch", kind="TrainingRuntime"),
        {"runtimeRef": {"name": "torch", "kind": "TrainingRuntime"}},
    ),
    Case(
        "a patch of the runtime",
        Submission("job", "torch", patches=TEMPLATE),
        {"runtimeRef": REFERENCE, "runtimePatches": [patch_entry(TEMPLATE)]},
    ),
]


@pytest.mark.parametrize("case", SPECS, ids=ids)
def test_spec(case: Case[Submission, Obj]) -> None:
    """A TrainJob asks for what the submission says and for nothing else."""
    assert case.given.trainjob()["spec"] == case.want


def test_a_trainjob_is_named_and_labelled() -> None:
    """Where it goes and what it is called is said in the submission."""
    submission = Submission("job", "torch", "ns", labels={"kai.scheduler/queue": "team"})

    trainjob = submission.trainjob()

    assert (trainjob["apiVersion"], trainjob["kind"]) == (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
    )
    assert trainjob["metadata"] == {
        "namespace": "ns",
        "name": "job",
        "labels": {"kai.scheduler/queue": "team"},
    }


def test_a_trainjob_without_labels_has_none() -> None:
    """A submission that names no labels leaves no empty mapping behind."""
    assert Submission("job", "torch").trainjob()["metadata"] == {
        "namespace": "default",
        "name": "job",
    }


def test_pods_are_annotated_by_replicated_job() -> None:
    """Each replicatedJob named gets its own annotations, in one patch of the template."""
    patch = pod_annotations({"node": {"a": "1"}, "launcher": {"b": "2"}})

    assert [job["name"] for job in patch["spec"]["replicatedJobs"]] == ["node", "launcher"]
    assert [annotations_in(job) for job in patch["spec"]["replicatedJobs"]] == [
        {"a": "1"},
        {"b": "2"},
    ]


def test_a_patch_has_an_owner() -> None:
    """Trainer lists patches by who made them."""
    assert patch_entry(TEMPLATE) == {
        "manager": "trainer-kai.dev/e2e",
        "trainingRuntimeSpec": {"template": TEMPLATE},
    }


def test_replicated_jobs_keep_their_order() -> None:
    """The order in the runtime is the order in which JobSet starts them."""
    jobs = [{"name": "dataset-initializer"}, {"name": "node"}]
    runtime = {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}

    assert replicated_jobs(runtime) == ["dataset-initializer", "node"]


def having(**statuses: str) -> Obj:
    """Return an object with some conditions."""
    conditions = [{"type": name, "status": status} for name, status in statuses.items()]
    return {"status": {"conditions": conditions}}


CONDITIONS = [
    Case("it is true", having(Complete="True"), want=True),
    Case("it is false", having(Complete="False"), want=False),
    Case("it is unknown", having(Complete="Unknown"), want=False),
    Case("another one is true", having(Failed="True"), want=False),
    Case("there are none", {"status": {"conditions": None}}, want=False),
    Case("there is no status yet", {}, want=False),
]


@pytest.mark.parametrize("case", CONDITIONS, ids=ids)
def test_condition(case: Case[Obj, bool]) -> None:
    """Only a condition that is there and True holds."""
    assert condition(case.given, "Complete") is case.want


def annotations_in(job: Obj) -> Any:
    """Return the annotations that the pods of a replicatedJob get."""
    return job["template"]["spec"]["template"]["metadata"]["annotations"]
