"""Pods that share a GPU as a KAI v0.17 leaves them, and what becomes of them under our scheduler.

Names, labels and annotations are KAI's: its reservation pod has a name that nothing can be derived
from, and its pods have no annotation that says their device. No product code.
"""

from typing import Final
from uuid import uuid4

from e2e.cluster.cluster import Cluster
from e2e.cluster.gpu_devices import GPU_GROUP, RESERVATIONS, is_reservation
from e2e.cluster.nodes import GPU, NodeShape
from e2e.cluster.resources import CONFIG_MAPS, NODES, PODS, Obj, namespace
from e2e.cluster.timeline import Key, State
from e2e.conftest import make_namespace
from e2e.fixtures.gpu_agents import install_runtime_class
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP, QUEUE, pods_in
from e2e.install.kai_standin import KaiStandIn, kai_queue

_NAMESPACE: Final = "serving"
_QUEUE: Final = "team-serving"
_NODE: Final = "kai-0"
_DEVICES: Final = "trainer-kai.dev/gpu-devices"


class KaiShares:
    """Two pods of KAI with 0.5 and 0.3 of the GPU of a node of their own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._group = str(uuid4())

    async def bind(self, kai: KaiStandIn) -> None:
        """Create and bind them as KAI does; its reservation pod gets the GPU."""
        await self._cluster.add_nodes(1, NodeShape(gpus=1), prefix="kai")
        await install_runtime_class(self._cluster)
        await kai.create_queues(kai_queue(_QUEUE, 1))
        await make_namespace(self._cluster, _NAMESPACE)
        api = self._cluster.api
        await api.create(namespace(RESERVATIONS))
        account = {"namespace": RESERVATIONS, "name": RESERVATIONS}
        await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        await api.create(_reservation_pod(self._group))
        for name, fraction in (("large", "0.5"), ("small", "0.3")):
            pod = await api.create(_pod(name, fraction, self._group))
            group = _podgroup(pod)
            path = PODGROUPS.path(_NAMESPACE)
            await api.request("POST", path, group, query={"fieldManager": "podgrouper"})
            annotations = {PODGROUP: group["metadata"]["name"]}
            await api.merge(PODS, _NAMESPACE, name, {"metadata": {"annotations": annotations}})
            await api.bind(_NAMESPACE, name, _NODE)

    async def check_under_ours(self) -> None:
        """Place pods of ours on the same GPU; KAI's reservation pod goes with its last user."""
        api = self._cluster.api
        async with self._cluster.timeline(PODS, CONFIG_MAPS, NODES) as seen:
            before = {it["metadata"]["uid"] for it in pods_in(seen.state) if is_reservation(it)}
            await api.create(_pod("fits", "0.2"))
            await seen.until(lambda state: _is_running(state, "fits"), "what is left is given")
            fits = seen.state[Key(PODS, _NAMESPACE, "fits")]["metadata"]
            assert fits["labels"][GPU_GROUP] == self._group
            assert fits["annotations"][_DEVICES] == f"GPU-{_NODE}-0"
            await api.create(_pod("waits", "0.2"))
            await seen.until(
                lambda state: _says(state, "waits", "0.2 of a GPU"), "another one waits"
            )
            await api.delete(PODS, _NAMESPACE, "small")
            await seen.until(lambda state: _is_running(state, "waits"), "it gets what KAI's had")
            now = {it["metadata"]["uid"] for it in pods_in(seen.state) if is_reservation(it)}
            assert now == before
            await api.kill_pods(_NAMESPACE)
            await seen.until(
                lambda state: not any(map(is_reservation, pods_in(state))),
                "the reservation pod of KAI is deleted",
            )


def _says(state: State, name: str, words: str) -> bool:
    pod = state.get(Key(PODS, _NAMESPACE, name), {})
    conditions = pod.get("status", {}).get("conditions", ())
    return any(words in it.get("message", "") for it in conditions)


def _is_running(state: State, name: str) -> bool:
    pod = state.get(Key(PODS, _NAMESPACE, name), {})
    return bool(pod.get("status", {}).get("phase") == "Running")


def _pod(name: str, fraction: str, group: str = "") -> Obj:
    """Return a pod with a share; with a group it is as KAI's admission and binder leave it."""
    labels, annotations = {QUEUE: _QUEUE}, {"gpu-fraction": fraction}
    container: Obj = {"name": "server", "image": "none"}
    selector = {"kubernetes.io/hostname": _NODE}
    spec: Obj = {"schedulerName": "kai-scheduler", "containers": [container]}
    spec["nodeSelector"] = selector
    if group:
        prefix = f"{name}-a1b2c3d-shared-gpu"
        labels[GPU_GROUP] = group
        annotations["runai/shared-gpu-configmap"] = prefix
        annotations["received-resource-type"] = "Fraction"
        reference = {"name": f"{prefix}-0", "key": "NVIDIA_VISIBLE_DEVICES"}
        source = {"configMapKeyRef": reference}
        container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source}]
        spec["runtimeClassName"] = "nvidia"
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "namespace": _NAMESPACE,
            "name": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


def _podgroup(pod: Obj) -> Obj:
    """Return the PodGroup that KAI's podgrouper creates for a pod without an owner."""
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {
            "namespace": _NAMESPACE,
            "name": f"pg-{meta['name']}-{meta['uid']}",
            "labels": {QUEUE: _QUEUE},
            "ownerReferences": [owner],
        },
        "spec": {"minMember": 1, "priorityClassName": "train", "queue": _QUEUE},
    }


def _reservation_pod(group: str) -> Obj:
    container = {
        "name": "resource-reservation",
        "image": "none",
        "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}},
    }
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "namespace": RESERVATIONS,
            "name": f"gpu-reservation-{_NODE}-x7k2p",
            "labels": {"app": RESERVATIONS, GPU_GROUP: group},
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
        },
        "spec": {
            "nodeName": _NODE,
            "serviceAccountName": RESERVATIONS,
            "runtimeClassName": "nvidia",
            "containers": [container],
        },
    }
