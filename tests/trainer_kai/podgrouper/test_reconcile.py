"""The podgrouper around its plan: each write once, its answer remembered, nothing blocked."""

import asyncio
from typing import Any

import pytest

from tests.support.fakes.scripted_transport import error_answer
from tests.trainer_kai.podgrouper.running_podgrouper import (
    PATIENCE_S,
    FakeApiServer,
    batch_job,
    grouping,
    job_pod,
    jobset,
    straggler,
    trainjob,
)
from trainer_kai.kube import events
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.kube.workqueue import RecentWrites
from trainer_kai.podgrouper import reconcile


async def test_a_group_is_applied_once_with_one_event() -> None:
    """Forced, under our name; further events of the JobSet cost no write, nor does its echo."""
    cluster = FakeApiServer()
    obj, job = jobset()
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    async with grouping(cluster):
        await cluster.until("podgroups", 1)
        await cluster.until("events", 1)
        for version in ("11", "12"):
            obj["metadata"]["resourceVersion"] = version
            cluster.send_event("jobsets", "MODIFIED", obj)
        await asyncio.sleep(0.1)  # what is written is known from its answer, not from its echo
        stored = {**cluster.writes_of("podgroups")[0][1]}
        stored["metadata"] = {**stored["metadata"], "uid": "g", "resourceVersion": "13"}
        cluster.send_event("podgroups", "ADDED", stored)
        await asyncio.sleep(0.1)

    assert len(cluster.writes) == 2
    request, _ = cluster.writes_of("podgroups")[0]
    assert dict(request.query) == {"fieldManager": "trainer-kai-podgrouper", "force": "true"}
    (_, event) = cluster.writes_of("events")[0]
    assert event["involvedObject"]["kind"] == "TrainJob"
    assert event["involvedObject"]["uid"] == "trainjob-1"
    assert event["message"] == "Created the PodGroups in queue team-a: 4 node (1/1)"


async def test_a_group_that_is_gone_before_the_answer_comes_is_made_again() -> None:
    """The answer says that it exists, and the watch has shown by then that it does not."""
    cluster = FakeApiServer()
    obj, job = jobset()
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    cluster.hold_answers = late = asyncio.Event()
    async with grouping(cluster):
        await cluster.until("podgroups", 1)
        stored = {**cluster.writes_of("podgroups")[0][1]}
        stored["metadata"] = {**stored["metadata"], "uid": "g", "resourceVersion": "13"}
        cluster.send_event("podgroups", "ADDED", stored)
        gone = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "14"}}
        cluster.send_event("podgroups", "DELETED", gone)
        await asyncio.sleep(0.1)
        late.set()
        await cluster.until("podgroups", 2)


async def test_a_group_waits_for_its_trainjob() -> None:
    """Watches are not in step; one of another uid is none, and the right one is enough."""
    cluster = FakeApiServer()
    obj, job = jobset()
    cluster.lists |= {"jobsets": [obj], "jobs": [job], "trainjobs": [trainjob("another")]}
    async with grouping(cluster):
        await asyncio.sleep(0.1)
        assert cluster.writes == []
        cluster.send_event("trainjobs", "MODIFIED", trainjob())
        await cluster.until("podgroups", 1)


async def test_only_the_leader_writes() -> None:
    """A follower watches all objects, and writes nothing."""
    cluster = FakeApiServer()
    obj, job = jobset()
    cluster.lists |= {"jobsets": [obj], "jobs": [job], "pods": [straggler("a", job)]}
    async with grouping(cluster, leads=False) as health:
        async with asyncio.timeout(PATIENCE_S):
            while any(health.readiness().values()):
                await asyncio.sleep(0.01)
        cluster.send_event("jobsets", "MODIFIED", obj)
        await asyncio.sleep(0.1)

    assert cluster.writes == []


@pytest.mark.parametrize(
    "refusal",
    [error_answer(404, reason="NotFound"), error_answer(409, reason="Conflict")],
    ids=["gone", "another of its name"],
)
async def test_a_pod_that_is_gone_keeps_nobody_waiting(refusal: ApiResponse) -> None:
    """The others are assigned all the same, each by its uid."""
    cluster = FakeApiServer(refusal)
    obj, job = jobset()
    pods = [straggler(name, job) for name in ("a", "b")]
    cluster.lists |= {"jobsets": [obj], "jobs": [job], "pods": pods}
    async with grouping(cluster):
        await cluster.until("pods", 2)
        await asyncio.sleep(0.05)

    assert [body["metadata"]["uid"] for _, body in cluster.writes_of("pods")] == ["uid-a", "uid-b"]


