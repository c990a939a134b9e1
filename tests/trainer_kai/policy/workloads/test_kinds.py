"""The table of kinds: each object finds its kind, and nothing is named twice."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import (
    JOB_INDEX,
    JOB_NAME,
    JOBSET_NAME,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
)
from trainer_kai.policy.workloads.job import JOB_KIND
from trainer_kai.policy.workloads.jobset import JOBSET_KIND
from trainer_kai.policy.workloads.kinds import (
    KINDS,
    OWNERS,
    kind_of_owner,
    kind_of_pod,
    pod_place,
)
from trainer_kai.policy.workloads.workload import ObjectKey, WorkloadKind

CASES: list[Case[tuple[str, str], WorkloadKind | None]] = [
    Case("a JobSet", ("jobset.x-k8s.io/v1alpha2", "JobSet"), JOBSET_KIND),
    Case("in another version", ("jobset.x-k8s.io/v1", "JobSet"), JOBSET_KIND),
    Case("of another group", ("example.com/v1", "JobSet"), None),
    Case("an owner of workloads is none", ("trainer.kubeflow.org/v1alpha1", "TrainJob"), None),
    Case("a Job", ("batch/v1", "Job"), JOB_KIND),
    Case("a Job of another group", ("batch.example.com/v1", "Job"), None),
    Case("without a group", ("v1", "JobSet"), None),
    Case("nothing", ("", ""), None),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_kind_of_an_owner(case: Case[tuple[str, str], WorkloadKind | None]) -> None:
    api_version, kind = case.given

    assert kind_of_owner(OwnerReference(api_version=api_version, kind=kind)) is case.want


def test_the_kind_of_a_pod_is_that_of_the_name_it_carries() -> None:
    assert kind_of_pod({JOBSET_NAME: "job"}) is JOBSET_KIND
    assert kind_of_pod({JOB_NAME: "job"}) is JOB_KIND
    assert kind_of_pod({JOB_NAME: "job-node-0", JOBSET_NAME: "job"}) is JOBSET_KIND
    assert kind_of_pod({"app": "web"}) is None


def test_the_place_of_a_pod_does_not_need_the_name_of_its_workload() -> None:
    """A user who writes pods into a file may leave it out."""
    labels = {REPLICATED_JOB: "node", JOB_INDEX: "1", RESTART_ATTEMPT: "2"}

    assert pod_place(labels) == pod_place({**labels, JOBSET_NAME: "job"}) == ("node", "1", (2, 0))
    assert pod_place({JOB_NAME: "plain", RESTART_ATTEMPT: "2"}) == ("pods", "0", (0, 0))


def test_kinds_and_their_work_queues_are_distinct() -> None:
    """Keys are distinguished by the kind, metrics and health conditions by the plural."""
    for names in ({it.resource.kind for it in KINDS}, {it.resource.plural for it in KINDS}):
        assert len(names) == len(KINDS)
    assert len(set(OWNERS)) == len(OWNERS)


def test_a_key_is_written_without_its_kind() -> None:
    """Log lines of a work queue name the kind already."""
    assert str(ObjectKey("JobSet", "team-a", "job")) == "team-a/job"
