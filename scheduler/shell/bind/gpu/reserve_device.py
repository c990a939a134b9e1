"""Reserves GPUs: creates reservation pods, and waits until their devices are known.

All pods that share a GPU wait for the same reservation pod. One without a device in time is
deleted, so that it keeps no GPU from others, and the pods that wait for it are planned again.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.gpu.reservation_manifest import (
    GpuPlace,
    ReservationPodOptions,
    is_live,
    reservation_pod,
    reserved_device,
)
from scheduler.shell.bind.steps import StepFailed
from scheduler.shell.bind.writes import FIELD_MANAGER, LimitedWrites
from scheduler.state.cache.cache import ClusterCache
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import GPU, GPU_GROUP, RESERVATION_APP
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import PODS, Resource
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import DeleteOptions, WriteOptions
from trainer_kai.kube.rest.response import (
    AlreadyExists,
    ApiError,
    Conflict,
    ErrorDetails,
    NotFound,
    Unauthorized,
    Unavailable,
    is_retryable,
)
from trainer_kai.service.metrics import Metrics

_CREATE: Final = WriteOptions(field_manager=FIELD_MANAGER)
_MOST_CREATIONS: Final = 12  # at once: a new pod costs the API server more than a bind
_NEGLIGIBLE_S: Final = 1e-3  # a shorter time is none
_OWN_CONTAINER: Final = "scheduler"  # a sidecar may stand before it
_NO_DEVICE: Final = ("UnexpectedAdmissionError", f"OutOf{GPU}")  # reasons of a kubelet
_RETRY_S: Final = 0.5  # while the pod of that name terminates


class DeviceNotReserved(StepFailed):
    """No GPU could be reserved: the pods that would share it are planned again."""

    def __init__(self, place: GpuPlace, message: str, outcome: str = "failed") -> None:
        """*outcome*: failed, timeout, or refused (the node has no GPU left)."""
        details = ErrorDetails(f"RESERVE GPU {place}", 409, "NotReserved", message)
        super().__init__(details, "GpuReservationFailed")
        self.outcome = outcome
        self.is_of_node: Final = outcome != "failed"  # another node may do better


class _ContainerImage(msgspec.Struct, frozen=True):
    name: str = ""
    image: str = ""


class _ImageSpec(msgspec.Struct, frozen=True):
    containers: tuple[_ContainerImage, ...] = ()


class _PodWithImage(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _ImageSpec = _ImageSpec()


class OwnImage:
    """The image of the pod that this process runs in; reservation pods run it too."""

    def __init__(self, client: Client, own_pod: Key | None, image: str) -> None:
        self._client: Final = client
        self._own_pod: Final = own_pod
        self._image = image

    async def image(self) -> str:
        """Return the image; it is read once."""
        if not self._image and self._own_pod is not None:
            own = await self._client.get(_PODS_WITH_IMAGE, self._own_pod)
            named = {it.name: it.image for it in own.spec.containers}
            self._image = named.get(_OWN_CONTAINER) or next(iter(named.values()), "")
        return self._image


_PODS_WITH_IMAGE: Final = Resource("", "v1", "pods", "Pod", namespaced=True, struct=_PodWithImage)


class ReservationPodSource(NamedTuple):
    image: OwnImage
    options: ReservationPodOptions
    allocation_s: float


class ReservationPods:
    """The reservation pods that this process waits for, each once."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        source: ReservationPodSource,
        writes: LimitedWrites,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client: Final = client
        self._clock: Final = client.clock
        self._groups: Final = cache.gpu_groups
        self._nodes: Final = cache.cluster.nodes
        self._source: Final = source
        self._writes: Final = writes
        self._creations: Final = asyncio.Semaphore(_MOST_CREATIONS)
        self._metrics: Final = metrics
        self._log: Final = log
        self.lost: Final[set[GpuPlace]] = set()  # pods use these GPUs, and nothing reserves them
        self._in_flight: Final[dict[GpuPlace, asyncio.Task[str]]] = {}
        self._changes: Final[dict[GpuPlace, asyncio.Event]] = {}
        # By place: the uids of pods that were deleted, until a watch shows them no more.
        self._deleted: Final[dict[GpuPlace, set[str]]] = {}
        self._unanswered: Final[set[str]] = set()  # those of them that may not be deleted

    def changed(self, place: GpuPlace) -> None:
        if place in self._deleted:
            gone = self._deleted[place].difference(
                it.metadata.uid for it in self._groups.reservation_pods(*place)
            )
            self._unanswered.difference_update(gone)
            self._deleted[place] -= gone
            if not self._deleted[place]:
                del self._deleted[place]
        change = self._changes.get(place)
        if change is not None:
            change.set()

    def is_reserving(self, place: GpuPlace) -> bool:
        return place in self._in_flight

    def count_pods(self) -> None:
        self._metrics.gpu_reservation_pods.set(self._groups.reservation_pod_count)

    def note_lost(self, place: GpuPlace) -> None:
        self._metrics.gpu_reservations.labels("lost").inc()
        self._log.warning("gpu reservation lost", node=place.node, group=place.group)

    def stop(self) -> None:
        """Wait for no device any longer: another process may write now."""
        for task in self._in_flight.values():
            task.cancel()

    async def device(self, place: GpuPlace) -> str:
        """Return the UUID of the GPU of a place once it is reserved."""
        known = self.known_device(place)
        if known:
            return known
        task = self._in_flight.get(place)
        if task is None:
            task = asyncio.create_task(self._reserve(place))
            self._in_flight[place] = task
            task.add_done_callback(lambda _: self._in_flight.pop(place, None))
        return await asyncio.shield(task)

    async def delete(self, pod: Pod, *, at_once: bool) -> None:
        """Delete a reservation pod; at once, if its agent may not answer.

        From now on it reserves nothing: a pod that is planned onto its GPU before a watch shows the
        deletion waits for another one; also if there is no answer, for it may be deleted.
        """
        meta = pod.metadata
        place = GpuPlace(pod.spec.node_name, meta.labels.get(GPU_GROUP, ""))
        self._deleted.setdefault(place, set()).add(meta.uid)
        options = DeleteOptions(uid=pod.metadata.uid, grace_s=0 if at_once else None)
        try:
            await self._client.delete(PODS, pod.metadata.key, options)
        except (NotFound, Conflict):
            return  # it is gone, or another one has its name
        except ApiError as error:
            if is_retryable(error):  # an earlier attempt may have had no answer
                self._unanswered.add(meta.uid)
            else:
                self._deleted.get(place, set()).discard(meta.uid)
            raise
        self._unanswered.discard(meta.uid)
        fields = {"node": place.node, "group": place.group}
        self._log.info("gpu reservation deleted", pod=str(meta.key), **fields)

    def live_pods(self, place: GpuPlace) -> list[Pod]:
        pods, deleted = self._groups.reservation_pods(*place), self._deleted.get(place, ())
        return [it for it in pods if is_live(it) and it.metadata.uid not in deleted]

    def known_device(self, place: GpuPlace) -> str:
        return next(filter(None, map(reserved_device, self.live_pods(place))), "")

    async def _reserve(self, place: GpuPlace) -> str:
        began_s = self._clock.monotonic_s()
        self._changes[place] = asyncio.Event()
        try:
            device = await self._wait_for_device(place)
        except DeviceNotReserved as error:
            outcome = "timeout" if error.outcome == "timeout" else "failed"
            self._metrics.gpu_reservations.labels(outcome).inc()
            raise
        finally:
            del self._changes[place]
        self._metrics.gpu_reservations.labels("reserved").inc()
        self._metrics.gpu_reservation_seconds.observe(self._clock.monotonic_s() - began_s)
        self._log.info("gpu reserved", node=place.node, group=place.group, device=device)
        return device

    async def _wait_for_device(self, place: GpuPlace) -> str:
        deadline_s = self._clock.monotonic_s() + self._source.allocation_s
        created: set[str] = set()  # the uids of the pods that were created
        unseen = ""  # the last one, until a watch shows it
        while (wait_s := deadline_s - self._clock.monotonic_s()) > _NEGLIGIBLE_S:
            device = self.known_device(place)
            if device:
                return device
            pods = self._groups.reservation_pods(*place)
            if unseen in {it.metadata.uid for it in pods}:
                unseen = ""
            await self._delete_again(pods)
            await self._delete_failed(place, pods, created)
            self._refuse_lost_node(place)
            is_there = bool(unseen) or bool(self.live_pods(place))
            if not is_there and not self._waits_for_lost(place):
                unseen = await self._create(place)
                created.add(unseen)
            await self._wait(place, wait_s if is_there or unseen else min(wait_s, _RETRY_S))
        return self.known_device(place) or await self._give_up(place)

    async def _give_up(self, place: GpuPlace) -> str:
        """Delete the reservation pods that have no device, so that they keep no GPU from others."""
        for pod in self.live_pods(place):
            try:
                await self.delete(pod, at_once=True)
            except ApiError as error:  # it is deleted when no pod waits for its GPU
                self._log.warning("gpu reservation not deleted", place=str(place), error=str(error))
        message = (
            f"the reservation pod in {RESERVATION_APP} has no GPU of node {place.node} after "
            f"{self._source.allocation_s:g} s. Look at its log and its Events, and at the device "
            "plugin of the node"
        )
        raise DeviceNotReserved(place, message, "timeout")

    async def _delete_again(self, pods: Iterable[Pod]) -> None:
        """Repeat deletions that had no answer, so that another pod can have the name."""
        for pod in pods:
            if pod.metadata.uid in self._unanswered and is_live(pod):
                try:
                    await self.delete(pod, at_once=False)
                except ApiError as error:
                    self._log.warning("gpu reservation not deleted", error=str(error))

    async def _delete_failed(
        self, place: GpuPlace, pods: tuple[Pod, ...], created: set[str]
    ) -> None:
        """Delete reservation pods that have ended; say so if this process created one of them."""
        failed = [it for it in pods if not is_live(it) and not it.metadata.deletion_timestamp]
        for pod in failed:
            await self.delete(pod, at_once=True)
        ended = next((it for it in failed if it.metadata.uid in created), None)
        if ended is not None:
            why = ended.status.reason or "its status gives no reason"
            message = f"the reservation pod on node {place.node} is {ended.status.phase} ({why})"
            outcome = "refused" if ended.status.reason in _NO_DEVICE else "failed"
            raise DeviceNotReserved(place, message, outcome)

    def _waits_for_lost(self, place: GpuPlace) -> bool:
        """Say whether another GPU of the node is lost: a new pod could get it instead."""
        return any(it.node == place.node and it != place for it in self.lost)

    def _refuse_lost_node(self, place: GpuPlace) -> None:
        if place.node not in self._nodes:
            raise DeviceNotReserved(place, f"the node {place.node} does not exist any more")

    async def _create(self, place: GpuPlace) -> str:
        """Create a reservation pod; return its uid, or "" if one of its name may be there."""
        try:
            body = reservation_pod(place, await self._options(place))
            async with self._creations:
                pod = await self._writes.send(
                    lambda: self._client.create(PODS, RESERVATION_APP, body, _CREATE)
                )
        except (AlreadyExists, Unavailable):
            return ""  # the watch shows it, or it is created again
        except (DeviceNotReserved, Unauthorized):
            raise
        except ApiError as error:
            message = f"no reservation pod can be created on node {place.node}: {error}"
            raise DeviceNotReserved(place, message) from error
        return pod.metadata.uid

    async def _options(self, place: GpuPlace) -> ReservationPodOptions:
        image = await self._source.image.image()
        if image:
            return self._source.options._replace(image=image)
        message = "the image of reservation pods is not known: set reservation_pods.image"
        raise DeviceNotReserved(place, message)

    async def _wait(self, place: GpuPlace, seconds: float) -> None:
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
