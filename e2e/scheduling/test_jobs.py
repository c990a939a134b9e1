"""Workloads without a TrainJob, on four nodes of eight GPUs: gangs of Jobs, runs, JobSets."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import JOBS, JOBSETS, PODS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import condition
from e2e.conftest import failed
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation, namespace_in, run_installation
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.trainjobs import WATCHED, Job, complete, end_stage_now, make_queue, submit
from trainer_kai.api.names import BATCH_MIN_MEMBER, EVICTED_BY, JOB_NAME, SCHEDULER_NAME

_CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
_PODS: Final = 4
_GPUS: Final = 8
_NAME: Final = "sweep"
_MANAGER: Final = "trainer-kai-eviction"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def four_nodes_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    async with run_installation("test-jobs", tmp_path_factory.mktemp("jobs"), _PODS) as shared:
        await make_queue(shared.cluster, "owner", _PODS * _GPUS)
        await make_queue(shared.cluster, "borrower", 0)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def four_nodes_namespace(four_nodes_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there, empty again afterwards."""
    async with namespace_in(four_nodes_installation, "owner", "borrower") as name:
        yield name
        for resource in (JOBS, JOBSETS):
            path = resource.path(name)
            query = {"propagationPolicy": "Background"}
            await four_nodes_installation.cluster.api.request("DELETE", path, query=query)


def pod_template(gpus: int, run_for: str = "600s") -> Obj:
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: f"{gpus}"}}}
    return {
        "metadata": {"annotations": {RUN_SECONDS: run_for}},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [container],
        },
    }


def job_manifest(namespace: str, name: str = _NAME, **metadata: Any) -> Obj:
    """Return a Job of four pods with eight GPUs each."""
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {QUEUE: "borrower"},
            **metadata,
        },
        "spec": {
            "parallelism": _PODS,
            "completions": _PODS,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": pod_template(_GPUS),
        },
    }


async def test_a_job_is_reclaimed_whole_and_completes(
    four_nodes_installation: Installation, four_nodes_namespace: str
) -> None:
    """No pod of it counts as failed, and it never runs in part."""
    cluster = four_nodes_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=four_nodes_namespace) as seen:
        await submit(cluster, four_nodes_namespace, Job("first", "owner", 1, gpus=_GPUS))
        await seen.until(lambda state: _on_nodes(state, "first-node-0") == 1, "a node is used")
        gang = {BATCH_MIN_MEMBER: f"{_PODS}"}
        await cluster.api.create(job_manifest(four_nodes_namespace, annotations=gang))
        await seen.until(lambda state: len(_pods(state)) == _PODS, "its pods exist")
        await seen.settle()
        seen.never(lambda state: _on_nodes(state) > 0, "a part of it ran")
        await end_stage_now(cluster, _pods(seen.state, "first-node-0"))
        await seen.until(complete("first"), "the other is Complete", 60)
        await seen.until(_all_run, "all of it runs", 60)

        await submit(cluster, four_nodes_namespace, Job("second", "owner", _PODS, "1s", _GPUS))
        await seen.until(complete("second"), "whoever owns the GPUs has run", 60)
        await seen.until(_all_run, "all of it runs again", 60)
        seen.never(lambda state: _failed(state) > 0, "a pod counted as failed")
        await end_stage_now(cluster, _pods(seen.state))
        await seen.until(_is_complete, "it is Complete", 60)

        states = [it.obj["spec"] for it in seen.history() if it.key.resource == JOBS]
        assert any(it.get("suspend") for it in states)
        await _check_that_nothing_is_left(cluster, four_nodes_namespace)
        messages = await _messages(cluster, four_nodes_namespace)
        assert "queue borrower was over its fair share" in messages["Evicted"]
        assert messages["Resumed"].endswith("the Job waits for free resources")


async def test_a_job_without_the_annotation_starts_pod_by_pod(
    four_nodes_installation: Installation, four_nodes_namespace: str
) -> None:
    """As in KAI: each pod starts where it finds room, and one that waits keeps no other back."""
    cluster = four_nodes_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=four_nodes_namespace) as seen:
        await submit(cluster, four_nodes_namespace, Job("first", "owner", 1, gpus=_GPUS))
        await seen.until(lambda state: _on_nodes(state, "first-node-0") == 1, "a node is used")
        await cluster.api.create(job_manifest(four_nodes_namespace))
        await seen.until(lambda state: _on_nodes(state) == _PODS - 1, "the others are used")
        await seen.settle()
        assert (_on_nodes(seen.state), len(_pods(seen.state))) == (_PODS - 1, _PODS)
        await end_stage_now(cluster, _pods(seen.state, "first-node-0"))
        await seen.until(_all_run, "all of it runs", 60)
        await end_stage_now(cluster, _pods(seen.state))
        await seen.until(_is_complete, "it is Complete", 60)


