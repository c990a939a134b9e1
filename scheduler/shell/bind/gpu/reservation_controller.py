"""Keeps reservation pods and their users together, from what is seen: it can start at any moment.

1. A reservation pod without users is deleted: their GPU is whole again.
2. A lost reservation pod comes back while its users run. The GPU was free meanwhile, so it may get
   another device than its users have, or none: then the users are deleted, and planned again.
3. What an earlier process wrote on pods that it did not bind is removed.

The pods that this process is binding are the binder's.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.gpu.reservation_manifest import (
    GpuPlace,
    is_live,
    reserved_device,
)
from scheduler.shell.bind.gpu.reserve_device import DeviceNotReserved
from scheduler.shell.bind.gpu.share_step import GpuShareStep
from scheduler.shell.event_objects import event_object
from scheduler.shell.evict.whole_workload import WorkloadEvictor
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import SuspendableId
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import GPU_DEVICES, POD_GROUP, RECEIVED_TYPE
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventRecorder
from trainer_kai.kube.rest.request import DeleteOptions
from trainer_kai.kube.rest.response import Conflict, NotFound
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings

_Item: TypeAlias = GpuPlace | Key  # a shared GPU, or a pod with leftovers
_ACTION: Final = "gpureservationlost"
_AGAIN_S: Final = 0.5  # until a reservation that is awaited is looked at again
_SETTLE_S: Final = 2.0  # what is missing for so long was not only seen late
_QUEUE: Final = WorkQueueSettings(name="gpu-reservations", workers=8, retry_cap_s=30.0)


@dataclass
class _Loss:
    since_s: float
    is_reported: bool = False
    attempt: asyncio.Task[DeviceNotReserved | None] | None = None


class ReservationController:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        shares: GpuShareStep,
        workloads: WorkloadEvictor,
        recorder: EventRecorder,
        log: FilteringBoundLogger,
    ) -> None:
        self._client: Final = client
        self._cache: Final = cache
        self._groups: Final = cache.gpu_groups
        self._reservations: Final = shares.reservations
        self._shares: Final = shares
        self._workloads: Final = workloads
        self._recorder: Final = recorder
        self._log: Final = log
        self._queue: Final = WorkQueue[_Item](self._reconcile, _QUEUE, client.clock, log)
        self._losses: Final[dict[GpuPlace, _Loss]] = {}
        self._devices: Final[dict[GpuPlace, str]] = {}  # that were reserved, as they were seen

    async def run(self) -> None:
        self._groups.on_change = self._changed
        self._groups.on_leftover = lambda pod: self._queue.add_after(pod, _SETTLE_S)
        for node, group in self._groups.groups():
            self._queue.add(GpuPlace(node, group))
        for pod in self._groups.leftovers():
            self._queue.add_after(pod, _SETTLE_S)
        try:
            await self._queue.run()
        finally:
            self._groups.on_change = self._groups.on_leftover = None
            self._reservations.stop()
            for loss in self._losses.values():
                if loss.attempt is not None:
                    loss.attempt.cancel()

    def _changed(self, node: str, group: str) -> None:
        place = GpuPlace(node, group)
        self._reservations.changed(place)
        self._queue.add(place)

    async def _reconcile(self, item: _Item) -> Requeue | None:
        if isinstance(item, Key):
            return await self._undo_leftover(item)
        self._reservations.count_pods()
        if self._reservations.is_reserving(item):
            return Requeue.after(_AGAIN_S)
        users = self._groups.users(*item)
        if not users:
            await self._release(item)
            return None
        running = [it for key in users if (it := self._running_pod(key)) is not None]
        # Of a pod that is being bound no watch shows that it is: it is looked at again.
        return await self._keep(item, running) if running else Requeue.after(_SETTLE_S)

    async def _undo_leftover(self, pod: Key) -> Requeue | None:
        try:
            await self._shares.undo_leftover(pod)
        except NotFound:
            return None
        except Conflict:
            return Requeue.after(_SETTLE_S)  # it is bound, or has changed
        return None

    async def _release(self, place: GpuPlace) -> None:
        self._losses.pop(place, None)
        self._devices.pop(place, None)
        self._reservations.lost.discard(place)
        has_node = place.node in self._cache.cluster.nodes
        for pod in self._groups.reservation_pods(*place):
            if not pod.metadata.deletion_timestamp or not has_node:
                await self._reservations.delete(pod, at_once=not has_node or not is_live(pod))

    async def _keep(self, place: GpuPlace, running: list[Pod]) -> Requeue | None:
        """Have exactly one reservation pod, which holds the device of the running pods."""
        used = {device for pod in running for device in _devices(pod)}
        live = self._reservations.live_pods(place)
        live.sort(key=lambda it: (reserved_device(it) not in used, *_preference(it)))
        for pod in live[1:]:
            await self._reservations.delete(pod, at_once=True)
        device = reserved_device(live[0]) if live else ""
        if not device:
            return await self._replace(place, running, is_lost=not live)
        self._reservations.lost.discard(place)
        loss = self._losses.pop(place, None)
        before = self._devices.get(place, device if loss is None else "")
        self._devices[place] = device
        # Pods that a KAI has bound do not say which device they have.
        strangers = [it for it in running if device not in (_devices(it) or [before])]
        if strangers:
            message = f"its reservation pod was lost, and now holds the GPU {device}"
            await self._delete_users(place, strangers, message)
        return None

    async def _replace(
        self, place: GpuPlace, running: list[Pod], *, is_lost: bool
    ) -> Requeue | None:
        """Reserve the GPU of running pods again; *is_lost*: it has no reservation pod."""
        if place.node not in self._cache.cluster.nodes:
            return None  # the pods end with their node
        if is_lost:
            self._reservations.lost.add(place)
        now_s = self._client.clock.monotonic_s()
        loss = self._losses.setdefault(place, _Loss(now_s))
        wait_s = loss.since_s + _SETTLE_S - now_s
        if wait_s > 0:
            return Requeue.after(wait_s)
        if loss.attempt is None:
            if is_lost and not loss.is_reported:
                self._reservations.note_lost(place)
                loss.is_reported = True
            loss.attempt = asyncio.create_task(self._attempt(place))
            return Requeue.after(_AGAIN_S)
        if not loss.attempt.done():
            return Requeue.after(_AGAIN_S)
        attempt, loss.attempt = loss.attempt, None
        failure = attempt.result()
        if failure is None or failure.outcome != "refused":
            return Requeue.SOON
        await self._delete_users(place, running, failure.message)
        return None

    async def _attempt(self, place: GpuPlace) -> DeviceNotReserved | None:
        """Reserve a GPU again; no worker waits for that."""
        try:
            await self._reservations.device(place)
        except DeviceNotReserved as error:
            self._log.warning("gpu not reserved again", place=str(place), error=error.message)
            return error
        return None

    async def _delete_users(self, place: GpuPlace, running: list[Pod], cause: str) -> None:
        """Delete pods that have lost their GPU; a workload is suspended and resumed instead."""
        workloads: dict[SuspendableId, tuple[Key, str]] = {}
        for pod in running:
            meta = pod.metadata
            if meta.deletion_timestamp:
                continue
            had = meta.annotations.get(GPU_DEVICES, "unknown")
            lost = f"The shared GPU {had} (group {place.group}) of node {place.node}"
            reason = f"{lost} is not reserved any more: {cause}"
            group = Key(meta.namespace, meta.annotations.get(POD_GROUP, ""))
            owner = self._owner_of(group)
            if owner is not None and owner.uid:
                workloads.setdefault(owner, (group, reason))
            else:
                await self._delete_user(meta, reason)
        for owner, (group, reason) in workloads.items():
            await self._workloads.evict(owner, group, _ACTION, reason)

    async def _delete_user(self, meta: Meta, reason: str) -> None:
        try:
            await self._client.delete(PODS, meta.key, DeleteOptions(uid=meta.uid))
        except (NotFound, Conflict):
            return
        then = "The pod that replaces it gets a GPU anew"
        if not meta.owner_references:
            then = "No controller replaces the pod: create it again"
        message = f"{reason}. {then}"
        self._recorder.post(event_object(PODS, meta), "GpuReservationLost", message, "Warning")
        self._log.warning("pod deleted", pod=str(meta.key), reason=reason)

    def _owner_of(self, group: Key) -> SuspendableId | None:
        return self._cache.in_flight_evictions.suspendable_id(group)

    def _running_pod(self, key: Key) -> Pod | None:
        """Return a pod that a scheduler bound with shares; None while it is being bound."""
        pod = self._cache.assumed.seen_pod(key)
        if pod is None or RECEIVED_TYPE not in pod.metadata.annotations:
            return None  # a user can write labels where the policy is not installed
        return pod if pod.spec.node_name else None


def _preference(pod: Pod) -> tuple[bool, str, str]:
    return not reserved_device(pod), pod.metadata.creation_timestamp, pod.metadata.name


def _devices(pod: Pod) -> list[str]:
    """Return the devices of a pod, as the scheduler wrote them onto it."""
    return [it for it in pod.metadata.annotations.get(GPU_DEVICES, "").split(",") if it]
