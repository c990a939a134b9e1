"""JobSets of TrainJobs that are tried dry: what our webhook knows shows in them."""

import asyncio
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import JOBSETS, TRAINJOBS, Obj
from e2e.cluster.trainjobs import Submission
from e2e.front.ours import QUEUE

__all__ = ["jobset_of", "make_unmanaged_trainjob", "until_queue_known"]

_OTHER_MANAGER: Final = "kueue.x-k8s.io/multikueue"  # Trainer makes nothing of a TrainJob run there
_SOON_S: Final = 30.0


async def make_unmanaged_trainjob(cluster: Cluster, job: Submission) -> Obj:
    """Make a TrainJob that nobody makes anything of; our webhook knows it like any other."""
    made = job.trainjob()
    made["spec"]["managedBy"] = _OTHER_MANAGER
    return await cluster.api.create(made)


def jobset_of(owner: Obj, name: str = "dry") -> Obj:
    """Return a JobSet of a TrainJob that is there."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    pods = {"containers": [{"name": "node", "image": "none"}], "restartPolicy": "Never"}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pods}}}}
    metadata = {"namespace": meta["namespace"], "name": name, "ownerReferences": [reference]}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": metadata,
        "spec": {"replicatedJobs": [job]},
    }


async def until_queue_known(cluster: Cluster, job: Submission, queue: str) -> None:
    """Wait until the webhook knows what names the queue of a TrainJob: it follows such things."""
    tried = jobset_of(await make_unmanaged_trainjob(cluster, job))
    async with asyncio.timeout(_SOON_S):
        while True:
            shown = await cluster.api.create(tried, dryRun="All")
            if shown["metadata"]["labels"][QUEUE] == queue:
                return
            await asyncio.sleep(0.1)
