"""A podgrouper that runs on an API server in memory, which has a JobSet, its Jobs and pods."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from tests.support.fakes.scripted_transport import error_answer
from tests.support.workloads.jobsets import admitted, recorded
from tests.trainer_kai.podgrouper.stores import BUNDLED, job_for
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.context import ClientObserver, event_recorder
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.podgrouper.reconcile import Podgrouper
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.health import Health
from trainer_kai.service.metrics import Metrics

PATIENCE_S = 60.0


def trainjob(uid: str = "trainjob-1") -> dict[str, Any]:
    name = {"namespace": "default", "name": "job"}
    return {"metadata": {**name, "uid": uid, "resourceVersion": "4"}}


class FakeApiServer:
    def __init__(self, *refusals: ApiResponse) -> None:
        kinds = ("jobsets", "jobs", "pods", "podgroups", "priorityclasses")
        self.lists: dict[str, list[Any]] = {"trainjobs": [trainjob()], **{it: [] for it in kinds}}
        self.writes: list[tuple[Request, Any]] = []
        self.reads: dict[str, int] = {}  # by path
        self.written = asyncio.Event()
        self.forbidden: set[str] = set()  # plurals of which no object can be read
        self.served: list[tuple[str, str, str]] = []  # other kinds: group, plural and kind
        self.failing: dict[str, list[int]] = {}  # which writes of a kind are refused, from 1 on
        self.hold_lists: asyncio.Event | None = None  # until then no PodGroup is listed
        self.hold_answers: asyncio.Event | None = None  # until then no write of a group is answered
        self.lines: dict[str, asyncio.Queue[bytes]] = {kind: asyncio.Queue() for kind in self.lists}
        self._refusals = list(refusals)

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        assert timeout_s > 0
        if request.method == "GET":
            if self.hold_lists and request.path.endswith("/podgroups"):
                await self.hold_lists.wait()
            self.reads[request.path] = self.reads.get(request.path, 0) + 1
            if "/namespaces/" in request.path:
                return self._object(request.path)
            if request.path in {"/api", "/apis"}:
                return self._discovery(request.path)
            items = self.lists.get(request.path.rpartition("/")[2])
            if items is None:
                return error_answer(404, reason="NotFound")
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

    def _object(self, path: str) -> ApiResponse:
        *_, namespace, plural, name = path.split("/")
        if plural in self.forbidden:
            return error_answer(403, reason="Forbidden")
        for it in self.lists.get(plural, ()):
            if it["metadata"]["name"] == name and namespace in {
                it["metadata"].get("namespace"),
                "v1",
            }:
                return ApiResponse(200, json.dumps(it).encode())
        return error_answer(404, reason="NotFound")

    def _discovery(self, path: str) -> ApiResponse:
        groups = [
            {
                "metadata": {"name": group},
                "versions": [
                    {
                        "version": "v1",
                        "resources": [
                            {
                                "resource": plural,
                                "scope": "Cluster" if plural == "clusters" else "Namespaced",
                                "responseKind": {"kind": kind},
                            }
                        ],
                    }
                ],
            }
            for group, plural, kind in (self.served if path == "/apis" else ())
        ]
        return ApiResponse(200, json.dumps({"items": groups}).encode())

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        assert silence_s > 0
        yield self._follow(self.lines[request.path.rpartition("/")[2]])

    async def close(self) -> None: ...

    def send_event(self, kind: str, what: str, obj: Any) -> None:
        self.lines[kind].put_nowait(json.dumps({"type": what, "object": obj}).encode() + b"\n")

    def writes_of(self, kind: str) -> list[tuple[Request, Any]]:
        return [it for it in self.writes if f"/{kind}" in it[0].path]

    async def until(self, kind: str, count: int) -> None:
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
        ):  # what waits for a moment has its turns after that, however long it takes
            await pass_turns()
            await asyncio.sleep(0.1)
        await pass_turns()

    async def _follow(self, lines: "asyncio.Queue[bytes]") -> AsyncIterator[bytes]:
        while True:
            yield await lines.get()


async def pass_turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


@asynccontextmanager
async def grouping(cluster: FakeApiServer, *, leads: bool = True) -> AsyncIterator[Health]:
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


def batch_job(name: str, **metadata: Any) -> dict[str, Any]:
    """Return an admitted Job of four pods that start together."""
    annotations = {"trainer-kai.dev/admitted": "v1", "kai.scheduler/batch-min-member": "4"}
    own = {"namespace": "default", "name": name, "uid": f"uid-{name}", "resourceVersion": "5"}
    labels = {"kai.scheduler/queue": "team-a"}
    template = {
        "metadata": {"labels": {"trainer-kai.dev/gang": "Main"}},
        "spec": {"schedulerName": "kai-scheduler"},
    }
    return {
        "metadata": {**own, "labels": labels, "annotations": annotations, **metadata},
        "spec": {"parallelism": 4, "completionMode": "NonIndexed", "template": template},
    }


def job_pod(name: str, job: dict[str, Any]) -> dict[str, Any]:
    pod = straggler(name, job)
    pod["metadata"]["labels"] = {
        "trainer-kai.dev/gang": "Main",
        "batch.kubernetes.io/job-name": job["metadata"]["name"],
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
    }
    return pod


def owned(kind: str, name: str, owner: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return an object of a kind, as its group and kind, below another one."""
    group, _, only_kind = kind.rpartition(".")
    own = {"namespace": "default", "name": name, "uid": f"uid-{name}", "resourceVersion": "5"}
    obj: dict[str, Any] = {
        "apiVersion": f"{group}/v1" if group else "v1",
        "kind": only_kind,
        "metadata": {**own, **metadata},
    }
    if owner is not None:
        obj["metadata"]["ownerReferences"] = [reference(owner)]
    return obj


def reference(owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"]}
    return {**named, "uid": meta["uid"], "controller": True, **more}


def owned_pod(name: str, owner: Any = None, **metadata: Any) -> dict[str, Any]:
    pod = owned("Pod", name, owner, **metadata)
    return {**pod, "spec": {"schedulerName": "kai-scheduler"}, "status": {"phase": "Pending"}}


def straggler(name: str, job: dict[str, Any]) -> dict[str, Any]:
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
