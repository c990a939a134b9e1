"""Reserves GPUs: creates reservation pods, and waits until their devices are known.

All pods that share a GPU wait for the same reservation pod. One without a device in time is
deleted, so that it keeps no GPU from others, and the pods that wait for it are planned again.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.gpu.reservation_pod import (
    GpuPlace,
    ReservationPodOptions,
    is_live,
    reservation_pod,
    reservation_pod_key,
    reserved_device,
)
from scheduler.state.cache.cache import ClusterCache
from trainer_kai.api.affinity import Toleration
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVATION_APP
from trainer_kai.api.pod import Pod
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ErrorDetails,
    NotFound,
    Unavailable,
)
from trainer_kai.kube.rest.request import DeleteOptions, WriteOptions
from trainer_kai.service.metrics import Metrics

__all__ = ["DeviceNotReserved", "OwnImage", "ReservationPods"]

_CREATE: Final = WriteOptions(field_manager=FIELD_MANAGER)
_RETRY_S: Final = 0.5  # while the pod of that name terminates


class DeviceNotReserved(Conflict):
    """No GPU could be reserved: the pods that would share it are planned again."""

    def __init__(self, place: GpuPlace, message: str) -> None:
        super().__init__(ErrorDetails(f"RESERVE GPU {place}", 0, "", message))
        self.message = message


class _ContainerImage(msgspec.Struct, frozen=True):
    image: str = ""


class _ImageSpec(msgspec.Struct, frozen=True):
    containers: tuple[_ContainerImage, ...] = ()


class _PodWithImage(msgspec.Struct, frozen=True):
    metadata: msgspec.Raw
    spec: _ImageSpec = _ImageSpec()


class OwnImage:
    """The image of the pod that this process runs in; reservation pods run it too."""

    def __init__(self, client: Client, own_pod: Key | None, image: str) -> None:
        """*image* is that of the settings, if it is set."""
        self._client: Final = client
        self._own_pod: Final = own_pod
        self._image = image

    async def image(self) -> str:
        """Return the image; it is read once."""
        if not self._image and self._own_pod is not None:
            own = await self._client.get(_PODS_WITH_IMAGE, self._own_pod)
            self._image = own.spec.containers[0].image
        return self._image


_PODS_WITH_IMAGE: Final = Resource("", "v1", "pods", "Pod", namespaced=True, struct=_PodWithImage)


class ReservationPods:
    """The reservation pods that this process waits for, each once."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        image: OwnImage,
        options: ReservationPodOptions,
        allocation_s: float,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client: Final = client
        self._clock: Final = client.clock
        self._groups: Final = cache.gpu_groups
        self._nodes: Final = cache.cluster.nodes
        self._image: Final = image
        self._options: Final = options
        self._allocation_s: Final = allocation_s
        self._metrics: Final = metrics
        self._log: Final = log
        self._in_flight: Final[dict[GpuPlace, asyncio.Task[str]]] = {}
        self._changes: Final[dict[GpuPlace, asyncio.Event]] = {}

    def changed(self, place: GpuPlace) -> None:
        """Note that the reservation pods of a place have changed."""
        change = self._changes.get(place)
        if change is not None:
            change.set()

    def is_reserving(self, place: GpuPlace) -> bool:
        """Say whether a device of a place is being waited for."""
        return place in self._in_flight

    async def device(self, place: GpuPlace, tolerations: Iterable[Toleration]) -> str:
        """Return the UUID of the GPU of a place once it is reserved."""
        known = self._known_device(place)
        if known:
            return known
        task = self._in_flight.get(place)
        if task is None:
            task = asyncio.create_task(self._reserve(place, tuple(tolerations)))
            self._in_flight[place] = task
            task.add_done_callback(lambda _: self._in_flight.pop(place, None))
        return await asyncio.shield(task)

    async def delete(self, pod: Pod, *, at_once: bool) -> None:
        """Delete a reservation pod; at once, if its agent may not answer."""
        options = DeleteOptions(uid=pod.metadata.uid, grace_s=0 if at_once else None)
        try:
            await self._client.delete(PODS, pod.metadata.key, options)
        except (NotFound, Conflict):
            return  # it is gone, or another one has its name
        self._log.info("gpu reservation deleted", pod=str(pod.metadata.key))

    def _known_device(self, place: GpuPlace) -> str:
        live = (it for it in self._groups.reservation_pods(*place) if is_live(it))
        return next((found for it in live if (found := reserved_device(it))), "")

    async def _reserve(self, place: GpuPlace, tolerations: tuple[Toleration, ...]) -> str:
        began_s = self._clock.monotonic_s()
        self._changes[place] = asyncio.Event()
        try:
            device = await self._wait_for_device(place, tolerations)
        except DeviceNotReserved:
            self._metrics.gpu_reservations.labels("failed").inc()
            raise
        finally:
            del self._changes[place]
        self._metrics.gpu_reservations.labels("reserved").inc()
        self._metrics.gpu_reservation_seconds.observe(self._clock.monotonic_s() - began_s)
        self._log.info("gpu reserved", node=place.node, group=place.group, device=device)
        return device

    async def _wait_for_device(self, place: GpuPlace, tolerations: tuple[Toleration, ...]) -> str:
        deadline_s = self._clock.monotonic_s() + self._allocation_s
        created = ""  # the uid of the pod that was created and not seen yet
        while self._clock.monotonic_s() < deadline_s:
            pods = self._groups.reservation_pods(*place)
            live = [it for it in pods if is_live(it)]
            device = self._known_device(place)
            if device:
                return device
            if any(it.metadata.uid == created for it in pods):
                created = ""
            await self._refuse_failed(place, pods)
            self._refuse_lost_node(place)
            if not live and not created:
                created = await self._create(place, tolerations)
            wait_s = deadline_s - self._clock.monotonic_s()
            await self._wait(place, wait_s if live or created else min(wait_s, _RETRY_S))
        for pod in self._groups.reservation_pods(*place):
            if is_live(pod):
                await self.delete(pod, at_once=True)
        self._metrics.gpu_reservations.labels("timeout").inc()
        message = (
            f"the reservation pod {self._name(place)} on node {place.node} has no GPU after "
            f"{self._allocation_s:g} s. Look at its log and Events, and at the device plugin of "
            "the node"
        )
        raise DeviceNotReserved(place, message)

    async def _refuse_failed(self, place: GpuPlace, pods: tuple[Pod, ...]) -> None:
        """Delete reservation pods that the kubelet refused, and say so."""
        failed = [it for it in pods if not is_live(it) and not it.metadata.deletion_timestamp]
        for pod in failed:
            await self.delete(pod, at_once=True)
        if failed:
            message = (
                f"the reservation pod {failed[0].metadata.key} on node {place.node} is "
                f"{failed[0].status.phase}: the node has no free GPU, or refused the pod"
            )
            raise DeviceNotReserved(place, message)

    def _refuse_lost_node(self, place: GpuPlace) -> None:
        if place.node not in self._nodes:
            raise DeviceNotReserved(place, f"the node {place.node} does not exist any more")

    async def _create(self, place: GpuPlace, tolerations: tuple[Toleration, ...]) -> str:
        """Create a reservation pod; return its uid, or "" if one of its name is still there."""
        options = self._options._replace(image=await self._image.image())
        if not options.image:
            raise DeviceNotReserved(
                place,
                "no image for reservation pods is known: set reservation_pods.image of the scheduler",
            )
        body = reservation_pod(place, tolerations, options)
        try:
            pod = await self._writes.send(
                lambda: self._client.create(PODS, RESERVATION_APP, body, _CREATE)
            )
        except (AlreadyExists, Unavailable):
            return ""  # the watch shows it, or it is created again
        except ApiError as error:
            message = f"the reservation pod {self._name(place)} cannot be created: {error}"
            raise DeviceNotReserved(place, message) from error
        return pod.metadata.uid

    def _name(self, place: GpuPlace) -> str:
        return str(reservation_pod_key(place))

    async def _wait(self, place: GpuPlace, seconds: float) -> None:
        """Wait until the reservation pods of a place change, or for some time."""
        change = self._changes[place]
        waits = {
            asyncio.create_task(change.wait()),
            asyncio.create_task(self._clock.sleep(max(seconds, 0))),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            change.clear()
