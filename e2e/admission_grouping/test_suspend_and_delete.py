"""TrainJobs that are suspended, recreated, or left by their runtime and history."""

import asyncio
from collections.abc import Mapping
from typing import Any

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, PODS, RUNTIMES, TRAINJOBS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace, next_name
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import (
    PODGROUP,
    QUEUE,
    bind_by_podgroups,
    finishing_pods,
    groups_in,
    pods_in,
)

_UID = "jobset.sigs.k8s.io/jobset-uid"


async def test_a_trainjob_that_is_made_suspended_is_ready_to_go(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Everything is injected at creation; there is no group before it is let go, and one then."""
    job = Submission(
        "job", "torch-distributed", own_namespace, 2, labels={QUEUE: "team-a"}
    ).trainjob()
    job["spec"]["suspend"] = True
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job)
        await seen.until(lambda _: len(seen.objects(JOBSETS)) == 1, "the JobSet exists")
        await asyncio.sleep(1)
        assert seen.objects(PODGROUPS) == seen.objects(PODS) == []
        await webhook_installation.cluster.api.merge(
            TRAINJOBS, own_namespace, "job", {"spec": {"suspend": False}}
        )
        await seen.until(lambda state: _are_in_groups(state, 2), "both pods are in their group")

    made = next(m.obj for m in seen.moments if m.key.resource == JOBSETS)
    template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["spec"]["schedulerName"] == "kai-scheduler"
    assert template["metadata"]["labels"] == {QUEUE: "team-a", "trainer-kai.dev/gang": "Main"}
    assert seen.objects(PODGROUPS)[0]["spec"]["queue"] == "team-a"


async def test_a_jobset_of_the_same_name_is_not_taken_over(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Trainer takes a JobSet of somebody else for its own; we do not, and nothing of it changes."""
    container = {"name": "c", "image": "example.com/none"}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"parallelism": 1, "completions": 1, "template": pod}
    foreign: Obj = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"namespace": own_namespace, "name": "job"},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 1, "template": {"spec": job}}]},
    }
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        before = await webhook_installation.cluster.api.create(foreign)
        await seen.until(lambda _: len(seen.objects(PODS)) == 1, "its pod exists")
        job_of_that_name = Submission(
            "job", "torch-distributed", own_namespace, 2, labels={QUEUE: "team-a"}
        )
        await webhook_installation.cluster.api.create(job_of_that_name.trainjob())
        await asyncio.sleep(2)

    (after,) = seen.objects(JOBSETS)
    assert after["spec"] == before["spec"]
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
    assert seen.objects(PODGROUPS) == []
    assert seen.objects(PODS)[0]["spec"]["schedulerName"] == "default-scheduler"


async def test_a_runtime_that_is_gone_changes_nothing(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """What was started with it goes on as it is, and ends."""
    shipped = await webhook_installation.cluster.api.get(
        CLUSTER_RUNTIMES, None, "deepspeed-distributed"
    )
    runtime = _own_podgroups(shipped, own_namespace)
    await webhook_installation.cluster.api.create(runtime)
    patches = finishing_pods(shipped)
    job = Submission("job", "own", own_namespace, 3, 1, patches, kind="TrainingRuntime")
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_in_groups(state, 2), "the first pods are in the group")
        (before,) = seen.objects(PODGROUPS)
        await webhook_installation.cluster.api.delete(RUNTIMES, own_namespace, "own")
        await bind_by_podgroups(webhook_installation.cluster, seen, _is_over)

    (after,) = seen.objects(PODGROUPS)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_jobset_that_is_made_again_has_groups_of_its_own(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Deleted by hand, say: Trainer makes it anew, and nobody mixes the two."""
    job = Submission("job", "torch-distributed", own_namespace, 2)
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_in_groups(state, 2), "both pods are in their group")
        first = seen.objects(JOBSETS)[0]["metadata"]["uid"]
        await webhook_installation.cluster.api.delete(JOBSETS, own_namespace, "job")
        await seen.until(
            lambda state: _are_in_groups(state, 2) and not _is_of(state, first), "all is new"
        )

    groups = {m.obj["metadata"]["name"]: m.obj for m in seen.moments if m.key.resource == PODGROUPS}
    assert len(groups) == 2
    for moment in seen.moments:
        if moment.key.resource == PODS:
            meta = moment.obj["metadata"]
            assert meta["annotations"][PODGROUP] == f"pg-job-{meta['labels'][_UID]}"


async def test_without_history_nothing_is_doubled(
    damaged_webhook_installation: WebhookInstallation,
) -> None:
    """After a compaction and a restart of the API server all watches begin anew; no group does."""
    cluster, own_namespace = damaged_webhook_installation.cluster, next_name()
    await make_namespace(cluster, own_namespace)
    async with _uids(cluster, own_namespace) as seen:
        await cluster.api.create(
            Submission("before", "torch-distributed", own_namespace, 2).trainjob()
        )
        await seen.until(lambda state: _are_in_groups(state, 2), "both pods are in their group")
    mark = await cluster.audit.mark()
    await cluster.forget_history()
    async with patience(60):
        while not await _is_created(
            cluster, Submission("after", "torch-distributed", own_namespace, 2)
        ):
            await asyncio.sleep(0.5)
    async with _uids(cluster, own_namespace) as seen:
        await seen.until(lambda state: _are_in_groups(state, 4), "all pods are in their groups", 60)

    assert len(seen.objects(PODGROUPS)) == 2
    writes = await cluster.audit.writes(mark)
    ours = [
        it for it in writes if "trainer-kai-podgrouper" in it.user and it.resource == "podgroups"
    ]
    assert len({it.name for it in ours}) == 1  # that of the new TrainJob


async def _is_created(cluster: Cluster, job: Submission) -> bool:
    """Submit, if Trainer's webhook can be reached already."""
    try:
        await cluster.api.create(job.trainjob())
    except ApiError:
        return False
    return True


def _uids(cluster: Cluster, namespace: str) -> Timeline:
    return cluster.timeline(TRAINJOBS, JOBSETS, PODGROUPS, PODS, namespace=namespace)


def _are_in_groups(state: State, count: int) -> bool:
    known = {group["metadata"]["name"] for group in groups_in(state)}
    pods = [pod for pod in pods_in(state) if not pod["metadata"].get("deletionTimestamp")]
    named = [pod["metadata"].get("annotations", {}).get(PODGROUP) for pod in pods]
    return len(named) == count and known.issuperset(named)


def _is_of(state: State, uid: str) -> bool:
    return any(pod["metadata"]["labels"][_UID] == uid for pod in pods_in(state))


def _is_over(state: State) -> bool:
    jobs = [obj for key, obj in state.items() if key.resource == TRAINJOBS]
    return any(it["type"] == "Complete" for job in jobs for it in _conditions(job))


def _conditions(job: Obj) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = job.get("status", {}).get("conditions") or []
    return found


def _own_podgroups(shipped: Obj, namespace: str) -> Obj:
    return {
        "apiVersion": shipped["apiVersion"],
        "kind": "TrainingRuntime",
        "metadata": {"namespace": namespace, "name": "own"},
        "spec": shipped["spec"],
    }
