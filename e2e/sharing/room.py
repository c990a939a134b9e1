"""A test's own namespace and nodes on the chain of GPU sharing, and a record of what happens."""

from collections.abc import Callable
from typing import Any, Final

from e2e.cluster.api import ApiError
from e2e.cluster.gpu_devices import RESERVATIONS, RESERVED_DEVICE, is_reservation, refusals_in
from e2e.cluster.nodes import GPU, NodeShape
from e2e.cluster.patience import until
from e2e.cluster.resources import CONFIG_MAPS, LEASES, NODES, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import Key, State, Timeline
from e2e.fixtures.install import DEPLOYMENTS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, pods_in
from e2e.fixtures.processes import NAMESPACE
from e2e.sharing.sharing_check import FRACTION, leftovers, sharing_faults

WATCHED: Final = (PODS, CONFIG_MAPS, NODES, TRAINJOBS)
_REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
_LEASE: Final = "trainer-kai-scheduler"
_DEFAULT_QUEUE: Final = "default-queue"


class GpuRoom:
    """What a test works with."""

    def __init__(
        self, installation: Installation, namespace: str, other: str, seen: Timeline
    ) -> None:
        self.installation = installation
        self.cluster = installation.cluster
        self.api = installation.cluster.api
        self.proxy = installation.proxy
        self.scheduler = installation.scheduler
        self.namespace = namespace
        self.other_namespace = other  # of another team
        self.seen = seen
        # What the test brings about: reservation pods go while their GPU is used, or are refused.
        self.deletes_reservations = False
        self._nodes: list[str] = []

    async def add_nodes(self, count: int, gpus: int, prefix: str = "gpu", **shape: Any) -> None:
        """Add nodes that the test alone uses."""
        made = NodeShape(gpus=gpus, **shape)
        self._nodes += await self.cluster.add_nodes(count, made, prefix=prefix)

    def forget_node(self, name: str) -> None:
        """Leave it to the test that a node is gone."""
        self._nodes.remove(name)

    async def create(self, *pods: Obj) -> None:
        """Create pods, one after the other."""
        for pod in pods:
            await self.api.create(pod)

    async def share(self, name: str, fraction: str = "0.5", **more: Any) -> None:
        """Create a pod with a share, in the namespace."""
        await self.api.create(share_pod(self.namespace, name, fraction, **more))

    async def delete(self, *names: str) -> None:
        """Delete pods of the namespace at once."""
        for name in names:
            await self.api.delete(PODS, self.namespace, name, gracePeriodSeconds=0)

    async def run(self, *names: str, timeout_s: float = 30.0) -> None:
        """Wait until pods of the namespace run."""
        await self.until(lambda state: self.running(state) >= {*names}, f"{names} run", timeout_s)

    async def until(
        self, true_of: Callable[[State], bool], what: str, timeout_s: float = 30.0
    ) -> None:
        """Wait for a state; if it does not come, show what the scheduler logged last."""
        try:
            await self.seen.until(true_of, what, timeout_s)
        except AssertionError as error:
            waiting = [it["metadata"]["name"] for it in pods_in(self.seen.state)]
            why = [f"{it}: {self.why_unscheduled(it, self.seen.state)}" for it in waiting]
            error.add_note("\n".join([*why, *self.scheduler.lines()[-30:]]))
            raise

    async def until_nothing_is_left(self, timeout_s: float = 30.0) -> None:
        """Wait until there is nothing that only pods with shares need."""
        try:
            await self.until(lambda state: not leftovers(state), "nothing is left", timeout_s)
        except AssertionError as error:
            error.add_note(f"left: {leftovers(self.seen.state)}")
            raise

    def running(self, state: State) -> set[str]:
        """Return the pods of the namespace that run and are not deleted."""
        pods = [it for it in pods_in(state) if it["metadata"]["namespace"] == self.namespace]
        return {it["metadata"]["name"] for it in pods if is_running(it)}

    def key(self, name: str) -> Key:
        """Return the key of a pod of the namespace."""
        return Key(PODS, self.namespace, name)

    def pod(self, name: str) -> Obj:
        """Return a pod of the namespace as it is now."""
        return self.seen.state[self.key(name)]

    def is_there(self, name: str, state: State) -> bool:
        """Say whether a pod of the namespace exists."""
        return self.key(name) in state

    def uids(self, *names: str) -> list[str]:
        """Return the uids of pods of the namespace."""
        return [self.pod(name)["metadata"]["uid"] for name in names]

    def why_unscheduled(self, name: str, state: State) -> str:
        """Return the message of the condition PodScheduled of a pod that waits."""
        status: Obj = state.get(self.key(name), {}).get("status", {})
        conditions = status.get("conditions", ())
        waits = [it for it in conditions if (it["type"], it["status"]) == ("PodScheduled", "False")]
        return "".join(it.get("message", "") for it in waits)

    async def until_event(self, name: str, reason: str) -> None:
        """Wait until a pod of the namespace has an Event: a recorder sends it after the deed."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=reason={reason}"

        async def has_it() -> bool:
            answer = await self.api.request("GET", path)
            return name in {it["involvedObject"].get("name") for it in answer["items"]}

        await until(has_it, f"{name} has an Event {reason}")

    async def lose_reservation(self, node: str, other: str) -> None:
        """Delete the one reservation pod, and give its device to another pod of this name."""
        self.deletes_reservations = True
        (lost,) = reservations(self.seen.state)
        self.scheduler.process.pause()  # else it may be quicker than the other pod
        await self.api.delete(PODS, RESERVATIONS, lost["metadata"]["name"], gracePeriodSeconds=0)
        await self.create(
            whole_pod(self.namespace, other, scheduler="default-scheduler", nodeName=node)
        )
        self.scheduler.process.resume()

    async def start_scheduler(self) -> None:
        """Start it after a kill: it need not wait until the Lease of the dead one expires."""
        await self.installation.scheduler.process.kill()  # until the process is really gone
        released = {"spec": {"holderIdentity": ""}}
        await self.api.merge(LEASES, NAMESPACE, _LEASE, released)
        await self.scheduler.start()

    async def leave(self) -> None:
        """Delete all workloads; nothing may be left of them, and the nodes go."""
        self.proxy.burst(503, 0)
        self.proxy.withdraw_strike()
        if self.scheduler.pid is None:
            await self.start_scheduler()
        self.scheduler.process.resume()
        try:
            for name in (self.namespace, self.other_namespace):
                await self._empty(name)
            await self.until_nothing_is_left()
        finally:
            for name in self._nodes:
                await self._delete_node(name)

    async def _empty(self, namespace: str) -> None:
        for kind in (DEPLOYMENTS, _REPLICA_SETS, TRAINJOBS):
            await self.api.request("DELETE", kind.path(namespace))
        await self.api.until_no_pods(namespace)

    async def _delete_node(self, name: str) -> None:
        try:
            await self.api.delete(NODES, None, name)
        except ApiError as error:
            if error.status != 404:
                raise

    def check(self) -> None:
        """Check the whole record."""
        history = self.seen.history()
        faults, refused = sharing_faults(history), refusals_in(history)
        if self.deletes_reservations:
            faults = [it for it in faults if "it is gone while" not in it]
            refused = [it for it in refused if not it.pod.startswith(f"{RESERVATIONS}/")]
        assert not faults, "\n".join(faults)
        assert not refused, refused


def share_pod(namespace: str, name: str, fraction: str = "0.5", **more: Any) -> Obj:
    """Return a pod with a share of a GPU; *more* are `queue`, `annotations`, and of its spec."""
    labels = {QUEUE: more.pop("queue", _DEFAULT_QUEUE)}
    annotations = {**({FRACTION: fraction} if fraction else {}), **more.pop("annotations", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "c", "image": "none"}],
            **more,
        },
    }


def whole_pod(namespace: str, name: str, gpus: str = "1", **more: Any) -> Obj:
    """Return a pod with whole GPUs; *more* are its `queue` and `scheduler`, and of its spec."""
    scheduler = more.pop("scheduler", "kai-scheduler")
    pod = share_pod(namespace, name, "", **more)
    pod["spec"]["schedulerName"] = scheduler
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: gpus}}
    return pod


def reservations(state: State) -> list[Obj]:
    """Return all reservation pods that are not deleted."""
    pods = [it for it in pods_in(state) if is_reservation(it)]
    return [it for it in pods if "deletionTimestamp" not in it["metadata"]]


def device_of(pod: Obj) -> str:
    """Return the device of a reservation pod; nothing if it has none yet."""
    device: str = pod["metadata"].get("annotations", {}).get(RESERVED_DEVICE, "")
    return device


def is_bound(pod: Obj) -> bool:
    """Say whether a pod has a node and is not deleted."""
    return "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]


def is_running(pod: Obj) -> bool:
    """Say whether a pod runs and is not deleted."""
    return is_bound(pod) and pod["status"].get("phase") == "Running"
