"""What the tests submit to a Trainer without runtimePatches."""

import pytest

from e2e.cluster.older_trainer import rewriting, trainjob_fields
from e2e.cluster.resources import Obj
from e2e.cluster.trainjobs import Submission, pod_annotations

JOB = Submission("job", "torch", patches=pod_annotations({"node": {"run-seconds": "5"}})).trainjob()
OLDER = rewriting(frozenset({"podTemplateOverrides", "runtimeRef"}))


def test_annotations_of_pods_become_overrides() -> None:
    """The same pods get the same annotations; nothing else of the TrainJob changes."""
    override = {
        "targetJobs": [{"name": "node"}],
        "metadata": {"annotations": {"run-seconds": "5"}},
    }
    spec = {"runtimeRef": JOB["spec"]["runtimeRef"], "podTemplateOverrides": [override]}

    assert OLDER(JOB) == {**JOB, "spec": spec}


@pytest.mark.parametrize(
    "obj", [Submission("job", "torch").trainjob(), {"kind": "Pod", "spec": {}}]
)
def test_other_objects_stay(obj: Obj) -> None:
    """A TrainJob without patches needs no rewriting, nor does any other kind."""
    assert OLDER(obj) == obj


def test_a_newer_trainer_gets_what_was_written() -> None:
    """Where runtimePatches exist they are used."""
    assert rewriting(frozenset({"runtimePatches"}))(JOB) == JOB


def test_what_no_override_can_say_is_refused() -> None:
    """A patch of the JobSet itself would be lost without a word."""
    suspended = Submission("job", "torch", patches={"spec": {"suspend": True}}).trainjob()
    parallel = {"spec": {"replicatedJobs": [{"name": "node", "replicas": 2}]}}

    with pytest.raises(KeyError):
        OLDER(suspended)
    with pytest.raises((AssertionError, KeyError)):
        OLDER(Submission("job", "torch", patches=parallel).trainjob())


def test_the_fields_are_read_from_the_definition() -> None:
    """Of all CRDs the one of TrainJobs counts."""
    schema: Obj = {"properties": {"spec": {"properties": {"suspend": {}, "trainer": {}}}}}
    definitions: list[Obj] = [
        {"spec": {"names": {"kind": "JobSet"}}},
        {
            "spec": {
                "names": {"kind": "TrainJob"},
                "versions": [{"schema": {"openAPIV3Schema": schema}}],
            }
        },
    ]

    assert trainjob_fields(definitions) == {"suspend", "trainer"}