async def test_a_job_of_a_user_gets_a_flat_podgroup() -> None:
    """Its pods are assigned without a sub-group; the Job of a JobSet gets none."""
    cluster = FakeApiServer()
    own = batch_job("train")
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "x", "uid": "u"}
    of_jobset = batch_job("part", ownerReferences=[{**owner, "controller": True}])
    pods = [job_pod(name, own) for name in ("a", "b")]
    cluster.lists |= {"jobs": [own, of_jobset], "pods": [*pods, job_pod("c", of_jobset)]}
    async with grouping(cluster):
        await cluster.until("pods", 2)
        await cluster.until("events", 1)
        await cluster.until_seen()

    [(_, group)] = cluster.writes_of("podgroups")
    assert group["metadata"]["name"] == "pg-train-uid-train"
    assert group["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (4, "team-a")
    assert [body["metadata"] for _, body in cluster.writes_of("pods")] == [
        {"uid": f"uid-{it}", "annotations": {"pod-group-name": "pg-train-uid-train"}} for it in "ab"
    ]
    [(_, event)] = cluster.writes_of("events")
    assert event["involvedObject"]["kind"] == "Job"


async def test_podgroups_of_many_jobs_are_written_at_the_same_time() -> None:
    """A busy API server takes long for each answer, and none of the Jobs waits for another."""
    cluster = FakeApiServer()
    cluster.lists["jobs"] = [batch_job(f"train-{i}") for i in range(30)]
    cluster.hold_answers = asyncio.Event()
    async with grouping(cluster):
        await cluster.until("podgroups", 30)
        cluster.hold_answers.set()


async def test_events_wait_while_many_podgroups_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods wait for PodGroups, and nothing waits for an Event."""
    is_busy = [True]
    monkeypatch.setattr(RecentWrites, "are_many", lambda *_: is_busy[0])
    monkeypatch.setattr(events, "_MAX_BUSY_S", 1e9)
    cluster = FakeApiServer()
    cluster.lists["jobs"] = [batch_job("train")]
    async with grouping(cluster):
        await cluster.until("podgroups", 1)
        await cluster.until_seen()
        assert cluster.writes_of("events") == []
        is_busy[0] = False
        await cluster.until("events", 1)


async def test_kinds_that_are_not_served_stop_nothing() -> None:
    """Where no Trainer and no JobSet is installed, Jobs are grouped."""
    cluster = FakeApiServer()
    del cluster.lists["jobsets"], cluster.lists["trainjobs"]
    cluster.lists["jobs"] = [batch_job("train")]
    async with grouping(cluster) as health:
        await cluster.until("podgroups", 1)
        assert not any(health.readiness().values())


def _orphan(name: str, *, manager: str = "trainer-kai-podgrouper") -> dict[str, Any]:
    """Return a PodGroup that no object owns, as that manager applied it."""
    fields: dict[str, Any] = {"f:spec": {"f:queue": {}}}
    managed = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", "resourceVersion": "5"}
    return {"metadata": {**metadata, "managedFields": managed}, "spec": {"queue": "team-a"}}


async def test_a_podgroup_without_owner_and_pods_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a time, by its uid; not one of another manager, with an owner, or in use."""
    monkeypatch.setattr(reconcile, "_ORPHAN_S", 0.2)
    cluster = FakeApiServer()
    _, job = jobset()
    pod = straggler("a", job)
    pod["metadata"]["annotations"] = {"pod-group-name": "in-use"}
    owned = _orphan("owned")
    owned["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "x", "uid": "x"}]
    groups = [_orphan("old"), _orphan("in-use"), _orphan("foreign", manager="kubectl"), owned]
    cluster.lists |= {"pods": [pod], "podgroups": groups}
    async with grouping(cluster):
        await cluster.until("podgroups", 1)
        await asyncio.sleep(0.5)
        assert [request.path.rpartition("/")[2] for request, _ in cluster.writes] == ["old"]
        pod["status"]["phase"], pod["metadata"]["resourceVersion"] = "Succeeded", "7"
        cluster.send_event("pods", "MODIFIED", pod)
        await cluster.until("podgroups", 2)

    requests = [(it.method, body["preconditions"]) for it, body in cluster.writes]
    assert requests == [("DELETE", {"uid": "uid-old"}), ("DELETE", {"uid": "uid-in-use"})]


async def test_a_podgroup_that_lost_its_owner_a_moment_ago_stays() -> None:
    """Its owner may come back, as when a JobSet is adopted again."""
    cluster = FakeApiServer()
    cluster.lists |= {"podgroups": [_orphan("young")]}
    async with grouping(cluster):
        await asyncio.sleep(0.3)

    assert cluster.writes == []


async def test_nothing_is_written_before_everything_is_known() -> None:
    """A group that exists and was not listed yet would be applied for nothing."""
    cluster = FakeApiServer()
    obj, job = jobset()
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    cluster.hold_lists = lists_released = asyncio.Event()
    async with grouping(cluster):
        await asyncio.sleep(0.1)
        assert cluster.writes == []
        lists_released.set()
        await cluster.until("podgroups", 1)


async def test_what_never_runs_is_a_warning() -> None:
    """Users look at the TrainJob; the Event is there."""
    cluster = FakeApiServer()
    obj, job = jobset("deepspeed-distributed")
    first, second = obj["spec"]["replicatedJobs"]
    third = {**second, "name": "never", "dependsOn": [{"name": "absent", "status": "Ready"}]}
    obj["spec"]["replicatedJobs"] = [first, second, third]
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    async with grouping(cluster):
        await cluster.until("events", 2)

    warnings = [body for _, body in cluster.writes_of("events") if body["type"] == "Warning"]
    assert [warning["reason"] for warning in warnings] == ["CannotRun"]
    assert "'absent'" in warnings[0]["message"]


async def test_the_warning_comes_also_when_nothing_at_all_runs() -> None:
    """There is no PodGroup at all, and the Event is posted once all the same."""
    cluster = FakeApiServer()
    obj, job = jobset()
    obj["spec"]["replicatedJobs"][0]["dependsOn"] = [{"name": "absent", "status": "Ready"}]
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    async with grouping(cluster):
        await cluster.until("events", 1)
        obj["metadata"]["resourceVersion"] = "11"
        cluster.send_event("jobsets", "MODIFIED", obj)
        await asyncio.sleep(0.1)

    assert [body["reason"] for _, body in cluster.writes] == ["CannotRun"]


async def test_an_invalid_request_gets_an_event() -> None:
    """Admission's warnings end with Trainer; these are where people look, once for each JobSet."""
    cluster = FakeApiServer()
    obj, job = jobset()
    obj["metadata"]["labels"] |= {"kai.scheduler/queue": "A_b", "kai.scheduler/preemptibility": "x"}
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    async with grouping(cluster):
        await cluster.until("events", 3)
        obj["metadata"]["resourceVersion"] = "11"
        cluster.send_event("jobsets", "MODIFIED", obj)
        await asyncio.sleep(0.1)

    posted = sorted(
        (body["reason"], body["type"], body["message"].partition(": ")[0])
        for _, body in cluster.writes_of("events")
    )
    assert posted == [
        ("CannotRun", "Warning", "metadata.labels[kai.scheduler/queue]"),
        ("Noted", "Warning", "metadata.labels[kai.scheduler/preemptibility]"),
        ("PodGroupsCreated", "Normal", "Created the PodGroups in queue A_b"),
    ]


async def test_a_new_queue_gets_an_event() -> None:
    """A resumed TrainJob shows its new queue."""
    cluster = FakeApiServer()
    obj, job = jobset()
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    async with grouping(cluster):
        await cluster.until("events", 1)
        obj["metadata"]["labels"]["kai.scheduler/queue"] = "team-b"
        obj["metadata"]["resourceVersion"] = "11"
        cluster.send_event("jobsets", "MODIFIED", obj)
        await cluster.until("events", 2)

    (_, event) = cluster.writes_of("events")[1]
    assert event["reason"] == "QueueChanged"
    assert event["message"] == "The queue of the PodGroups changed from team-a to team-b"


async def test_a_new_queue_gets_an_event_although_a_write_fails() -> None:
    """One of two PodGroups moves at the second try only; the Event is posted all the same, once."""
    cluster = FakeApiServer()
    obj, job = jobset("torch-distributed-with-cache")
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    async with grouping(cluster):
        await cluster.until("podgroups", 2)
        await cluster.until("events", 1)
        cluster.failing = {"/podgroups/": [4]}
        obj["metadata"]["labels"]["kai.scheduler/queue"] = "team-b"
        obj["metadata"]["resourceVersion"] = "11"
        cluster.send_event("jobsets", "MODIFIED", obj)
        await cluster.until("podgroups", 5)
        await cluster.until("events", 2)

    posted = [(body["reason"], body["message"]) for _, body in cluster.writes_of("events")[1:]]
    assert posted == [("QueueChanged", "The queue of the PodGroups changed from team-a to team-b")]


async def test_the_event_does_not_depend_on_every_write() -> None:
    """One of two PodGroups fails at first; the Event is posted all the same, once."""
    cluster = FakeApiServer()
    obj, job = jobset("torch-distributed-with-cache")
    cluster.lists |= {"jobsets": [obj], "jobs": [job]}
    cluster.failing = {"/podgroups/": [2]}
    async with grouping(cluster):
        await cluster.until("podgroups", 3)
        await cluster.until("events", 1)

    assert [body["reason"] for _, body in cluster.writes_of("events")] == ["PodGroupsCreated"]
