"""What a JobSet is as a workload: its state, who owns it, and which pods say to be its own."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.jobsets import UID, admitted, jobset, pod, recorded
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import ADMITTED, JOB_RESTART_ATTEMPT
from trainer_kai.policy.workloads.jobset import jobset_pod_place, jobset_workload
from trainer_kai.policy.workloads.workload import ObjectKey, PodPlace, Workload

GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def workload(change: dict[str, dict[str, Any]]) -> Workload:
    """Return an admitted JobSet as a workload; *change* has fields of its sections."""
    obj = recorded("torch-distributed")
    admitted(obj)
    for section, fields in change.items():
        obj[section] = {**obj.get(section, {}), **fields}
    return jobset_workload(jobset(obj))


def owned(**fields: Any) -> dict[str, dict[str, Any]]:
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "job"}
    return {"metadata": {"ownerReferences": [{**owner, "uid": "t", "controller": True, **fields}]}}


# what is changed -> suspended, over, managed here, admitted here
STATES: list[Case[dict[str, dict[str, Any]], tuple[bool, bool, bool, bool]]] = [
    Case("it runs", {}, (False, False, True, True)),
    Case("it is suspended", {"spec": {"suspend": True}}, (True, False, True, True)),
    Case("it is complete", {"status": {"terminalState": "Completed"}}, (False, True, True, True)),
    Case("it has failed", {"status": {"terminalState": "Failed"}}, (False, True, True, True)),
    Case("it is being deleted", {"metadata": GOING}, (False, True, True, True)),
    Case(
        "its own controller is named",
        {"spec": {"managedBy": "jobset.sigs.k8s.io/jobset-controller"}},
        (False, False, True, True),
    ),
    Case(
        "another cluster runs it", {"spec": {"managedBy": "a.io/b"}}, (False, False, False, False)
    ),
    Case("it has no mark", {"metadata": {"annotations": {}}}, (False, False, True, False)),
    Case(
        "it has the mark of other rules",
        {"metadata": {"annotations": {ADMITTED: "v2"}}},
        (False, False, True, False),
    ),
]


@pytest.mark.parametrize("case", STATES, ids=ids)
def test_the_state_of_a_jobset(
    case: Case[dict[str, dict[str, Any]], tuple[bool, bool, bool, bool]],
) -> None:
    it = workload(case.given)

    assert (it.is_suspended, it.is_over, it.is_managed_here, it.is_admitted_here) == case.want


# the owner that is named -> whether it may own a workload; Events are about it in any case
OWNERS: list[Case[dict[str, dict[str, Any]], bool]] = [
    Case("the TrainJob of its name", owned(), True),
    Case("in another version", owned(apiVersion="trainer.kubeflow.org/v2"), True),
    Case("of another name", owned(name="another"), False),
    Case("of another group", owned(apiVersion="kubeflow.org/v1"), False),
    Case("of another kind", owned(kind="Workflow"), False),
]


@pytest.mark.parametrize("case", OWNERS, ids=ids)
def test_the_owner_of_a_jobset(case: Case[dict[str, dict[str, Any]], bool]) -> None:
    it = workload(case.given)
    [named] = it.metadata.owner_references

    assert it.regarding == named
    assert it.owner == (named if case.want else None)
    assert it.owner_key == (ObjectKey("TrainJob", "default", "job") if case.want else None)


def test_events_of_a_jobset_without_controller_are_about_itself() -> None:
    """Also if an object owns it that does not control it."""
    itself = OwnerReference(
        api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="job", uid=UID
    )
    unowned: dict[str, dict[str, Any]] = {"metadata": {"ownerReferences": []}}
    for change in (owned(controller=False), unowned):
        it = workload(change)
        assert (it.owner, it.owner_key, it.regarding) == (None, None, itself)


def test_a_jobset_is_passed_on_as_it_is() -> None:
    """Its jobs are the neutral form, and nothing is copied."""
    obj = recorded("torch-distributed")
    admitted(obj)
    status = {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "suspended": 0}
    obj["status"] = {"replicatedJobsStatus": [status]}
    given = jobset(obj)
    it = jobset_workload(given)

    assert it.key == ObjectKey("JobSet", "default", "job")
    assert it.metadata is given.metadata
    assert it.spec is given.spec
    assert it.jobs_status is given.status.replicated_jobs_status


def test_where_a_pod_belongs_is_in_its_labels() -> None:
    """Labels that are missing or no numbers are the first attempt."""
    labels = pod("a", "node", attempt=2).metadata.labels

    assert jobset_pod_place(labels) == PodPlace("node", "0", (2, 0))
    assert jobset_pod_place({**labels, JOB_RESTART_ATTEMPT: "3"}).attempt == (2, 3)
    assert jobset_pod_place({**labels, JOB_RESTART_ATTEMPT: "-1"}).attempt == (2, 0)
    assert jobset_pod_place({}) == PodPlace("", "", (0, 0))
