"""Which idle GPUs of the cluster suit no pod that waits, in the notes of `why`."""

from typing import Any

import pytest

from tests.trainer_kai.cli.commands.why.trainjob_cluster import TrainJobCluster
from trainer_kai.api.resources import NODES, PODS, QUEUES, Resource
from trainer_kai.cli.commands.why.idle_gpus import MAX_NODES

NOTES = [
    "3 of 4 idle GPUs suit no pod that waits: 3 for want of CPU",
    "they are on node-a (3 for want of CPU)",
]


def waiting_for_room(reason: str = "NoCapacity") -> TrainJobCluster:
    """Return a cluster with pods of 1 GPU and 8 CPUs, and room for one that waits."""
    cluster = TrainJobCluster()
    container = {"resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "8"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "job-node-0", "uid": "uid-node"}
    meta = {"ownerReferences": [{**job, "controller": True}]}
    cluster.pods("node", 4, spec={"containers": [container]}, meta=meta)
    running = {"containers": [container], "nodeName": "node-a"}
    cluster.pods("node", 1, spec=running, status={"phase": "Running"}, meta=meta)
    cluster.condition(("PodSchedulingErrors", "no nodes"), (reason, "0 of 4 pods have room."))
    free = {"quota": -1, "limit": -1}
    resources = {"cpu": free, "memory": free, "gpu": free}
    cluster.store.put(QUEUES, {"metadata": {"name": "team-a"}, "spec": {"resources": resources}})
    add_node(cluster, "node-a", gpus="4", cpu="12")
    add_node(cluster, "node-b", gpus="1", cpu="12")
    return cluster


def add_node(cluster: TrainJobCluster, name: str, gpus: str, cpu: str) -> None:
    has = {"nvidia.com/gpu": gpus, "cpu": cpu, "memory": "64Gi", "pods": "110"}
    cluster.store.put(NODES, {"metadata": {"name": name}, "status": {"allocatable": has}})


async def notes(cluster: TrainJobCluster) -> list[str]:
    report = await cluster.why()
    return [it for it in report.notes if "GPUs suit" in it or it.startswith("they are on")]


@pytest.mark.parametrize("reason", ["NoCapacity", "Fragmented"])
async def test_they_are_told_where_capacity_is_the_reason(reason: str) -> None:
    assert await notes(waiting_for_room(reason)) == NOTES


async def test_nothing_is_told_for_a_bound_of_the_queue() -> None:
    cluster = waiting_for_room("ExceedsLimit")
    assert await notes(cluster) == []
    assert not any(it.path.endswith("/nodes") for it in cluster.store.requests)


@pytest.mark.parametrize("resource", [NODES, PODS], ids=["nodes", "pods"])
async def test_users_without_the_rights_are_told_nothing(resource: Resource[Any]) -> None:
    cluster = waiting_for_room()
    cluster.store.forbidden.add(resource.plural)
    assert await notes(cluster) == []


async def test_the_pods_of_a_large_cluster_are_not_read() -> None:
    cluster = waiting_for_room()
    for i in range(MAX_NODES):
        add_node(cluster, f"node-{i}", gpus="1", cpu="1")
    assert await notes(cluster) == []
    assert not any(it.path == "/api/v1/pods" for it in cluster.store.requests)
