"""Every runtime that Trainer ships, placed by the scheduling core on the real chain.

The groups are the podgrouper's and the pods JobSet's; the core is given what the API server has,
and what it decides is done. Nothing is bound before all of a unit has its place.
"""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CLUSTER_RUNTIMES, PODS, STORAGE_CLASSES, TRAINJOBS
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission
from e2e.front.decider import WATCHED, Decider
from e2e.front.ours import QUEUE, Front, finishing, is_complete, pods_in

_NODES = 4
_RUNTIMES = (
    "torch-distributed",
    "jax-distributed",
    "xgboost-distributed",
    "deepspeed-distributed",
    "mlx-distributed",
    "torch-distributed-with-cache",
    "torchtune-llama3.2-1b",
    "torchtune-qwen2.5-1.5b",
)
# What the claims of the torchtune runtimes are made by; on this chain nobody makes volumes.
_DISKS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "disks",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "example.org/disks",
    "volumeBindingMode": "WaitForFirstConsumer",
}


@pytest_asyncio.fixture(loop_scope="session")
async def disks(front: Front) -> AsyncIterator[None]:
    """Have a class of volumes that are made where their pod is."""
    await front.cluster.api.create(_DISKS)
    yield
    await front.cluster.api.delete(STORAGE_CLASSES, None, "disks")


async def submit(cluster: Cluster, runtime: str, namespace: str) -> None:
    """Create a TrainJob of four nodes whose pods finish by themselves."""
    installed = await cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    labels = {QUEUE: "default-queue"}
    job = Submission("job", runtime, namespace, _NODES, 1, finishing(installed), labels=labels)
    await cluster.api.create(job.trainjob())


@pytest.mark.usefixtures("disks")
@pytest.mark.parametrize("runtime", _RUNTIMES)
async def test_the_core_carries_a_shipped_runtime_to_complete(
    runtime: str, front: Front, room: str
) -> None:
    """It goes through all its stages, each pod to a node that the core chose."""
    decider = Decider(front.cluster)
    async with front.cluster.timeline(TRAINJOBS, *WATCHED, namespace=room) as seen:
        await submit(front.cluster, runtime, room)
        await decider.carry(seen, is_complete)

    left = {
        pod["metadata"]["name"] for pod in seen.of(PODS)
    }  # those of nodes go with their launcher
    assert left <= {pod.name for pod in decider.bound}
    # A group may be there later than its first pods, and till then they name none that exists.
    assert decider.refused <= {"PodsMissing", "WaitingForStage", "Misconfigured"}


async def test_a_launcher_comes_to_its_slot(front: Front, room: str) -> None:
    """The place of the launcher is held before any node is bound, and it is where it goes."""
    decider = Decider(front.cluster)
    async with front.cluster.timeline(TRAINJOBS, *WATCHED, namespace=room) as seen:
        await submit(front.cluster, "deepspeed-distributed", room)
        await decider.carry(seen, _all_bound)

    written, given_up = decider.reserved
    held = json.loads(written)["launcher-replica-0"]
    launcher = next(node for pod, node in decider.bound.items() if "launcher" in pod.name)
    assert given_up == ""
    assert held == {"nodes": {launcher: 1}, "cause": "anticipated"}
    assert [pod.name.split("-")[1] for pod in decider.bound] == ["node"] * 3 + ["launcher"]


def _all_bound(state: State) -> bool:
    return sum("nodeName" in pod["spec"] for pod in pods_in(state)) == _NODES
