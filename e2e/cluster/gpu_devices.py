"""Which pod holds which GPU of a node, as kubelets and device plugins assign them. Pure.

A pod that requests whole GPUs takes the lowest free devices of its node when it is there, and gives
them back when it is finished or gone. Each device is counted in the order of the store, so the
record of refusals says whether a scheduler ever gave a device to two pods.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import NODES, PODS, Obj
from e2e.cluster.timeline import Moment

RESERVATIONS: Final = "kai-resource-reservation"  # namespace, and label `app`, of such pods
RESERVED_DEVICE: Final = "run.ai/reserve_for_gpu_index"
GPU_GROUP: Final = "runai-gpu-group"
AGENT: Final = "e2e.trainer-kai.dev/agent"  # an annotation of nodes
SILENT: Final = "silent"  # its value: reservation pods there run, and are given no annotation
_FINISHED: Final = ("Succeeded", "Failed")


class Refusal(NamedTuple):
    """A pod that came to a node with too few free devices for it."""

    pod: str
    node: str
    requested: int
    free: int


class DeviceLedger:
    """The devices of all nodes, and the pods that hold them."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self._sizes: dict[str, int] = {}  # by node
        self._held: dict[str, dict[int, str]] = {}  # node -> device -> uid of its pod
        self._pods: dict[str, tuple[str, tuple[int, ...]]] = {}  # uid -> node, devices
        self._early: dict[str, Obj] = {}  # by uid: pods on nodes that are not known yet

    @property
    def pods(self) -> Iterable[str]:
        """Return the uids of all pods that are on a node and request GPUs."""
        return [*self._pods, *self._early]

    def set_node(self, node: Obj) -> list[Obj]:
        """Add or change a node; return pods that were seen there before the node was."""
        name = node["metadata"]["name"]
        status = node.get("status", {})
        amounts = status.get("capacity") or status.get("allocatable") or {}
        self._sizes[name] = int(amounts.get(GPU, 0))
        early = [it for it in self._early.values() if it["spec"]["nodeName"] == name]
        for pod in early:
            del self._early[pod["metadata"]["uid"]]
        return early

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods hold their devices until they are gone."""
        self._sizes.pop(name, None)

    def set_pod(self, pod: Obj) -> tuple[int, ...] | None:
        """Add or change a pod; return the devices it got, if it got them or was refused just now.

        A pod that was refused gets no device: an empty tuple.
        """
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if pod.get("status", {}).get("phase") in _FINISHED:
            self.remove_pod(uid)
            return None
        if not node or uid in self._pods or not (requested := whole_gpus(pod)):
            return None
        if node not in self._sizes:
            self._early[uid] = pod
            return None
        taken = self._held.setdefault(node, {})
        devices = self._choose(pod, node, requested)
        if len(devices) < requested:
            free = self._sizes[node] - len(taken)
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self.refusals.append(Refusal(key, node, requested, max(0, free)))
            devices = ()
        taken.update(dict.fromkeys(devices, uid))
        self._pods[uid] = node, devices
        return devices

    def _choose(self, pod: Obj, node: str, requested: int) -> tuple[int, ...]:
        """Return the devices for a pod: its own if it states some, or the lowest free ones."""
        taken = self._held[node]
        said = pod["metadata"].get("annotations", {}).get(RESERVED_DEVICE, "")
        for device in range(self._sizes[node]):
            if said == device_name(node, device) and device not in taken:
                return (device,)
        free = (it for it in range(self._sizes[node]) if it not in taken)
        return tuple(device for device, _ in zip(free, range(requested), strict=False))

    def remove_pod(self, uid: str) -> None:
        """Take the devices of a pod back."""
        self._early.pop(uid, None)
        node, devices = self._pods.pop(uid, ("", ()))
        for device in devices:
            del self._held[node][device]


def refusals_in(history: Iterable[Moment]) -> list[Refusal]:
    """Return the refusals that a record of nodes and pods implies, in the store's order."""
    ledger = DeviceLedger()
    ordered = sorted(history, key=lambda it: (it.type != "LISTED", it.version))
    for moment in ordered:
        if moment.key.resource == NODES:
            if moment.type == "DELETED":
                ledger.remove_node(moment.key.name)
            else:
                for pod in ledger.set_node(moment.obj):
                    ledger.set_pod(pod)
        elif moment.key.resource == PODS and moment.type == "DELETED":
            ledger.remove_pod(moment.obj["metadata"]["uid"])
        elif moment.key.resource == PODS:
            ledger.set_pod(moment.obj)
    return ledger.refusals


def device_name(node: str, device: int) -> str:
    """Return the UUID of a device."""
    return f"GPU-{node}-{device}"


def is_reservation(pod: Obj) -> bool:
    """Say whether a pod reserves a GPU for pods that share it."""
    meta = pod["metadata"]
    marks = meta.get("labels", {}).get("app"), meta.get("namespace")
    return marks == (RESERVATIONS, RESERVATIONS)


def whole_gpus(pod: Obj) -> int:
    """Return how many whole GPUs a pod requests."""
    spec: Mapping[str, list[Obj]] = pod["spec"]
    first = [_limit(it) for it in spec.get("initContainers", ())]
    return max([sum(_limit(it) for it in spec["containers"]), *first])


def _limit(container: Obj) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
