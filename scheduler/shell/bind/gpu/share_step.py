"""Gives pods their shares of GPUs before they are bound; each write can be repeated and undone.

1. The GPUs are reserved, and their devices known.
2. The pod gets the labels of its GPUs, so that it counts as their user whatever happens next.
3. The ConfigMaps that its container waits for are written.

Then it is bound. After a failure the writes are undone in reverse; a GPU that no pod uses any more
is released by `ReservationController`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.gpu.reservation_manifest import GpuPlace
from scheduler.shell.bind.gpu.reserve_device import DeviceNotReserved, ReservationPods
from scheduler.shell.bind.steps import BindStep, PodBind
from scheduler.shell.bind.writes import FIELD_MANAGER, LimitedWrites
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PodGroupCommands
from scheduler.state.nodes.node_table import gpu_memory_mib
from scheduler.state.pods.gpu_share_metadata import (
    GpuSharing,
    gpu_group_labels,
    is_gpu_group,
    read_gpu_sharing,
)
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    CDI_GPU_PREFIX,
    GPU_CONFIG_MAP,
    GPU_DEVICES,
    RECEIVED_TYPE,
)
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import CONFIG_MAPS, PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError, Conflict, ErrorDetails, NotFound
from trainer_kai.policy.pods.gpu_share_config_maps import (
    VISIBLE_DEVICES,
    GpuConfigMaps,
    config_map_data,
    is_config_map_prefix,
    sharing_container,
)
from trainer_kai.policy.pods.requests import pod_requests

_FRACTION: Final = "Fraction"  # of a pod that shares GPUs, in KAI's words
_LABEL: Final = WriteOptions(field_manager=FIELD_MANAGER, subresource="status")
_APPLY: Final = WriteOptions(field_manager=FIELD_MANAGER, force=True)
_LABEL_TRIES: Final = 3  # the status of the pod may change meanwhile


class ShareOptions(NamedTuple):
    limits_memory: bool = False  # for HAMi-core
    cdi: bool = False  # devices have the names of the Container Device Interface
    gpu_resources: tuple[str, ...] = ()


class GpuShareStep(BindStep):
    """Prepares and undoes a pod under a lock of its own."""

    name = "gpu share"

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        reservations: ReservationPods,
        writes: LimitedWrites,
        options: ShareOptions,
        log: FilteringBoundLogger,
    ) -> None:
        self._client: Final = client
        self._cache: Final = cache
        self.reservations: Final = reservations
        self._writes: Final = writes
        self._options: Final = options
        self._log: Final = log
        self._locks: Final = _PodLocks()

    async def reserve(self, commands: PodGroupCommands) -> Mapping[Key, ApiError]:
        if not commands.gpu_groups:
            return {}
        binds = [it for it in commands.binds if it.pod in commands.gpu_groups]
        outcomes = await asyncio.gather(
            *(self._reserve(pod, _places(node, commands.gpu_groups[pod])) for pod, node in binds)
        )
        pairs = zip(binds, outcomes, strict=True)
        failures = {it.pod: outcome for it, outcome in pairs if outcome is not None}
        for pod, error in failures.items():
            self._log.warning("gpu not reserved", pod=str(pod), error=str(error))
            if isinstance(error, DeviceNotReserved) and error.is_of_node:
                node = next(it.node for it in binds if it.pod == pod)
                self._cache.node_refusals.note_node(commands.group, node, error.message)
        return failures

    async def _reserve(self, key: Key, places: list[GpuPlace]) -> ApiError | None:
        """Have the GPUs of a pod reserved; return why they are not."""
        pod = self._cache.cluster.pods.get(key)
        if pod is None:
            return _lost(key)
        try:
            self._config_maps(pod, places[0])
        except DeviceNotReserved as error:
            return error
        devices = await asyncio.gather(
            *(self.reservations.device(it) for it in places),
            return_exceptions=True,
        )
        for it in devices:
            if isinstance(it, ApiError):
                return it
            if isinstance(it, BaseException):
                raise it
        return None

    def gpus_of(self, pod: Pod) -> int:
        """Return the thousandths of GPUs that a pod on a node has, in parts or whole."""
        sharing = self._sharing(pod)
        if sharing is not None:
            return sharing.queue_request(self._memory_mib(pod.spec.node_name))
        amounts = pod_requests(pod.spec)
        return sum(amounts.get(it, 0) for it in self._options.gpu_resources)

    def is_done(self, bind: PodBind) -> bool:
        return bind.pod not in bind.commands.gpu_groups

    async def prepare(self, bind: PodBind) -> None:
        """Label the pod, and write its ConfigMaps.

        If its GPU was reserved anew since an earlier pod of the group was prepared, the two have
        different devices: the controller deletes the users of the older one.
        """
        groups = bind.commands.gpu_groups[bind.pod]
        places = _places(bind.node, groups)
        async with self._locks.hold(bind.pod):
            devices = [self.reservations.known_device(it) for it in places]
            self._refuse_lost(places, devices)
            labelled = await self._label(bind.pod, gpu_group_labels(groups), devices)
            try:
                await self._write_config_maps(labelled, places[0], devices)
                self._refuse_lost(places, devices)
            except ApiError:
                with suppress(ApiError):  # what is left is removed as a leftover
                    await self._remove(labelled)
                raise

    async def _write_config_maps(
        self, labelled: Pod, place: GpuPlace, devices: Sequence[str]
    ) -> None:
        key = labelled.metadata.key
        pod = self._cache.cluster.pods.get(key)
        if pod is None or pod.metadata.uid != labelled.metadata.uid:
            raise _lost(key)
        maps = self._config_maps(pod, place)
        data = self._data(pod, place, devices)
        await self._apply(pod, maps.capabilities, data)
        # KAI reads the device here where a container has a variable of its own for it.
        await self._apply(pod, maps.direct_env, {VISIBLE_DEVICES: data[VISIBLE_DEVICES]})

    def _refuse_lost(self, places: Sequence[GpuPlace], devices: Sequence[str]) -> None:
        """Refuse GPUs that are not reserved, or not these devices any more."""
        for place, device in zip(places, devices, strict=True):
            node = place.node
            if node not in self._cache.cluster.nodes:
                raise DeviceNotReserved(place, f"the node {node} does not exist any more")
            if not device or self.reservations.known_device(place) != device:
                named = device or f"of group {place.group}"
                message = f"the GPU {named} of node {node} is not reserved any more"
                raise DeviceNotReserved(place, message)

    async def undo(self, bind: PodBind) -> None:
        """Remove what `prepare` wrote; what that leaves is removed as a leftover."""
        async with self._locks.hold(bind.pod):
            pod = self._cache.assumed.seen_pod(bind.pod)
            if pod is None or pod.spec.node_name:
                return
            try:
                with suppress(NotFound, Conflict):  # it is gone, or is seen bound in a moment
                    await self._remove(pod)
            except ApiError as error:
                self._log.warning("gpu share not undone", pod=str(bind.pod), error=str(error))

    async def undo_leftover(self, key: Key) -> None:
        """Remove what was written on a pod that is on no node now; a conflict is raised."""
        async with self._locks.hold(key):
            pod, assumed = self._cache.assumed.seen_pod(key), self._cache.assumed
            if pod is not None and not pod.spec.node_name and not assumed.gpu_groups(key):
                await self._remove(pod)

    async def _label(self, key: Key, labels: Mapping[str, str], devices: Sequence[str]) -> Pod:
        """Label the pod as it was planned: a change of its queue or PodGroup is a conflict."""
        for tries_left in reversed(range(_LABEL_TRIES)):
            meta, seen = self._cache.assumed.bound_metadata(key), self._cache.assumed.seen_pod(key)
            if meta is None or seen is None:
                raise _lost(key)
            annotations = {RECEIVED_TYPE: _FRACTION, GPU_DEVICES: ",".join(devices)}
            body = _patch(meta, seen.metadata, labels, annotations)
            try:
                patched = await self._writes.send(
                    lambda body=body: self._client.merge_patch(PODS, key, body, _LABEL)  # type: ignore[misc]
                )
            except Conflict:
                if not tries_left:
                    raise
                await self._client.clock.sleep(0.02)
            else:
                self._cache.assumed.set_bound_metadata(key, patched.metadata)
                return patched
        raise _lost(key)

    def _config_maps(self, pod: Pod, place: GpuPlace) -> GpuConfigMaps:
        maps = _named_config_maps(pod)
        if maps is None:
            message = f"pod {pod.metadata.key} was not prepared by the webhook to share a GPU"
            raise DeviceNotReserved(place, message)
        return maps

    def _data(self, pod: Pod, place: GpuPlace, devices: Sequence[str]) -> dict[str, str]:
        sharing, memory_mib = self._sharing(pod), self._memory_mib(place.node)
        if sharing is None:
            message = f"pod {pod.metadata.key} does not request the share any more that it gets"
            raise DeviceNotReserved(place, message)
        hundredths = max((sharing.thousandths_of_device(memory_mib) + 5) // 10, 1)
        limit = memory_mib * hundredths // 100 if self._options.limits_memory else 0
        names = [f"{CDI_GPU_PREFIX}{it}" if self._options.cdi else it for it in devices]
        return config_map_data(names, hundredths, limit or None)

    def _sharing(self, pod: Pod) -> GpuSharing | None:
        amounts = pod_requests(pod.spec)
        found = read_gpu_sharing(pod.metadata.annotations, amounts, self._options.gpu_resources)
        return found if isinstance(found, GpuSharing) else None

    def _memory_mib(self, node: str) -> int:
        known = self._cache.cluster.nodes.get(node)
        return gpu_memory_mib(known) if known else 0

    async def _apply(self, pod: Pod, name: str, data: Mapping[str, str]) -> None:
        meta = pod.metadata
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        body = {"metadata": {"ownerReferences": [owner]}, "data": dict(data)}
        key = Key(meta.namespace, name)
        await self._writes.send(lambda: self._client.apply(CONFIG_MAPS, key, body, _APPLY))

    async def _remove(self, pod: Pod) -> None:
        """Mark the pod, delete its ConfigMaps, then remove the labels that say what is left.

        The mark changes the version of the pod, so that a bind that is still under way is refused.
        """
        meta = pod.metadata
        marked = await self._annotate(meta, meta.resource_version, {}, {GPU_DEVICES: ""})
        maps = _named_config_maps(pod)
        for name in (maps.capabilities, maps.direct_env) if maps else ():
            await self._delete_config_map(Key(meta.namespace, name))
        labels = dict.fromkeys(filter(is_gpu_group, marked.metadata.labels))
        annotations = {RECEIVED_TYPE: None, GPU_DEVICES: None}
        await self._annotate(meta, "", labels, annotations)

    async def _annotate(
        self,
        meta: Meta,
        version: str,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str | None],
    ) -> Pod:
        fields: dict[str, Any] = {"uid": meta.uid, "labels": labels, "annotations": annotations}
        if version:
            fields["resourceVersion"] = version
        body = {"metadata": fields}
        return await self._writes.send(
            lambda: self._client.merge_patch(PODS, meta.key, body, _LABEL)
        )

    async def _delete_config_map(self, key: Key) -> None:
        try:
            await self._writes.send(lambda: self._client.delete(CONFIG_MAPS, key))
        except NotFound:
            return


class _PodLocks:
    """One lock for each pod that is worked on."""

    def __init__(self) -> None:
        self._locks: Final[dict[Key, tuple[asyncio.Lock, int]]] = {}

    @asynccontextmanager
    async def hold(self, key: Key) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, users - 1


def _places(node: str, groups: Iterable[str]) -> list[GpuPlace]:
    return [GpuPlace(node, group) for group in groups]


def _patch(
    chosen: Meta, seen: Meta, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return the patch of a pod in the version that was chosen; labels of before are removed."""
    old = dict.fromkeys(name for name in seen.labels if is_gpu_group(name))
    return {
        "metadata": {
            "uid": chosen.uid,
            "resourceVersion": chosen.resource_version,
            "labels": {**old, **labels},
            "annotations": dict(annotations),
        }
    }


def _named_config_maps(pod: Pod) -> GpuConfigMaps | None:
    """Return the ConfigMaps to which the webhook made a pod refer; None for an unprepared pod."""
    container = sharing_container(pod.metadata.annotations, pod.spec)
    prefix = pod.metadata.annotations.get(GPU_CONFIG_MAP, "")
    if container is None or not is_config_map_prefix(prefix):
        return None
    return GpuConfigMaps.of(prefix, container)


def _lost(key: Key) -> ApiError:
    return NotFound(ErrorDetails(f"BIND {key}", 404, "", "the pod is gone, or was planned anew"))
