"""Workloads that admission does not mark: their pods join by their owners, whatever these are."""

import asyncio
from typing import Any, Final

from tests.trainer_kai.podgrouper.running_podgrouper import (
    FakeApiServer,
    grouping,
    owned,
    owned_pod,
)

SPEC: Final = {"schedulerName": "kai-scheduler"}
TEMPLATE: Final = {"spec": SPEC}


def cluster_of(**objects: list[Any]) -> FakeApiServer:
    """Return a cluster with objects, by their plural."""
    cluster = FakeApiServer()
    for plural, found in objects.items():
        cluster.lists[plural] = [*cluster.lists.get(plural, []), *found]
        cluster.lines.setdefault(plural, asyncio.Queue())
    return cluster


def with_labels(pod: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


async def assigned(cluster: FakeApiServer, pods: int) -> dict[str, tuple[str, str]]:
    """Return the PodGroup and the sub-group of each pod."""
    async with grouping(cluster):
        await cluster.until("pods", pods)
        await cluster.until_seen()
    return {
        request.path.rpartition("/")[2]: (
            body["metadata"]["annotations"]["pod-group-name"],
            body["metadata"].get("labels", {}).get("kai.scheduler/subgroup-name", ""),
        )
        for request, body in cluster.writes_of("pods")
    }


async def test_the_pods_of_a_job_of_kubeflow() -> None:
    specs = {
        "Master": {"replicas": 1, "template": TEMPLATE},
        "Worker": {
            "replicas": 2,
            "template": {
                "metadata": {"annotations": {"kai.scheduler/segment-size": "1"}},
                "spec": SPEC,
            },
        },
    }
    job = {**owned("kubeflow.org.PyTorchJob", "x"), "spec": {"pytorchReplicaSpecs": specs}}
    kind, index = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
    pods = [
        with_labels(owned_pod("m", job), {kind: "master", index: "0"}),
        *(with_labels(owned_pod(f"w{i}", job), {kind: "worker", index: str(i)}) for i in range(2)),
    ]
    cluster = cluster_of(pytorchjobs=[job], pods=pods)

    assert await assigned(cluster, 3) == {
        "m": ("pg-x-uid-x", "master"),
        "w0": ("pg-x-uid-x", "worker-0"),
        "w1": ("pg-x-uid-x", "worker-1"),
    }
    assert len(cluster.writes_of("podgroups")) == 1


async def test_the_pods_of_a_leader_worker_set() -> None:
    """The leader's StatefulSet belongs to the set, and that of the workers to their leader."""
    lws = {
        **owned("leaderworkerset.x-k8s.io.LeaderWorkerSet", "x"),
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
    }
    group, worker = (f"leaderworkerset.sigs.k8s.io/{it}-index" for it in ("group", "worker"))
    leaders = owned("apps.StatefulSet", "x", lws, uid="uid-leaders")
    leader = with_labels(owned_pod("x-1", leaders), {group: "1", worker: "0"})
    workers = owned("apps.StatefulSet", "x-1", leader, uid="uid-workers")
    pods = [leader, with_labels(owned_pod("x-1-1", workers), {group: "1", worker: "1"})]
    cluster = cluster_of(leaderworkersets=[lws], statefulsets=[leaders, workers], pods=pods)

    assert await assigned(cluster, 2) == {
        "x-1": ("pg-x-uid-x-group-1", "leader"),
        "x-1-1": ("pg-x-uid-x-group-1", "workers"),
    }


async def test_the_pods_of_a_ray_job_and_the_one_that_submits_it() -> None:
    """Its cluster and the Job that submits it belong to it."""
    spec = {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}}
    job = {
        **owned("ray.io.RayJob", "x"),
        "spec": {**spec, "submitterPodTemplate": TEMPLATE},
    }
    cluster_object = {**owned("ray.io.RayCluster", "x-abc", job), "spec": spec["rayClusterSpec"]}
    submitter = owned("batch.Job", "x", job, uid="uid-submitter")
    head = with_labels(
        owned_pod("head", cluster_object),
        {"ray.io/group": "headgroup", "ray.io/cluster": "x-abc", "ray.io/node-type": "head"},
    )
    submit = owned_pod("submit", submitter, finalizers=["batch.kubernetes.io/job-tracking"])
    counted = {"batch.kubernetes.io/controller-uid": "uid-submitter"}
    pods = [head, with_labels(submit, counted)]
    cluster = cluster_of(rayjobs=[job], rayclusters=[cluster_object], jobs=[submitter], pods=pods)

    assert await assigned(cluster, 2) == {
        "head": ("pg-x-uid-x", "headgroup"),
        "submit": ("pg-x-uid-x-submitter", ""),
    }


async def test_the_label_of_the_namespace_names_the_queue() -> None:
    """Only where nothing on the job does; nothing is written on the job itself."""
    specs = {"Worker": {"replicas": 1, "template": TEMPLATE}}
    plain = {**owned("kubeflow.org.PyTorchJob", "x"), "spec": {"pytorchReplicaSpecs": specs}}
    own = {**owned("kubeflow.org.PyTorchJob", "y"), "spec": {"pytorchReplicaSpecs": specs}}
    space = {"metadata": {"name": "default", "labels": {"kai.scheduler/queue": "team-n"}}}
    jobs = [plain, with_labels(own, {"project": "team-b"})]
    cluster = cluster_of(pytorchjobs=jobs, namespaces=[space])
    async with grouping(cluster):
        await cluster.until("podgroups", 2)
        await cluster.until_seen()

    written = [body for _, body in cluster.writes_of("podgroups")]
    queues = {it["metadata"]["name"]: it["spec"]["queue"] for it in written}
    assert queues == {"pg-x-uid-x": "team-n", "pg-y-uid-y": "team-b"}
    assert cluster.writes_of("pytorchjobs") == []
