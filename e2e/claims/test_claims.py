"""TrainJobs and pods with claims on the chain: gangs, waiting, victims, slices that change."""

import asyncio

from e2e.claims.devices import (
    DRIVER,
    WATCHED,
    check_ledger,
    device,
    leaked,
    one_gpu,
    resource_slice,
    template,
)
from e2e.claims.workloads import (
    allocated,
    check_placed,
    delete_pods,
    make_runtime,
    placed,
    pod,
    podgroup,
    trainjob,
)
from e2e.cluster.patience import patience
from e2e.cluster.resources import PODS, RESOURCE_SLICES, TRAINJOBS, Obj
from e2e.fixtures.install import apply
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import pods_in


async def test_a_trainjob_by_template(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """Four pods get four devices; a second TrainJob waits until the first one is gone."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    installed = await make_runtime(claims_installation, claims_namespace)
    async with cluster.timeline(*WATCHED, TRAINJOBS, namespace=claims_namespace) as seen:
        for name in ("first", "second"):
            await api.create(trainjob(installed, claims_namespace, name, "default-queue", 4))
            await seen.until(lambda state: len(placed(state)) == 4, "the first one runs", 60)
        await seen.until(lambda state: len(pods_in(state)) == 8, "the second one has pods", 60)
        await seen.until(
            lambda state: any(_waits_for_devices(it) for it in pods_in(state)),
            "the second one was planned, and waits",
            60,
        )
        check_placed(seen)
        first = placed(seen.state)
        await api.delete(TRAINJOBS, claims_namespace, "first")
        await seen.until(
            lambda state: len(placed(state) - first) == 4 and allocated(state) == 4,
            "the second one has the devices",
            60,
        )
        check_placed(seen)
        await api.delete(TRAINJOBS, claims_namespace, "second")
        await seen.until(lambda state: not allocated(state), "all devices are free", 60)
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
            await apply(cluster, podgroup(claims_namespace, name, 1, priorityClassName="train"))
            await api.create(pod(claims_namespace, name, name))
        await seen.until(lambda state: len(placed(state)) == 4, "all devices are taken")
        await apply(
            cluster, podgroup(claims_namespace, "high", 1, priorityClassName="build-preemptible")
        )
        await api.create(pod(claims_namespace, "high", "high"))
        await seen.until(lambda state: "high" in placed(state), "the preemptor runs", 60)
        check_placed(seen)
        await delete_pods(claims_installation, claims_namespace)
        await seen.until(lambda state: not allocated(state), "all devices are free", 60)
    check_ledger(seen)


async def test_slices_change_under_an_allocation(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """Pods keep their nodes; a new pod gets a device of the new slice, and none twice."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu()))
    async with cluster.timeline(*WATCHED, namespace=claims_namespace) as seen:
        await api.create(pod(claims_namespace, "old"))
        await seen.until(lambda state: placed(state) == {"old"}, "a pod runs")
        node = next(it["spec"]["nodeName"] for it in seen.objects(PODS))
        other = "node-1" if node == "node-0" else "node-0"
        for name in (node, other):
            await api.delete(RESOURCE_SLICES, None, f"{name}-gpus")
        await api.create(pod(claims_namespace, "new"))
        await asyncio.sleep(1)
        assert placed(seen.state) == {"old"}
        devices = [device(f"gpu-{n}") for n in range(2)]
        await api.create(resource_slice(node, devices, 2))
        await seen.until(lambda state: "new" in placed(state), "the new pod runs")
        await api.create(resource_slice(other, devices, 2))
        check_placed(seen)
        await delete_pods(claims_installation, claims_namespace)
        await seen.until(lambda state: not allocated(state), "all devices are free", 60)
    check_ledger(seen)


async def test_why_a_pod_waits(claims_installation: Installation, claims_namespace: str) -> None:
    api = claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu(count=3)))
    await api.create(pod(claims_namespace, "large"))
    async with patience(30):
        while True:
            found_pod = await api.get(PODS, claims_namespace, "large")
            found = _waits_for_devices(found_pod)
            if found:
                break
            await asyncio.sleep(0.2)
    assert "2 nodes have too few devices for the ResourceClaims of the pod" in found[0]
    await delete_pods(claims_installation, claims_namespace)


def _waits_for_devices(pod: Obj) -> list[str]:
    """Return the messages of a pod that say so."""
    return [
        it["message"]
        for it in pod["status"].get("conditions", ())
        if it["type"] == "PodScheduled" and DRIVER in it.get("message", "")
    ]
