"""What a tenant writes on a TrainJob that runs, and on its JobSet, to give nothing back."""

import asyncio
from typing import Final

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.patience import patience, slowdown
from e2e.cluster.resources import JOBSETS, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.trainjobs import Job, events_of, has_failed, on_nodes, submit
from e2e.hostile.conftest import TENANT, VICTIMS, HostileTenant

_OTHER_MANAGER: Final = "kueue.x-k8s.io/multikueue"
_KUEUE: Final = "kueue.x-k8s.io/queue-name"
_GANG: Final = "trainer-kai.dev/gang"
_STAYS: Final = r'labels\[trainer-kai.dev/gang\]: must stay "Main" while the pod is on node'
_FOLLOWED_S: Final = 2.0  # on a usual machine, until every process has seen a label


async def test_a_relabelled_jobset_gives_back(hostile_tenant: HostileTenant) -> None:
    """Not preemptible, of a class of 100 or more, and of Kueue: it is evicted, and lives."""
    cluster = hostile_tenant.installation.cluster
    await submit(cluster, TENANT, Job("keeper", TENANT, 16))
    await hostile_tenant.timeline.until(on_nodes("keeper", 16), "the tenant borrows all GPUs", 60)
    harder = {"kai.scheduler/preemptibility": "non-preemptible", "priorityClassName": "inference"}
    with pytest.raises(ApiError, match=_STAYS):
        await _hide(hostile_tenant)
    await _relabel(hostile_tenant, JOBSETS, "keeper", harder)
    await _relabel(hostile_tenant, TRAINJOBS, "keeper", {**harder, _KUEUE: "mine"})
    await asyncio.sleep(_FOLLOWED_S * slowdown())

    await hostile_tenant.claim_quota(*VICTIMS)
    await hostile_tenant.check_unharmed(*VICTIMS)
    assert not has_failed("keeper")(hostile_tenant.timeline.state)
    assert not (await hostile_tenant.api.get(TRAINJOBS, TENANT, "keeper"))["spec"].get("suspend")
    events = await events_of(cluster, TENANT, "keeper")
    for name in harder:
        assert f"metadata.labels[{name}]" in events["NotWhileRunning"]


async def test_a_jobset_that_trainer_did_not_build_gives_back(
    hostile_tenant: HostileTenant,
) -> None:
    """Its TrainJob is another controller's, so nothing that is done to that stops the JobSet."""
    given = Submission("apart", "torch-distributed", TENANT, 1, labels={QUEUE: TENANT}).trainjob()
    given["spec"]["managedBy"] = _OTHER_MANAGER
    job = await hostile_tenant.api.request("POST", TRAINJOBS.path(TENANT), given)
    await _until_made(hostile_tenant, _jobset_of(job, 16))
    await hostile_tenant.timeline.until(on_nodes("apart", 16), "the tenant borrows all GPUs", 60)

    await hostile_tenant.claim_quota(*VICTIMS)
    await hostile_tenant.check_unharmed(*VICTIMS)


async def _hide(tenant: HostileTenant) -> None:
    """Take the label from pods by which the podgrouper follows them."""
    for key in [
        it for it in tenant.timeline.state if it.resource == PODS and it.namespace == TENANT
    ]:
        await _relabel(tenant, PODS, key.name, {_GANG: None})


async def _relabel(tenant: HostileTenant, resource: Resource, name: str, labels: Obj) -> None:
    await tenant.api.request(
        "PATCH",
        resource.path(TENANT, name),
        {"metadata": {"labels": labels}},
        content_type="application/merge-patch+json",
    )


async def _until_made(tenant: HostileTenant, jobset: Obj) -> None:
    """Make the JobSet as soon as the webhook knows its TrainJob."""
    async with patience(30):
        while True:
            try:
                await tenant.api.request("POST", JOBSETS.path(TENANT), jobset)
            except ApiError:
                await asyncio.sleep(0.2)
            else:
                return


def _jobset_of(job: Obj, pods: int) -> Obj:
    """Return a JobSet that names a TrainJob as its controller."""
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True}
    owner |= {key: job["metadata"][key] for key in ("name", "uid")}
    container = {"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {"namespace": TENANT, "name": owner["name"], "ownerReferences": [owner]},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": spec}}]},
    }
