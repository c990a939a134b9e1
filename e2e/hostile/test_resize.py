"""Pods on nodes that are resized in place: a right that `edit` does not have."""

from collections.abc import Callable
from typing import Final

from e2e.cluster.resources import PODS, Obj
from e2e.cluster.timeline import State
from e2e.fixtures.install import QUEUES
from e2e.fixtures.trainjobs import bare_pod, has_node
from e2e.hostile.conftest import TENANT, HostileTenant

_NODE: Final = "node-0"  # of 96 CPUs
_STRATEGIC: Final = "application/strategic-merge-patch+json"


async def test_a_pod_that_shrinks_keeps_what_its_kubelet_has_not_taken(
    hostile_tenant: HostileTenant,
) -> None:
    """Another pod is bound when the container has less, and no sooner."""
    await _run(hostile_tenant, _sized(TENANT, "shrunk", 90))
    await _report(hostile_tenant, "shrunk", "90", "90")
    await _resize(hostile_tenant, "shrunk", 1)
    await _report(hostile_tenant, "shrunk", "1", "90")
    await hostile_tenant.installation.cluster.api.create(_sized("red", "after", 50))

    await hostile_tenant.timeline.until(_waits("after"), "pod after has PodScheduled=False")
    assert not has_node("after")(hostile_tenant.timeline.state)
    await _report(hostile_tenant, "shrunk", "1", "1")
    await hostile_tenant.timeline.until(has_node("after"), "pod after is bound")


async def test_a_non_preemptible_pod_that_grew_is_reclaimed(hostile_tenant: HostileTenant) -> None:
    """It has more than the quota of its queue; one that did not grow stays."""
    api = hostile_tenant.installation.cluster.api
    before = await api.get(QUEUES, None, TENANT)
    await _set_cpu_quota(hostile_tenant, 4000)
    try:
        for name in ("grown", "beside"):
            pod = _sized(TENANT, name, 2)
            pod["metadata"]["labels"]["kai.scheduler/preemptibility"] = "non-preemptible"
            await _run(hostile_tenant, pod)
        await _report(hostile_tenant, "grown", "2", "2")
        await _resize(hostile_tenant, "grown", 90)
        await api.create(_sized("red", "owner", 80))

        await hostile_tenant.timeline.until(has_node("owner"), "pod owner is bound", 60)
        assert has_node("beside")(hostile_tenant.timeline.state)
        assert not has_node("grown")(hostile_tenant.timeline.state)
    finally:
        await _set_cpu_quota(hostile_tenant, before["spec"]["resources"]["cpu"]["quota"])


def _waits(name: str) -> Callable[[State], bool]:
    """Return a test whether a pod has the condition PodScheduled=False."""

    def holds(state: State) -> bool:
        pods = [it for key, it in state.items() if key.resource == PODS and key.name == name]
        return any(
            (condition["type"], condition["status"]) == ("PodScheduled", "False")
            for pod in pods
            for condition in pod["status"].get("conditions", ())
        )

    return holds


def _sized(namespace: str, name: str, cpus: int) -> Obj:
    """Return a pod for the node with so many CPUs."""
    pod = bare_pod(namespace, name, namespace, 0)
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": _NODE}
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cpus)}}
    return pod


async def _run(tenant: HostileTenant, pod: Obj) -> None:
    name = pod["metadata"]["name"]
    await tenant.api.request("POST", PODS.path(TENANT), pod)
    await tenant.timeline.until(
        lambda state: any(
            key.name == name and it["status"].get("containerStatuses")
            for key, it in state.items()
            if key.resource == PODS
        ),
        f"{name} runs",
    )


async def _resize(tenant: HostileTenant, name: str, cpus: int) -> None:
    """Resize the container, as a user with that right."""
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpus)}}}
    path = PODS.path(TENANT, name, "resize")
    patch = {"spec": {"containers": [container]}}
    api = tenant.installation.cluster.api
    await api.request("PATCH", path, patch, content_type=_STRATEGIC)


async def _report(tenant: HostileTenant, name: str, allocated: str, actual: str) -> None:
    """Report what the container has, as its kubelet."""
    api = tenant.installation.cluster.api
    (status,) = (await api.get(PODS, TENANT, name))["status"]["containerStatuses"]
    status["allocatedResources"] = {"cpu": allocated}
    status["resources"] = {"requests": {"cpu": actual}}
    await api.merge(PODS, TENANT, name, {"status": {"containerStatuses": [status]}}, "status")


async def _set_cpu_quota(tenant: HostileTenant, quota: float) -> None:
    patch = {"spec": {"resources": {"cpu": {"quota": quota}}}}
    await tenant.installation.cluster.api.merge(QUEUES, None, TENANT, patch)
