"""Pods of no TrainJob: their claims get volumes, and a gang of them is evicted whole."""

from typing import Any

from e2e.cluster.kwok_stages import SELECTED_NODE, WAITING_CLASS
from e2e.cluster.resources import PODS, PVCS, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import condition
from e2e.fixtures.install import PODGROUPS, apply
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import PODGROUP, QUEUE, pods_in


async def test_a_claim_that_waits_for_its_first_pod(
    installation: Installation, own_namespace: str
) -> None:
    """It is told the node, and the pod follows its volume there."""
    claim = {
        "apiVersion": PVCS.api_version,
        "kind": PVCS.kind,
        "metadata": {"namespace": own_namespace, "name": "data"},
        "spec": {
            "storageClassName": WAITING_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    async with installation.cluster.timeline(PODS, PVCS, namespace=own_namespace) as seen:
        await installation.cluster.api.create(claim)
        await installation.cluster.api.create(_pod(own_namespace, "reader", volumes=[volume]))
        await seen.until(lambda state: _placed(state) == {"reader"}, "the pod has a node")

    [pod], [bound] = seen.objects(PODS), seen.objects(PVCS)
    assert bound["status"]["phase"] == "Bound"
    assert bound["metadata"]["annotations"][SELECTED_NODE] == pod["spec"]["nodeName"]


async def test_a_gang_that_cannot_be_repaired_leaves_whole(
    installation: Installation, own_namespace: str
) -> None:
    """Whoever replaces a lost pod finds no node: those who are left are deleted, and told why."""
    group = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": own_namespace, "name": "gang"},
        "spec": {"minMember": 2, "queue": "default-queue", "stalenessGracePeriod": "2s"},
    }
    api = installation.cluster.api
    async with installation.cluster.timeline(PODS, PODGROUPS, namespace=own_namespace) as seen:
        await apply(installation.cluster, group)
        for name in ("stays", "goes"):
            await api.create(_pod(own_namespace, name, "gang"))
        await seen.until(lambda state: _placed(state) == {"stays", "goes"}, "the gang runs")
        await api.delete(PODS, own_namespace, "goes")
        nowhere = {"kubernetes.io/hostname": "no-node"}
        await api.create(_pod(own_namespace, "comes", "gang", nodeSelector=nowhere))
        await seen.until(lambda state: _names(state) == {"comes"}, "who is left is gone")

    last = [it.obj for it in seen.history() if it.key.name == "stays" and it.type != "DELETED"][-1]
    assert condition(last, "DisruptionTarget")


def _pod(namespace: str, name: str, group: str = "", **spec: Any) -> Obj:
    metadata: Obj = {"namespace": namespace, "name": name, "labels": {QUEUE: "default-queue"}}
    if group:
        metadata["annotations"] = {PODGROUP: group}
    container = {
        "name": "c",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": metadata,
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **spec},
    }


def _names(state: State) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods_in(state)}


def _placed(state: State) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods_in(state) if "nodeName" in pod["spec"]}