async def test_a_run_of_a_cron_job_and_a_jobset_of_two_stages(
    four_nodes_installation: Installation, four_nodes_namespace: str
) -> None:
    """The second stage starts when the first one has succeeded; both workloads are reclaimed."""
    cluster = four_nodes_installation.cluster
    path = _CRON_JOBS.path(four_nodes_namespace)
    cron_job = await cluster.api.request("POST", path, _cron_job(four_nodes_namespace))
    owner = {
        **{name: cron_job["metadata"][name] for name in ("name", "uid")},
        "apiVersion": _CRON_JOBS.api_version,
        "kind": _CRON_JOBS.kind,
        "controller": True,
    }
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=four_nodes_namespace) as seen:
        run = job_manifest(four_nodes_namespace, "nightly-1", ownerReferences=[owner])
        run["spec"] |= {"parallelism": 2, "completions": 2}
        await cluster.api.create(run)
        await cluster.api.create(_staged_jobset(four_nodes_namespace))
        await seen.until(lambda state: _on_nodes(state, "nightly-1") == 2, "the run runs")
        await seen.until(lambda state: _on_nodes(state, "staged-train-0") == 2, "it trains", 60)
        assert _succeeded(seen.state, "staged-prepare-0") == 1
        await submit(cluster, four_nodes_namespace, Job("claim", "owner", _PODS, "1s", _GPUS))
        await seen.until(complete("claim"), "whoever owns the GPUs has run", 60)
        await seen.until(lambda state: _on_nodes(state, "nightly-1") == 2, "it runs again", 60)
        await seen.until(lambda state: _on_nodes(state, "staged-train-0") == 2, "both do", 60)
        for name in ("nightly-1", "staged-train-0"):
            await end_stage_now(cluster, _pods(seen.state, name))
        await seen.until(lambda state: _is_complete(state, "nightly-1"), "the run is Complete", 60)
        await seen.until(_is_completed_jobset, "the JobSet is Completed", 60)

    suspended = {it.key.name for it in seen.history() if it.obj["spec"].get("suspend")}
    assert {"nightly-1", "staged"} <= suspended
    assert {_failed(seen.state, name) for name in ("nightly-1", "staged-train-0")} == {0}


def _cron_job(namespace: str) -> Obj:
    job = job_manifest(namespace)["spec"]
    return {
        "apiVersion": _CRON_JOBS.api_version,
        "kind": _CRON_JOBS.kind,
        "metadata": {"namespace": namespace, "name": "nightly"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}},
    }


def _staged_jobset(namespace: str) -> Obj:
    """Return a JobSet whose two pods train when the pod that prepares has succeeded."""
    stages: list[Obj] = []
    for name, pods, gpus, run_for in (("prepare", 1, 0, "1s"), ("train", 2, _GPUS, "600s")):
        job: Obj = {"parallelism": pods, "completions": pods, "backoffLimit": 0}
        job["template"] = pod_template(gpus, run_for)
        stages.append({"name": name, "template": {"spec": job}})
    stages[1]["dependsOn"] = [{"name": "prepare", "status": "Complete"}]
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {"namespace": namespace, "name": "staged", "labels": {QUEUE: "borrower"}},
        "spec": {"replicatedJobs": stages},
    }


async def _messages(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Return what the scheduler posted about the Job, by reason."""
    events = await cluster.api.request("GET", f"/api/v1/namespaces/{namespace}/events")
    return {
        it["reason"]: it["message"]
        for it in events["items"]
        if it["involvedObject"]["kind"] == JOBS.kind
        and it["involvedObject"]["name"] == _NAME
        and it.get("reportingComponent") == SCHEDULER_NAME
    }


async def _check_that_nothing_is_left(cluster: Cluster, namespace: str) -> None:
    job = await cluster.api.get(JOBS, namespace, _NAME)
    assert EVICTED_BY not in job["metadata"].get("annotations", {})
    owned = (it["fieldsV1"] for it in job["metadata"]["managedFields"] if it["manager"] == _MANAGER)
    assert all("f:suspend" not in it.get("f:spec", {}) for it in owned)


def _all_run(state: State) -> bool:
    return _on_nodes(state) == _PODS and len(_pods(state)) == _PODS


def _objects(state: State, kind: str) -> list[Obj]:
    return [obj for key, obj in state.items() if key.resource.kind == kind]


def _pods(state: State, name: str = _NAME) -> list[Obj]:
    """Return the pods of a Job that are not terminating."""
    pods = (it for it in _objects(state, PODS.kind) if not it["metadata"].get("deletionTimestamp"))
    return [it for it in pods if it["metadata"].get("labels", {}).get(JOB_NAME) == name]


def _on_nodes(state: State, name: str = _NAME) -> int:
    return sum(bool(it["spec"].get("nodeName")) for it in _pods(state, name))


def _job(state: State, name: str) -> Obj:
    return next((it for it in _objects(state, JOBS.kind) if it["metadata"]["name"] == name), {})


def _failed(state: State, name: str = _NAME) -> int:
    return int(_job(state, name).get("status", {}).get("failed", 0))


def _succeeded(state: State, name: str) -> int:
    return int(_job(state, name).get("status", {}).get("succeeded", 0))


def _is_complete(state: State, name: str = _NAME) -> bool:
    return condition(_job(state, name), "Complete")


def _is_completed_jobset(state: State) -> bool:
    jobsets = {it["metadata"]["name"]: it for it in _objects(state, JOBSETS.kind)}
    return condition(jobsets["staged"], "Completed")
