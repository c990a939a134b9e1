"""How fast the podgrouper is by itself: JobSets and pods in, PodGroups out, on one core.

The API server is a transport in memory, so that only our own work counts: reading, planning,
writing requests, reading answers. Once with pods that admission has assigned, as it does, and once
with unassigned pods, as after an hour without admission.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from rich.console import Console
from rich.table import Table

from tests.support.workloads.jobsets import admitted, recorded
from trainer_kai.api.names import (
    CONTROLLER_UID,
    GANG,
    JOB_INDEX,
    JOB_TRACKING,
    JOBSET_NAME,
    JOBSET_UID,
    POD_GROUP,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
)
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.context import ClientObserver, event_recorder
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.podgrouper.reconcile import Podgrouper
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.health import Health
from trainer_kai.service.metrics import Metrics

_JOBSETS: Final = 500
_PODS_EACH: Final = 8
_PODS: Final = _JOBSETS * _PODS_EACH
_PODS_PER_S: Final = 2_000
_ROUNDS: Final = 3
_LIST_VERSION: Final = 1_000


class _FakeTransport:
    """A transport that serves lists once, and takes every write."""

    def __init__(self, lists: dict[str, bytes], writes: int) -> None:
        self.sent: dict[str, int] = {}
        self.done = asyncio.Event()
        self._lists = lists
        self._left = writes

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Answer a list with what there is, and a write with what was written."""
        assert timeout_s > 0
        kind = request.path.split("/")[-1 if request.method == "GET" else -2]
        if request.method == "GET":
            return ApiResponse(200, self._lists[kind])
        assert request.body is not None
        self.sent[kind] = self.sent.get(kind, 0) + 1
        if kind in {"pods", "podgroups"}:
            self._left -= 1
            if not self._left:
                self.done.set()
        return ApiResponse(200, request.body)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Watch, without any event."""
        assert silence_s > 0
        assert ("watch", "true") in request.query
        yield self._silence()

    async def close(self) -> None:
        """Close nothing."""

    async def _silence(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


async def main() -> None:
    """Measure both and print the table."""
    table = Table(
        title=f"{_JOBSETS} JobSets of {_PODS_EACH} pods grouped, one core, best of {_ROUNDS}"
    )
    for heading in ("pods", "seconds", "pods per second", "writes", "times json.loads"):
        table.add_column(heading, justify="left" if heading == "pods" else "right")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    for name, is_assigned in (("assigned by admission", True), ("assigned by nobody", False)):
        lists = _lists(is_assigned=is_assigned)
        floor_s = min([_read(lists) for _ in range(_ROUNDS)])
        writes = _JOBSETS + (0 if is_assigned else _PODS)
        seconds = min([await _group(lists, writes) for _ in range(_ROUNDS)])
        figures = (f"{seconds:.2f}", f"{_PODS / seconds:,.0f}", f"{writes:,}")
        table.add_row(name, *figures, f"{seconds / floor_s:.1f}")
        assert _PODS / seconds >= _PODS_PER_S
    Console(width=115).print(table)


def _read(lists: dict[str, bytes]) -> float:
    began = time.perf_counter()
    for data in lists.values():
        json.loads(data)
    return time.perf_counter() - began


async def _group(lists: dict[str, bytes], writes: int) -> float:
    """Start from nothing, and end when everything is written."""
    clock, metrics, log = SystemClock(), Metrics(), structlog.get_logger()
    transport = _FakeTransport(lists, writes)
    client = Client(
        RestConfig("https://nowhere", StaticToken("")), transport, clock, NoRequestObserver()
    )
    rules = GroupingRules("bundled", "kai-scheduler", "default-queue")
    events = event_recorder(client, "bench", metrics, log)
    grouper = Podgrouper(rules, events, metrics, log)
    run = Runner(clock, log)

    async def program(run: Runner) -> None:
        grouper.start_watches(run, client, ClientObserver(metrics), Health())
        run.start("lead", lambda: grouper.lead(client))
        run.start("end", lambda: _stop_when_done(transport, run), may_end=True)

    began = time.perf_counter()
    await run.run(program)
    seconds = time.perf_counter() - began
    assert transport.sent.get("podgroups") == _JOBSETS
    assert transport.sent.get("pods", 0) == writes - _JOBSETS
    return seconds


async def _stop_when_done(transport: _FakeTransport, run: Runner) -> None:
    await transport.done.wait()
    run.stop()


def _lists(*, is_assigned: bool) -> dict[str, bytes]:
    jobsets, jobs, pods = [], [], []
    for number in range(_JOBSETS):
        jobset = _jobset(number)
        jobsets.append(jobset)
        jobs.append(_job(jobset))
        pods += [_pod(jobset, i, is_assigned=is_assigned) for i in range(_PODS_EACH)]
    trainjobs = [_trainjob(it) for it in jobsets]
    lists = {
        "trainjobs": trainjobs,
        "jobsets": jobsets,
        "jobs": jobs,
        "pods": pods,
        "podgroups": [],
        "priorityclasses": [],
    }
    return {
        kind: json.dumps(
            {"metadata": {"resourceVersion": str(_LIST_VERSION)}, "items": items}
        ).encode()
        for kind, items in lists.items()
    }


def _jobset(number: int) -> dict[str, Any]:
    obj = recorded("torch-distributed")
    admitted(obj)
    metadata = obj["metadata"]
    metadata["name"] = f"job-{number}"
    metadata["uid"] = f"{number:08d}-0000-0000-0000-000000000000"
    metadata["ownerReferences"][0]["name"] = metadata["name"]
    job = obj["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = _PODS_EACH
    return obj


def _trainjob(jobset: dict[str, Any]) -> dict[str, Any]:
    """Return the TrainJob that a JobSet names."""
    meta = jobset["metadata"]
    (owner,) = meta["ownerReferences"]
    return {
        "metadata": {"namespace": meta["namespace"], "name": owner["name"], "uid": owner["uid"]}
    }


def _job(jobset: dict[str, Any]) -> dict[str, Any]:
    meta = jobset["metadata"]
    owner = {"apiVersion": jobset["apiVersion"], "kind": "JobSet", "name": meta["name"]}
    return {
        "metadata": {
            "namespace": meta["namespace"],
            "name": f"{meta['name']}-node-0",
            "uid": f"job-{meta['uid']}",
            "ownerReferences": [{**owner, "uid": meta["uid"], "controller": True}],
        }
    }


def _pod(jobset: dict[str, Any], index: int, *, is_assigned: bool) -> dict[str, Any]:
    meta = jobset["metadata"]
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    group = {POD_GROUP: f"pg-{meta['name']}-{meta['uid']}"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{meta['name']}-node-0"}
    return {
        "metadata": {
            "namespace": meta["namespace"],
            "name": f"{meta['name']}-node-0-{index}",
            "uid": f"pod-{meta['uid']}-{index}",
            "labels": {
                GANG: "Main",
                JOBSET_NAME: meta["name"],
                JOBSET_UID: meta["uid"],
                REPLICATED_JOB: "node",
                JOB_INDEX: "0",
                RESTART_ATTEMPT: "0",
                CONTROLLER_UID: f"job-{meta['uid']}",
            },
            "finalizers": [JOB_TRACKING],
            "annotations": group if is_assigned else {},
            "ownerReferences": [{**owner, "uid": f"job-{meta['uid']}", "controller": True}],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }
