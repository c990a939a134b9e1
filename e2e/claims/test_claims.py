"""TrainJobs and pods with claims on the chain: gangs, waiting, victims, kills, slices that go."""

import asyncio
from typing import Any, Final

import pytest

from e2e.claims.devices import (
    DRIVER,
    WATCHED,
    check_ledger,
    claimed_devices,
    device,
    leaked,
    one_gpu,
    resource_slice,
    template,
    users_of,
)
from e2e.cluster.patience import patience
from e2e.cluster.resources import (
    CLUSTER_RUNTIMES,
    LEASES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    RUNTIMES,
    TRAINJOBS,
    Obj,
)
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS, apply
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import PODGROUP, QUEUE, finishing_pods, pods_in
from e2e.fixtures.processes import NAMESPACE

_LEASE: Final = "trainer-kai-scheduler"
_USES: Final = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


def _pod(namespace: str, name: str, group: str = "", **spec: Any) -> Obj:
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
            "resourceClaims": _USES,
            **spec,
        },
    }


def _podgroup(namespace: str, name: str, members: int, **spec: Any) -> Obj:
    return {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"minMember": members, "queue": "default-queue", **spec},
    }


def _placed(state: State) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods_in(state) if "nodeName" in pod["spec"]}


def _allocated(state: State) -> int:
    claims = [obj for key, obj in state.items() if key.resource == RESOURCE_CLAIMS]
    return sum(len(claimed_devices(it)) for it in claims)


def _check_placed(seen: Timeline) -> None:
    """Check that each pod on a node uses a claim whose devices are there."""
    by_user = {user: it for it in seen.objects(RESOURCE_CLAIMS) for user in users_of(it)}
    for pod in seen.objects(PODS):
        node = pod["spec"].get("nodeName")
        if node:
            devices = claimed_devices(by_user[pod["metadata"]["name"]])
            assert devices
            assert {pool for _, pool, _ in devices} == {node}


async def _delete_pods(installation: Installation, namespace: str) -> None:
    await installation.cluster.api.request("DELETE", PODS.path(namespace))
    await installation.cluster.api.until_no_pods(namespace)


