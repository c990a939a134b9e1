"""The podgrouper around its plan: each write once, its answer remembered, nothing blocked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from tests.support.fakes.scripted_transport import error_answer
from tests.support.workloads.jobsets import admitted, recorded
from tests.trainer_kai.podgrouper.stores import BUNDLED, job_for
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.client_observer import ClientObserver
from trainer_kai.kube.process.context import event_recorder
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.podgrouper.reconcile import Podgrouper
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.health import Health
from trainer_kai.service.metrics import Metrics

PATIENCE_S = 60.0


def trainjob(uid: str = "trainjob-1") -> dict[str, Any]:
    """Return the metadata of a TrainJob."""
    name = {"namespace": "default", "name": "job"}
    return {"metadata": {**name, "uid": uid, "resourceVersion": "4"}}


class FakeApiServer:
    """An API server that has some objects, and records the writes."""

    def __init__(self, *refusals: ApiResponse) -> None:
        kinds = ("jobsets", "jobs", "pods", "podgroups", "priorityclasses")
        self.lists: dict[str, list[Any]] = {"trainjobs": [trainjob()], **{it: [] for it in kinds}}
        self.writes: list[tuple[Request, Any]] = []
        self.written = asyncio.Event()
        self.failing: dict[str, list[int]] = {}  # which writes of a kind are refused, from 1 on
        self.hold_lists: asyncio.Event | None = None  # until then no PodGroup is listed
        self.hold_answers: asyncio.Event | None = None  # until then no write of a group is answered
        self.lines: dict[str, asyncio.Queue[bytes]] = {kind: asyncio.Queue() for kind in self.lists}
        self._refusals = list(refusals)

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Show what there is, take what is written."""
        assert timeout_s > 0
        if request.method == "GET":
            if self.hold_lists and request.path.endswith("/podgroups"):
                await self.hold_lists.wait()
            items = self.lists[request.path.rpartition("/")[2]]
            body = {"metadata": {"resourceVersion": "10"}, "items": items}
            return ApiResponse(200, json.dumps(body).encode())
        assert request.body is not None
        self.writes.append((request, json.loads(request.body)))
        self.written.set()
        if len(self.writes_of("podgroups")) in self.failing.get("/podgroups/", ()):
            self.failing = {}
            return error_answer(422, "no", "Invalid")
        if self.hold_answers and "/podgroups/" in request.path:
            await self.hold_answers.wait()
        if "/pods/" in request.path and self._refusals:
            return self._refusals.pop(0)
        return ApiResponse(200, request.body)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Follow one kind."""
        assert silence_s > 0
        yield self._follow(self.lines[request.path.rpartition("/")[2]])

    async def close(self) -> None:
        """Have nothing to close."""

    def send_event(self, kind: str, what: str, obj: Any) -> None:
        """Send a watch event."""
        self.lines[kind].put_nowait(json.dumps({"type": what, "object": obj}).encode() + b"\n")

    def writes_of(self, kind: str) -> list[tuple[Request, Any]]:
        """Return the writes of one kind of object."""
        return [it for it in self.writes if f"/{kind}" in it[0].path]

    async def until(self, kind: str, count: int) -> None:
        """Wait until so many of a kind were written."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.writes_of(kind)) < count:
                self.written.clear()
                await self.written.wait()

    async def until_seen(self) -> None:
        """Wait until all events were taken, and what they cause has been done."""
        while any(not it.empty() for it in self.lines.values()):
            await asyncio.sleep(0.01)
        for _ in range(
            2
        ):  # what waits for a moment has its turns after that, however long they take
            await pass_turns()
            await asyncio.sleep(0.1)
        await pass_turns()

    async def _follow(self, lines: "asyncio.Queue[bytes]") -> AsyncIterator[bytes]:
        while True:
            yield await lines.get()


async def pass_turns() -> None:
    """Let every other task do all it can."""
    for _ in range(100):
        await asyncio.sleep(0)


@asynccontextmanager
async def grouping(cluster: FakeApiServer, *, leads: bool = True) -> AsyncIterator[Health]:
    """Run a podgrouper on a cluster."""
    clock, metrics, log, health = SystemClock(), Metrics(), structlog.get_logger(), Health()
    client = Client(
        RestConfig("https://nowhere", StaticToken("")), cluster, clock, NoRequestObserver()
    )
    events = event_recorder(client, "test", metrics, log)
    grouper = Podgrouper(BUNDLED, events, metrics, log)
    run = Runner(clock, log)

    async def program(run: Runner) -> None:
        grouper.start_watches(run, client, ClientObserver(metrics), health)
        run.start("events", events.run)
        if leads:
            run.start("lead", lambda: grouper.lead(client))
        health.started()

    task = asyncio.create_task(run.run(program))
    try:
        yield health
    finally:
        run.stop()
        await task


def jobset(runtime: str = "torch-distributed") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an admitted JobSet and its first Job, as the API server has them."""
    obj = recorded(runtime)
    known = admitted(obj)
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "job",
        "uid": "trainjob-1",
        "controller": True,
    }
    obj["metadata"] |= {"resourceVersion": "5", "ownerReferences": [owner]}
    key, job = job_for(known, "node")
    own = job.metadata.owner_references[0]
    reference = {"apiVersion": own.api_version, "kind": own.kind, "name": own.name, "uid": own.uid}
    metadata = {
        "namespace": key.namespace,
        "name": key.name,
        "uid": job.metadata.uid,
        "resourceVersion": "5",
        "ownerReferences": [{**reference, "controller": True}],
    }
    return obj, {"metadata": metadata}


def straggler(name: str, job: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that admission has not seen."""
    labels = {
        "trainer-kai.dev/gang": "Main",
        "jobset.sigs.k8s.io/jobset-name": "job",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
    }
    meta = job["metadata"]
    labels["batch.kubernetes.io/controller-uid"] = meta["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    metadata = {
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "6",
        "labels": labels,
        "ownerReferences": [{**owner, "controller": True}],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}}


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
