"""Pods of no TrainJob: their claims get volumes, and a gang of them is evicted whole."""

import asyncio
import json
from typing import Any

from e2e.cluster.kwok_stages import SELECTED_NODE, WAITING_CLASS
from e2e.cluster.patience import patience
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
    (left,) = seen.objects(PODGROUPS)
    evicted = json.loads(left["metadata"]["annotations"]["trainer-kai.dev/last-eviction"])
    assert (evicted["action"], evicted["rule"]) == ("stalegangeviction", "40f")
    assert (evicted["queue"], evicted["for"]) == ("default-queue", "")


async def test_waiting_pods_show_why(installation: Installation, own_namespace: str) -> None:
    """`kubectl describe pod` shows an Event, of pods with a PodGroup and of pods without one."""
    group = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": own_namespace, "name": "gang"},
        "spec": {"minMember": 9, "queue": "default-queue"},
    }
    nowhere: Obj = {"nodeSelector": {"kubernetes.io/hostname": "no-node"}}
    api = installation.cluster.api
    await apply(installation.cluster, group)
    for number in range(9):
        await api.create(_pod(own_namespace, f"gang-{number}", "gang", **nowhere))
    await api.create(_pod(own_namespace, "alone", **nowhere))
    shared = _pod(own_namespace, "shared", **nowhere)
    shared["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    del shared["spec"]["containers"][0]["resources"]
    await api.create(shared)
    claimed = _pod(own_namespace, "claimed")
    claimed["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    await api.create(claimed)

    expected = {"alone", "shared", "claimed", *(f"gang-{number}" for number in range(5))}
    async with patience(30):
        while (events := await _pod_events(installation, own_namespace)).keys() != expected:
            await asyncio.sleep(0.2)
    for event in events.values():
        assert (event["type"], event["source"]["component"]) == ("Warning", "kai-scheduler")
        assert event["count"] >= 1
        assert event["firstTimestamp"] <= event["lastTimestamp"]
    for name in ("alone", "shared", "claimed"):
        pod = await api.get(PODS, own_namespace, name)
        assert _pod_scheduled(pod)["message"] == events[name]["message"]
    for number in range(9):
        pod = await api.get(PODS, own_namespace, f"gang-{number}")
        assert _pod_scheduled(pod)["reason"] == "Unschedulable"


def _pod_scheduled(pod: Obj) -> Obj:
    found: Obj = next(it for it in pod["status"]["conditions"] if it["type"] == "PodScheduled")
    return found


async def _pod_events(installation: Installation, namespace: str) -> dict[str, Obj]:
    """Return the Events FailedScheduling, by the names of their pods."""
    path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=reason=FailedScheduling"
    answer = await installation.cluster.api.request("GET", path)
    return {it["involvedObject"]["name"]: it for it in answer["items"]}


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
