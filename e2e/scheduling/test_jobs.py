"""Jobs of users: each starts whole or not at all, and is reclaimed whole by a suspension."""

from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import JOBS, PODS, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import condition
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.trainjobs import WATCHED, Job, complete, end_stage_now, submit
from trainer_kai.api.names import BATCH_MIN_MEMBER, EVICTED_BY, JOB_NAME, SCHEDULER_NAME

_PODS: Final = 4
_NAME: Final = "sweep"
_MANAGER: Final = "trainer-kai-eviction"


def job_manifest(namespace: str) -> Obj:
    """Return a Job of four pods with two GPUs each, which start together."""
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: "2"}}}
    pods = {
        "metadata": {"annotations": {RUN_SECONDS: "600s"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "restartPolicy": "Never",
            "containers": [container],
        },
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "namespace": namespace,
            "name": _NAME,
            "labels": {QUEUE: "borrower"},
            "annotations": {BATCH_MIN_MEMBER: f"{_PODS}"},
        },
        "spec": {
            "parallelism": _PODS,
            "completions": _PODS,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": pods,
        },
    }


async def test_a_job_is_reclaimed_whole_and_completes(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """No pod of it counts as failed, and it never runs in part."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=two_teams_namespace) as seen:
        await submit(cluster, two_teams_namespace, Job("first", "owner", 2))
        await seen.until(lambda state: _on_nodes(state, "first-node-0") == 2, "two GPUs are used")
        await cluster.api.create(job_manifest(two_teams_namespace))
        await seen.until(lambda state: len(_pods(state)) == _PODS, "its pods exist")
        await seen.settle()
        seen.never(lambda state: _on_nodes(state) > 0, "a part of it ran")
        await end_stage_now(cluster, _pods(seen.state, "first-node-0"))
        await seen.until(complete("first"), "the other is Complete", 60)
        await seen.until(_all_run, "all of it runs", 60)

        await submit(cluster, two_teams_namespace, Job("second", "owner", 8, "1s"))
        await seen.until(complete("second"), "whoever owns the GPUs has run", 60)
        await seen.until(_all_run, "all of it runs again", 60)
        seen.never(lambda state: _failed(state) > 0, "a pod counted as failed")
        await end_stage_now(cluster, _pods(seen.state))
        await seen.until(_is_complete, "it is Complete", 60)

        states = [it.obj["spec"] for it in seen.history() if it.key.resource == JOBS]
        assert any(it.get("suspend") for it in states)
        await _check_that_nothing_is_left(cluster, two_teams_namespace)
        messages = await _messages(cluster, two_teams_namespace)
        assert "queue borrower was over its fair share" in messages["Evicted"]
        assert messages["Resumed"].endswith("the Job waits for free resources")


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


def _job(state: State) -> Obj:
    return next((it for it in _objects(state, JOBS.kind) if it["metadata"]["name"] == _NAME), {})


def _failed(state: State) -> int:
    return int(_job(state).get("status", {}).get("failed", 0))


def _is_complete(state: State) -> bool:
    return condition(_job(state), "Complete")
