"""Facts of the chain that the whole design rests on."""

import asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import until
from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission, condition
from e2e.upstream.bind_pods import bind_pods_until

PODS_WANTED = 8
_APPLY = "application/apply-patch+yaml"


async def test_deleting_its_pods_destroys_a_trainjob(cluster: Cluster, namespace: str) -> None:
    """Whoever takes GPUs back by deleting pods kills the TrainJob: each one counts as a failure."""
    async with cluster.timeline(TRAINJOBS, JOBS, PODS, namespace=namespace) as seen:
        await _run_eight_pods(cluster, seen, namespace)

        names = [pod["metadata"]["name"] for pod in seen.objects(PODS)]
        await asyncio.gather(*(cluster.api.delete(PODS, namespace, name) for name in names))
        await seen.until(lambda _: condition(_only(seen, TRAINJOBS), "Failed"), "TrainJob Failed")

    reasons = [c["reason"] for c in _only(seen, JOBS)["status"]["conditions"]]
    assert "BackoffLimitExceeded" in reasons


async def test_suspending_and_resuming_loses_nothing(cluster: Cluster, namespace: str) -> None:
    """Suspend takes every pod away and resume brings every pod back, with no failure counted."""
    async with cluster.timeline(TRAINJOBS, JOBS, PODS, namespace=namespace) as seen:
        await _run_eight_pods(cluster, seen, namespace)
        first = {pod["metadata"]["uid"] for pod in seen.objects(PODS)}

        await _suspend(cluster, namespace, suspended=True)
        await seen.until(lambda _: not seen.objects(PODS), "every pod is gone")
        await _suspend(cluster, namespace, suspended=False)
        await seen.until(lambda _: _count_pending(seen) == PODS_WANTED, "all pods are back")

    assert not first & {pod["metadata"]["uid"] for pod in seen.objects(PODS)}
    seen.never(_anything_failed, "a failure was counted or a TrainJob failed")


async def test_a_condition_of_somebody_else_survives(cluster: Cluster, namespace: str) -> None:
    """Trainer keeps a condition that it does not know, through suspend and resume."""
    job = Submission("job", "torch-distributed", namespace, num_nodes=1).trainjob()
    noted = {"type": "Noted", "status": "True", "reason": "Test", "message": "by somebody else"}
    status = {"conditions": [{**noted, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    async with cluster.timeline(TRAINJOBS, PODS, namespace=namespace) as seen:
        await cluster.api.create(job)
        await seen.until(lambda _: len(seen.objects(PODS)) == 1, "the pod exists")
        body = {key: job[key] for key in ("apiVersion", "kind", "metadata")} | {"status": status}
        path = f"{TRAINJOBS.path(namespace, 'job')}/status"
        query = {"fieldManager": "somebody-else"}
        await cluster.api.request("PATCH", path, body, query=query, content_type=_APPLY)
        await _suspend(cluster, namespace, suspended=True)
        await seen.until(lambda _: not seen.objects(PODS), "the pod is gone")
        await _suspend(cluster, namespace, suspended=False)
        await seen.until(lambda _: len(seen.objects(PODS)) == 1, "the pod is back")

    written = [condition(m.obj, "Noted") for m in seen.moments if m.key.resource == TRAINJOBS]
    assert written[written.index(True) :] == [True] * written.count(True)
    assert condition(_only(seen, TRAINJOBS), "Noted")


async def test_volume_claims_keep_a_trainjob_from_being_suspended(
    cluster: Cluster, namespace: str
) -> None:
    """JobSet fills in what becomes of them at the end, and refuses what Trainer applies without."""
    job = Submission("job", "torchtune-llama3.2-1b", namespace, num_nodes=1).trainjob()
    async with cluster.timeline(PODS, namespace=namespace) as seen:
        await cluster.api.create(job)
        await seen.until(lambda _: bool(seen.objects(PODS)), "a pod exists")
        mark = await cluster.audit.mark()
        await _suspend(cluster, namespace, suspended=True)

        async def is_refused() -> bool:
            return 422 in await _answers(cluster, mark, namespace)

        await until(is_refused, "Trainer's write is refused")

    jobsets, _ = await cluster.api.list(JOBSETS, namespace)
    assert [it["spec"].get("suspend", False) for it in jobsets] == [False]
    assert seen.objects(PODS)


async def _answers(cluster: Cluster, mark: int, namespace: str) -> list[int]:
    """Return the status codes of what was written to JobSets since a mark, in order."""
    writes = await cluster.audit.writes(mark)
    return [it.status for it in writes if (it.resource, it.namespace) == ("jobsets", namespace)]


async def _run_eight_pods(cluster: Cluster, seen: Timeline, namespace: str) -> None:
    submission = Submission("job", "torch-distributed", namespace, num_nodes=PODS_WANTED, gpus=1)
    await cluster.api.create(submission.trainjob())
    await bind_pods_until(cluster, seen, ["node-0"], _all_running)


async def _suspend(cluster: Cluster, namespace: str, *, suspended: bool) -> None:
    await cluster.api.merge(TRAINJOBS, namespace, "job", {"spec": {"suspend": suspended}})


def _all_running(state: State) -> bool:
    phases = [obj["status"]["phase"] for key, obj in state.items() if key.resource == PODS]
    return phases == ["Running"] * PODS_WANTED


def _anything_failed(state: State) -> bool:
    counted = any(
        obj.get("status", {}).get("failed") for k, obj in state.items() if k.resource == JOBS
    )
    return counted or any(condition(obj, "Failed") for obj in state.values())


def _count_pending(seen: Timeline) -> int:
    return sum(pod["status"]["phase"] == "Pending" for pod in seen.objects(PODS))


def _only(seen: Timeline, resource: Resource) -> Obj:
    (obj,) = seen.objects(resource)
    return obj
