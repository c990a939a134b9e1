"""The table of kinds: each object finds its kind, and nothing is named twice."""

from collections import Counter
from typing import Any

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Meta, OwnerReference
from trainer_kai.api.names import (
    JOB_INDEX,
    JOB_NAME,
    JOBSET_NAME,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
)
from trainer_kai.api.resources import TRAINJOBS
from trainer_kai.policy.workloads.job import JOB_KIND
from trainer_kai.policy.workloads.jobset import JOBSET_KIND, jobset_workload
from trainer_kai.policy.workloads.kinds import (
    KINDS,
    OWNERS,
    kind_of_owner,
    kind_of_pod,
    named_suspendable,
    pod_place,
    suspendable_keys,
    watch_name,
    workload_keys,
)
from trainer_kai.policy.workloads.workload import (
    ObjectKey,
    PodPlace,
    Suspendable,
    Workload,
    WorkloadKind,
)

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

    place = PodPlace("node", "1", (2, 0))
    assert pod_place(labels) == pod_place({**labels, JOBSET_NAME: "job"}) == place
    assert pod_place({JOB_NAME: "plain", RESTART_ATTEMPT: "2"}) == PodPlace("pods", "0", (0, 0))


def test_kinds_and_their_watches_are_distinct() -> None:
    """Keys are distinguished by the kind; only MPIJobs have two versions, of which one exists."""
    assert Counter(it.resource.kind for it in KINDS).most_common(2)[0] == ("MPIJob", 2)
    assert len({it.resource.kind for it in KINDS}) == len(KINDS) - 1
    assert len({watch_name(it.resource) for it in KINDS}) == len(KINDS)
    assert len(set(OWNERS)) == len(OWNERS)


def test_a_key_is_written_without_its_kind() -> None:
    """Log lines of a work queue name the kind already."""
    assert str(ObjectKey("JobSet", "team-a", "job")) == "team-a/job"


def key(kind: str) -> ObjectKey:
    return ObjectKey(kind, "ns", "job")


def test_what_suspends_which_workload() -> None:
    """An owner has workloads of its name; each may also be suspended itself."""
    assert [*workload_keys(key("TrainJob"))] == [key("JobSet")]
    assert [*workload_keys(key("JobSet"))] == [key("JobSet")]
    assert [*workload_keys(key("Job"))] == [key("Job")]
    assert [*workload_keys(key("MPIJob"))] == [key("MPIJob")]  # of two versions
    assert [*workload_keys(key("Sweep"))] == []
    assert [*suspendable_keys(key("JobSet"))] == [key("JobSet"), key("TrainJob")]
    assert [*suspendable_keys(key("Job"))] == [key("Job")]


def owned_jobset(**owner: Any) -> Workload:
    trainer = "trainer.kubeflow.org/v1alpha1"
    reference = {"api_version": trainer, "kind": "TrainJob", "name": "job", "uid": "t"}
    named = OwnerReference(**{**reference, "controller": True, **owner})
    meta = Meta(namespace="ns", name="job", uid="s", owner_references=(named,))
    return jobset_workload(JobSet(metadata=meta))


# the owner of a JobSet -> the uid of what suspends it
SUSPENDABLES: list[Case[Workload, str | None]] = [
    Case("its TrainJob", owned_jobset(), "t"),
    Case("a TrainJob that is gone", owned_jobset(uid="gone"), None),
    Case("an object of another kind", owned_jobset(kind="Sweep"), None),
    Case("an owner that does not control it", owned_jobset(controller=False), "s"),
]


@pytest.mark.parametrize("case", SUSPENDABLES, ids=ids)
def test_what_suspends_a_jobset(case: Case[Workload, str | None]) -> None:
    """A uid that an owner reference names proves nothing."""
    meta = Meta(namespace="ns", name="job", uid="t")
    owner = Suspendable(
        key=key("TrainJob"),
        resource=TRAINJOBS,
        metadata=meta,
        is_suspended=False,
        is_managed_here=False,
    )
    found = named_suspendable(case.given, {owner.key: owner})

    assert (found.metadata.uid if found else None) == case.want