async def _make_runtime(installation: Installation, namespace: str) -> Obj:
    """Make a TrainingRuntime whose pods have a claim each; return what it is made from."""
    api = installation.cluster.api
    await api.create(template(namespace, "one-gpu", one_gpu()))
    installed = await api.get(CLUSTER_RUNTIMES, None, "torch-distributed")
    (job,) = installed["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["resourceClaims"] = _USES
    own: Obj = {
        "apiVersion": RUNTIMES.api_version,
        "kind": RUNTIMES.kind,
        "metadata": {"namespace": namespace, "name": "torch-claims"},
        "spec": installed["spec"],
    }
    await api.create(own)
    return installed


async def test_a_trainjob_by_template(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """Four pods get four devices; a second TrainJob waits until the first one is gone."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    installed = await _make_runtime(claims_installation, claims_namespace)
    async with cluster.timeline(*WATCHED, TRAINJOBS, namespace=claims_namespace) as seen:
        for name in ("first", "second"):
            patches = finishing_pods(installed, "600s")
            given = Submission(
                name,
                "torch-claims",
                claims_namespace,
                4,
                None,
                patches,
                RUNTIMES.kind,
                labels={QUEUE: "default-queue"},
            )
            await api.create(given.trainjob())
            await seen.until(lambda state: len(_placed(state)) == 4, "the first one runs", 60)
        await seen.until(lambda state: len(pods_in(state)) == 8, "the second one has pods", 60)
        _check_placed(seen)
        first = _placed(seen.state)
        await api.delete(TRAINJOBS, claims_namespace, "first")
        await seen.until(
            lambda state: len(_placed(state) - first) == 4 and _allocated(state) == 4,
            "the second one has the devices",
            60,
        )
        _check_placed(seen)
        await api.delete(TRAINJOBS, claims_namespace, "second")
        await seen.until(lambda state: not _allocated(state), "all devices are free", 60)
    check_ledger(seen)
    assert not leaked(seen.state)


async def test_a_preemptor_gets_the_device(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """Its victim is deleted, and Kubernetes frees the claim."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu()))
    async with cluster.timeline(*WATCHED, namespace=claims_namespace) as seen:
        for number in range(4):
            name = f"low-{number}"
            await apply(cluster, _podgroup(claims_namespace, name, 1, priorityClassName="train"))
            await api.create(_pod(claims_namespace, name, name))
        await seen.until(lambda state: len(_placed(state)) == 4, "all devices are taken")
        await apply(
            cluster, _podgroup(claims_namespace, "high", 1, priorityClassName="build-preemptible")
        )
        await api.create(_pod(claims_namespace, "high", "high"))
        await seen.until(lambda state: "high" in _placed(state), "the preemptor runs", 60)
        _check_placed(seen)
        await _delete_pods(claims_installation, claims_namespace)
        await seen.until(lambda state: not _allocated(state), "all devices are free", 60)
    check_ledger(seen)


@pytest.mark.timeout(600)
async def test_killed_after_each_write_of_a_bind(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """The next process binds the pods, and nothing is left in the end."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu()))
    for number in range(1, 8):
        async with cluster.timeline(*WATCHED, namespace=claims_namespace) as seen:
            kill = claims_installation.scheduler.process.kill_nowait
            claims_installation.proxy.strike(number, _is_write, kill)
            await apply(cluster, _podgroup(claims_namespace, f"gang-{number}", 2))
            names = {f"pod-{number}-{n}" for n in range(2)}
            for name in names:
                await api.create(_pod(claims_namespace, name, f"gang-{number}"))
            await _until_struck_or_placed(claims_installation, seen, names)
            has_struck = claims_installation.proxy.has_struck
            claims_installation.proxy.withdraw_strike()
            if has_struck:
                await _start_scheduler(claims_installation)
            await seen.until(lambda state, own=names: own <= _placed(state), "the gang runs", 90)  # type: ignore[misc]
            await seen.settle()
            _check_placed(seen)
            await _delete_pods(claims_installation, claims_namespace)
            await seen.until(lambda state: not _allocated(state), "all devices are free", 60)
        check_ledger(seen)
        if not has_struck:
            break
    assert number == 7, "two finalizers, two allocations and two binds"


def _is_write(method: str, path: str, _body: bytes) -> bool:
    if method == "PATCH" and "/resourceclaims/" in path:
        return True
    return method == "POST" and path.endswith("/binding")


async def _start_scheduler(installation: Installation) -> None:
    """Start it after a kill: it need not wait until the Lease of the dead one expires."""
    await installation.scheduler.process.kill()  # until the process is really gone
    released = {"spec": {"holderIdentity": ""}}
    await installation.cluster.api.merge(LEASES, NAMESPACE, _LEASE, released)
    await installation.scheduler.start()


async def _until_struck_or_placed(
    installation: Installation, seen: Timeline, names: set[str]
) -> None:
    async with patience(60):
        while not (installation.proxy.has_struck or names <= _placed(seen.state)):
            await asyncio.sleep(0.1)


async def test_slices_change_under_an_allocation(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """Pods keep their nodes; a new pod gets a device of the new slice, and none twice."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu()))
    async with cluster.timeline(*WATCHED, namespace=claims_namespace) as seen:
        await api.create(_pod(claims_namespace, "old"))
        await seen.until(lambda state: _placed(state) == {"old"}, "a pod runs")
        node = next(it["spec"]["nodeName"] for it in seen.objects(PODS))
        other = "node-1" if node == "node-0" else "node-0"
        for name in (node, other):
            await api.delete(RESOURCE_SLICES, None, f"{name}-gpus")
        await api.create(_pod(claims_namespace, "new"))
        await asyncio.sleep(1)
        assert _placed(seen.state) == {"old"}
        devices = [device(f"gpu-{n}") for n in range(2)]
        await api.create(resource_slice(node, devices, 2))
        await seen.until(lambda state: "new" in _placed(state), "the new pod runs")
        await api.create(resource_slice(other, devices, 2))
        _check_placed(seen)
        await _delete_pods(claims_installation, claims_namespace)
        await seen.until(lambda state: not _allocated(state), "all devices are free", 60)
    check_ledger(seen)


async def test_why_a_pod_waits(claims_installation: Installation, claims_namespace: str) -> None:
    api = claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu(count=3)))
    await api.create(_pod(claims_namespace, "large"))
    async with patience(30):
        while True:
            pod = await api.get(PODS, claims_namespace, "large")
            found = [
                it["message"]
                for it in pod["status"].get("conditions", ())
                if it["type"] == "PodScheduled" and DRIVER in it["message"]
            ]
            if found:
                break
            await asyncio.sleep(0.2)
    assert "2 nodes have too few devices for the ResourceClaims of the pod" in found[0]
    await _delete_pods(claims_installation, claims_namespace)
