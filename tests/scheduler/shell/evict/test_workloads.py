"""Jobs, and JobSets without an owner: they are suspended themselves, and resumed."""

import json
from typing import Any, Final

import pytest

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import eviction_record
from tests.support.case import Case, ids
from tests.support.state.objects import gang_in, node, pod, queue_with_quota, workload
from trainer_kai.api.names import EVICTED_BY

_PLURALS: Final = {"Job": "jobs", "JobSet": "jobsets"}
_KINDS: Final = pytest.mark.parametrize("kind", [*_PLURALS])


def lend_to(harness: SchedulerHarness, kind: str, **spec: Any) -> None:
    """Let a workload run on two GPUs that another queue owns and wants back."""
    harness.api.put(
        queue_with_quota("lender", 2),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        *workload(kind, "x", "a", **spec),
        *gang_in("lender", "l", 2),
    )


def is_suspended(harness: SchedulerHarness, kind: str) -> bool:
    return bool(harness.api.get(kind, "x")["spec"].get("suspend"))


def end_pods(harness: SchedulerHarness) -> None:
    for i in range(2):
        harness.api.delete("Pod", f"x{i}")


def messages(harness: SchedulerHarness, kind: str) -> list[tuple[str, str]]:
    made = [it for it in harness.api.events if it["involvedObject"]["kind"] == kind]
    return [(it["reason"], it["message"]) for it in made]


@_KINDS
async def test_a_workload_is_suspended_and_resumed(harness: SchedulerHarness, kind: str) -> None:
    """The record is on its PodGroup, a copy on the workload; no pod of it is deleted."""
    lend_to(harness, kind)
    async with harness.leading():
        await harness.advance(2)
        assert is_suspended(harness, kind)
        record, copy = eviction_record(harness), harness.api.get(kind, "x")["metadata"]
        assert (record["trainJob"], record["podGroup"]) == ("x", "pg-x")
        assert json.loads(copy["annotations"][EVICTED_BY])["why"] == record["why"]
        await harness.advance(20)
        assert is_suspended(harness, kind)
        end_pods(harness)
        await harness.advance(2)
        assert not is_suspended(harness, kind)
        assert eviction_record(harness) is None
        assert EVICTED_BY not in harness.api.get(kind, "x")["metadata"]["annotations"]

    assert not [it for it in harness.api.written() if it.startswith("delete")]
    written = [it for it in harness.api.written() if it.startswith(f"patch {_PLURALS[kind]}")]
    assert written == [f"patch {_PLURALS[kind]} x"] * 2
    posted = [(reason, text.partition(": the")[2]) for reason, text in messages(harness, kind)]
    assert posted[0][0] == "Evicted"
    assert posted[1] == ("Resumed", f" {kind} waits for free resources")


@_KINDS
async def test_the_next_leader_resumes_it(harness: SchedulerHarness, kind: str) -> None:
    """It reads the records, and that the workload is suspended."""
    lend_to(harness, kind)
    async with harness.leading():
        await harness.advance(2)
        assert is_suspended(harness, kind)
    end_pods(harness)
    async with harness.successor().leading():
        await harness.advance(3)
        assert not is_suspended(harness, kind)
        assert eviction_record(harness) is None


@_KINDS
async def test_pods_that_do_not_terminate(harness: SchedulerHarness, kind: str) -> None:
    """It is resumed, and left alone for a while."""
    lend_to(harness, kind)
    async with harness.leading():
        await harness.advance(125)
        assert not is_suspended(harness, kind)
        (key,) = harness.cache.cluster.suspend_refusals
        assert key == (kind, "ns", "x")
    given_up = [text for reason, text in messages(harness, kind) if reason == "EvictionUndone"]
    assert "pods were not terminating after 120 s: pod x0 and 1 more. " in given_up[0]


@_KINDS
async def test_a_user_who_resumes_it(harness: SchedulerHarness, kind: str) -> None:
    lend_to(harness, kind)
    async with harness.leading():
        await harness.advance(2)
        found = harness.api.get(kind, "x")
        harness.api.put({**found, "spec": {**found["spec"], "suspend": False}})
        await harness.advance(5)
    given_up = [text for reason, text in messages(harness, kind) if reason == "EvictionUndone"]
    assert given_up[0].startswith(f"Not evicted: the {kind} was resumed during its eviction. ")


