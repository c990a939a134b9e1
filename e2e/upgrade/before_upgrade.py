"""What an upgrade finds: TrainJobs that run, wait and make room, on two nodes of eight GPUs.

    plain   runs, with four GPUs                         queue owner, which owns all sixteen
    staged  its workers start, a place is kept for       queue owner
            the launcher that comes when they are ready
    lent    had eight GPUs, is suspended to make room    queue borrower, which owns none
    waits   finds no room                                queue borrower
    claim   is to have what lent gives back              queue owner

It needs a webhook, a podgrouper and a scheduler, of whatever version.
"""

import json
from contextlib import AsyncExitStack
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import READY_SECONDS, RUN_SECONDS
from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission, pod_annotations
from e2e.conftest import make_namespace
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import QUEUE, groups_in
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    is_gone,
    is_suspended,
    kubelets_paused,
    make_queue,
    on_nodes,
    submit,
)

TRAINJOB_NAMESPACE: Final = "room"
QUEUES_GPUS: Final = {"owner": 16, "borrower": 0}
_LASTS: Final = {"node": {READY_SECONDS: "600s"}, "launcher": {RUN_SECONDS: "600s"}}


async def furnish(cluster: Cluster) -> None:
    """Make the nodes and the namespace; everything else is of the scene."""
    await cluster.add_nodes(2, NodeShape(gpus=8))
    await make_namespace(cluster, TRAINJOB_NAMESPACE)


async def play(cluster: Cluster, scheduler: AsyncExitStack) -> None:
    """Bring the scene about; the scheduler is ended as soon as it has suspended a TrainJob."""
    for name, gpus in QUEUES_GPUS.items():
        await make_queue(cluster, name, gpus, TRAINJOB_NAMESPACE)
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=TRAINJOB_NAMESPACE) as seen:
        await submit(cluster, TRAINJOB_NAMESPACE, Job("plain", "owner", 2, gpus=2))
        await seen.until(on_nodes("plain", 2), "the plain one runs")
        await cluster.api.create(_staged())
        await seen.until(on_nodes("staged", 1), "the workers of the one with stages run")
        await seen.until(_is_reserved, "its launcher has a place")
        await submit(cluster, TRAINJOB_NAMESPACE, Job("lent", "borrower", 2, gpus=4))
        await seen.until(on_nodes("lent", 2), "the borrower runs")
        await submit(cluster, TRAINJOB_NAMESPACE, Job("waits", "borrower", 1, gpus=4))
        await seen.until(_has_message, "the condition of one more says why it waits")
        with kubelets_paused(cluster):  # it is not resumed before its pods are gone
            await submit(cluster, TRAINJOB_NAMESPACE, Job("claim", "owner", 2, gpus=4))
            await seen.until(is_suspended("lent"), "the borrower makes room")
            await scheduler.aclose()
        await seen.until(is_gone("lent"), "its pods are gone")


def reserved_nodes(groups: list[Obj]) -> list[str]:
    """Return the nodes on which places are kept for a later stage."""
    written = [it["metadata"]["annotations"] for it in groups]
    kept = [json.loads(it.get("trainer-kai.dev/reserved", "{}")) for it in written]
    return [node for podsets in kept for podset in podsets.values() for node in podset["nodes"]]


def _staged() -> Obj:
    """Return a TrainJob of a worker and a launcher, which comes when the worker is ready."""
    patches = pod_annotations(_LASTS)
    labels = {QUEUE: "owner"}
    return Submission(
        "staged", "mlx-distributed", TRAINJOB_NAMESPACE, 2, 2, patches, labels=labels
    ).trainjob()


def _has_message(state: State) -> bool:
    groups = [it for it in groups_in(state) if it["metadata"]["name"].startswith("pg-waits-")]
    return any(it.get("status", {}).get("schedulingConditions") for it in groups)


def _is_reserved(state: State) -> bool:
    return bool(reserved_nodes(groups_in(state)))
