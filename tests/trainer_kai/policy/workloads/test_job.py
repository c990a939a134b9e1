"""What a Job is as a workload: which take part, their state, and their PodGroup."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.workloads.jobs import KAI, job, workload
from trainer_kai.policy.podgroups.grouping import PodGroupPlan, plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules, podgroup_manifests
from trainer_kai.policy.workloads.job import JOB_FORM, job_workload
from trainer_kai.policy.workloads.workload import Workload

MINIMUM = "kai.scheduler/batch-min-member"
QUEUE = "kai.scheduler/queue"
OWNER = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": True}


OWNED: list[Case[list[Any], bool]] = [
    Case("nothing", [], True),
    Case("a CronJob", [OWNER], True),
    Case("a CronJob of another version", [{**OWNER, "apiVersion": "batch/v1beta1"}], True),
    Case("a JobSet", [{**OWNER, "apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet"}], False),
    Case("a CronJob of another group", [{**OWNER, "apiVersion": "example.com/v1"}], False),
    Case("something that does not control it", [{**OWNER, "controller": False, "kind": "X"}], True),
]


@pytest.mark.parametrize("case", OWNED, ids=ids)
def test_which_jobs_are_workloads(case: Case[list[Any], bool]) -> None:
    assert (job_workload(job(ownerReferences=case.given)) is not None) == case.want


def condition(kind: str, status: str = "True") -> Any:
    return {"conditions": [{"type": kind, "status": status}]}


STATES: list[Case[dict[str, Any], tuple[bool, bool, bool]]] = [
    Case("it runs", {}, (False, False, True)),
    Case("it is suspended", {"suspend": True}, (True, False, True)),
    Case("it is complete", {"status": condition("Complete")}, (False, True, True)),
    Case("it has failed", {"status": condition("Failed")}, (False, True, True)),
    Case("not any more", {"status": condition("Failed", "False")}, (False, False, True)),
    Case("a condition of another kind", {"status": condition("Suspended")}, (False, False, True)),
    Case("it is being deleted", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, (False, True, True)),
    Case("another cluster runs it", {"managedBy": "a.io/b"}, (False, False, False)),
    Case(
        "its own controller is named",
        {"managedBy": "kubernetes.io/job-controller"},
        (False, False, True),
    ),
]


@pytest.mark.parametrize("case", STATES, ids=ids)
def test_the_state_of_a_job(case: Case[dict[str, Any], tuple[bool, bool, bool]]) -> None:
    it = workload(**case.given)

    assert (it.is_suspended, it.is_over, it.is_admitted_here) == case.want
    assert (it.called, it.owner_key, it.regarding.kind) == ("Job", None, "Job")


def planned(it: Workload) -> PodGroupPlan:
    return plan_podgroups(it, KAI, form=JOB_FORM)


# what a Job asks for -> how many of its pods start together
MINIMA: list[Case[dict[str, Any], tuple[int, str]]] = [
    Case("nothing, as in KAI", {"parallelism": 4, "completions": 4}, (1, "")),
    Case("four", {"parallelism": 4, "annotations": {MINIMUM: "4"}}, (4, "")),
    Case(
        "more than there are at the same time",
        {"parallelism": 8, "completions": 3, "annotations": {MINIMUM: "8"}},
        (3, "8 is more than the pods of each Job at the same time. 3 is used"),
    ),
    Case(
        "no number",
        {"parallelism": 4, "annotations": {MINIMUM: "all"}},
        (1, "ignored: 'all' must be a whole number, 1 or more"),
    ),
]


@pytest.mark.parametrize("case", MINIMA, ids=ids)
def test_the_podgroup_of_a_job(case: Case[dict[str, Any], tuple[int, str]]) -> None:
    """One, flat, with the names of KAI."""
    it = workload(**case.given)
    plan = planned(it)
    [manifest] = podgroup_manifests(it, plan, GroupingRules("bundled", KAI, "default-queue"))
    minimum, message = case.want

    assert manifest["metadata"]["name"] == "pg-train-1-2-3"
    assert manifest["spec"] == {
        "minMember": minimum,
        "queue": "default-queue",
        "priorityClassName": "train",
    }
    [owner] = manifest["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1-2-3"}
    assert [it.message.startswith(message) for it in plan.findings] == [True] * bool(message)
    assert all(it.path == f"metadata.annotations[{MINIMUM}]" for it in plan.findings)


def test_a_job_without_pods_has_no_podgroup() -> None:
    """Until its parallelism is raised."""
    assert planned(workload(parallelism=0)) == PodGroupPlan(())


def test_labels_of_its_pods_count_where_the_job_has_none() -> None:
    """As in KAI: a Job of single pods had them there."""
    of_pods = {"kai.scheduler/preemptibility": "non-preemptible", "priorityClassName": "build"}
    it = workload(of_pods={**of_pods, "app": "x"}, labels={"priorityClassName": "inference"})
    [manifest] = podgroup_manifests(it, planned(it), GroupingRules("bundled", KAI, "q"))

    assert manifest["spec"]["preemptibility"] == "non-preemptible"
    assert manifest["spec"]["priorityClassName"] == "inference"
    assert "app" not in it.metadata.labels