@_KINDS
async def test_what_cannot_be_suspended_is_not_evicted(
    harness: SchedulerHarness, kind: str
) -> None:
    """A dry run finds it out; its pods are not evicted in another way."""
    lend_to(harness, kind)
    refused = f"try patch {_PLURALS[kind]} x"
    harness.api.refuse_with = lambda what: 403 if what == refused else None
    async with harness.leading():
        await harness.advance(3)
        (why,) = harness.cache.cluster.suspend_refusals.values()
    assert why == f"the {kind} cannot be suspended"
    assert not [it for it in harness.api.written() if it.startswith("delete")]
    assert harness.api.node_of_pods() == {"x0": "a", "x1": "a"}


# what else the manifest of a Job says -> whether it is suspended; else its pods are deleted
ONE_BY_ONE: list[Case[tuple[dict[str, Any], dict[str, Any]], bool]] = [
    Case("a Job of a user", ({}, {}), True),
    Case(
        "the Job controller is named",
        ({"managedBy": "kubernetes.io/job-controller"}, {}),
        True,
    ),
    Case("another controller runs it", ({"managedBy": "kueue.x-k8s.io/multikueue"}, {}), False),
    Case(
        "a CronJob owns it",
        ({}, {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c"}),
        True,
    ),
    Case(
        "an unknown controller owns it",
        ({}, {"apiVersion": "example.com/v1", "kind": "Sweep", "name": "s", "uid": "s"}),
        False,
    ),
    Case(
        "its pods are of another scheduler",
        ({"template": {"spec": {"schedulerName": "default-scheduler", "containers": []}}}, {}),
        False,
    ),
]


@pytest.mark.parametrize("case", ONE_BY_ONE, ids=ids)
async def test_which_jobs_are_suspended(
    harness: SchedulerHarness, case: Case[tuple[dict[str, Any], dict[str, Any]], bool]
) -> None:
    spec, owner = case.given
    lend_to(harness, "Job", **spec)
    found = harness.api.get("Job", "x")
    owners = [{**owner, "controller": True}] if owner else []
    harness.api.put({**found, "metadata": {**found["metadata"], "ownerReferences": owners}})
    async with harness.leading():
        await harness.advance(2)
        deleted = [it for it in harness.api.written() if it.startswith("delete pods")]
        assert is_suspended(harness, "Job") == case.want
        assert bool(deleted) != case.want


@_KINDS
async def test_jobs_with_succeeded_ranks(harness: SchedulerHarness, kind: str) -> None:
    """The Jobs of a JobSet are recreated; of a Job what has succeeded stays done."""
    job: dict[str, Any] = {"parallelism": 2, "completions": 2}
    replicated = {"name": "n", "replicas": 1, "template": {"spec": job}}
    lend_to(harness, kind, **(job if kind == "Job" else {"replicatedJobs": [replicated]}))
    if kind == "JobSet":
        owner = {"kind": "JobSet", "name": "x", "uid": "x", "controller": True}
        labels = {
            "jobset.sigs.k8s.io/jobset-uid": "x",
            "jobset.sigs.k8s.io/jobset-name": "x",
            "jobset.sigs.k8s.io/replicatedjob-name": "n",
        }
        meta = {"name": "x-n-0", "namespace": "ns", "uid": "x-n-0", "labels": labels}
        of_jobset = {"kind": "Job", "metadata": {**meta, "ownerReferences": [owner]}, "spec": job}
        harness.api.put({**of_jobset, "status": {"succeeded": 1}})
    async with harness.leading():
        await harness.advance(2)
        succeeded = {**harness.api.get("Pod", "x1"), "status": {"phase": "Succeeded"}}
        end_pods(harness)
        if kind == "Job":  # its pods that have succeeded stay
            harness.api.put(succeeded)
        await harness.advance(5)
        assert not is_suspended(harness, kind)
    deleted = [it for it in harness.api.written() if it.startswith("delete")]
    assert deleted == (["delete jobs x-n-0"] if kind == "JobSet" else [])


async def test_a_lost_pod_of_a_job_gets_its_place_back(harness: SchedulerHarness) -> None:
    """The place is reserved in the only PodSet, until the pod that replaces it comes."""
    harness.api.put(node("a", gpu=2), *workload("Job", "x", "a"))
    found = harness.api.get("PodGroup", "pg-x")
    harness.api.put({**found, "spec": {**found["spec"], "queue": "q"}})
    async with harness.leading():
        harness.api.delete("Pod", "x0")
        harness.api.put(pod("other"))
        await harness.advance(1)
        notes = harness.api.get("PodGroup", "pg-x")["metadata"]["annotations"]
        reserved = json.loads(notes["trainer-kai.dev/reserved"])
        assert reserved == {"default": {"nodes": {"a": 1}, "cause": "repair"}}
        assert "other" not in harness.api.node_of_pods()
