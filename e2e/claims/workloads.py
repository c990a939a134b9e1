"""Pods and TrainJobs with claims, which devices they have, and the scheduler of their chain."""

from typing import Any, Final

from e2e.claims.devices import claimed_devices, one_gpu, template, users_of
from e2e.cluster.resources import (
    CLUSTER_RUNTIMES,
    LEASES,
    PODS,
    RESOURCE_CLAIMS,
    RUNTIMES,
    Obj,
)
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import PODGROUP, QUEUE, finishing_pods, pods_in
from e2e.fixtures.processes import NAMESPACE

_LEASE: Final = "trainer-kai-scheduler"
CLAIM_USES: Final = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


def pod(namespace: str, name: str, group: str = "", **spec: Any) -> Obj:
    metadata: Obj = {"namespace": namespace, "name": name, "labels": {QUEUE: "default-queue"}}
    if group:
        metadata["annotations"] = {PODGROUP: group}
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": metadata,
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [container],
            "resourceClaims": CLAIM_USES,
            **spec,
        },
    }


def podgroup(namespace: str, name: str, members: int, **spec: Any) -> Obj:
    return {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"minMember": members, "queue": "default-queue", **spec},
    }


def placed(state: State) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods_in(state) if "nodeName" in pod["spec"]}


def allocated(state: State) -> int:
    claims = [obj for key, obj in state.items() if key.resource == RESOURCE_CLAIMS]
    return sum(len(claimed_devices(it)) for it in claims)


def check_placed(seen: Timeline) -> None:
    """Check that each pod on a node uses a claim whose devices are there."""
    by_user = {user: it for it in seen.objects(RESOURCE_CLAIMS) for user in users_of(it)}
    for pod in seen.objects(PODS):
        node = pod["spec"].get("nodeName")
        if node:
            devices = claimed_devices(by_user[pod["metadata"]["name"]])
            assert devices
            assert {pool for _, pool, _ in devices} == {node}


def trainjob(installed: Obj, namespace: str, name: str, queue: str, nodes: int) -> Obj:
    """Return a TrainJob of the runtime that `make_runtime` makes."""
    labels, patches = {QUEUE: queue}, finishing_pods(installed, "600s")
    kind, runtime = RUNTIMES.kind, "torch-claims"
    return Submission(
        name, runtime, namespace, nodes, None, patches, kind, labels=labels
    ).trainjob()


async def delete_pods(installation: Installation, namespace: str) -> None:
    await installation.cluster.api.request("DELETE", PODS.path(namespace))
    await installation.cluster.api.until_no_pods(namespace)


async def make_runtime(installation: Installation, namespace: str) -> Obj:
    """Make a TrainingRuntime whose pods have a claim each; return what it is made from."""
    api = installation.cluster.api
    await api.create(template(namespace, "one-gpu", one_gpu()))
    installed = await api.get(CLUSTER_RUNTIMES, None, "torch-distributed")
    (job,) = installed["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["resourceClaims"] = CLAIM_USES
    own: Obj = {
        "apiVersion": RUNTIMES.api_version,
        "kind": RUNTIMES.kind,
        "metadata": {"namespace": namespace, "name": "torch-claims"},
        "spec": installed["spec"],
    }
    await api.create(own)
    return installed


async def start_scheduler(installation: Installation) -> None:
    """Start it after a kill: it need not wait until the Lease of the dead one expires."""
    await installation.scheduler.process.kill()  # until the process is really gone
    released = {"spec": {"holderIdentity": ""}}
    await installation.cluster.api.merge(LEASES, NAMESPACE, _LEASE, released)
    await installation.scheduler.start()
