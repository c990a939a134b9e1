"""Binds PersistentVolumeClaims that wait for their first consumer, before their pod is bound.

Kubernetes creates the volume where the pod will run, so the claim is told the selected node first.
If no volume is created in time, the selected node is removed from the claim again. A claim costs
nothing while it waits: the watch wakes what waits for it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from scheduler.state.inputs import Cluster
from trainer_kai.api.cluster_kinds import PersistentVolumeClaim
from trainer_kai.api.meta import Key
from trainer_kai.api.names import NO_PROVISIONER, SELECTED_NODE
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import PVCS
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.tasks import within
from trainer_kai.kube.rest.response import ApiError, Conflict, ErrorDetails

_TIMEOUT_S: Final = 120.0  # a volume of a cloud takes a minute
_MOST_WAITING: Final = 500  # claims of one namespace: more would hold places for other pods' time


class VolumeNotBound(Conflict):
    """A claim has no volume in time: the pod is planned anew."""


class VolumeBinder:
    """Binds claims of the cached cluster, each once however many pods share it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._in_flight: dict[Key, asyncio.Task[None]] = {}  # pods of a gang may share a claim
        self._waiting: Counter[str] = Counter()  # claims that are in flight, by namespace
        self._changed: dict[Key, asyncio.Event] = {}  # of these claims

    def claim_changed(self, key: Key) -> None:
        if key in self._changed:
            self._changed[key].set()

    async def bind(self, client: Client, pod: Pod, node: str) -> None:
        for key in [*self._unbound_claims(pod)]:
            task = self._in_flight.get(key)
            if task is None:
                self._check_bound(key)
                task = asyncio.create_task(self._bind(client, key, node))
                self._in_flight[key] = task
                self._waiting[key.namespace] += 1
                task.add_done_callback(self._remove_when_done(key))
            await asyncio.shield(task)

    def _remove_when_done(self, key: Key) -> Callable[[asyncio.Task[None]], None]:
        def remove(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                task.exception()  # no pod awaits it any more if all of them were deleted
            self._in_flight.pop(key, None)
            self._changed.pop(key, None)
            self._waiting[key.namespace] -= 1
            if not self._waiting[key.namespace]:
                del self._waiting[key.namespace]

        return remove

    def _check_bound(self, key: Key) -> None:
        if self._waiting[key.namespace] >= _MOST_WAITING:
            message = (
                f"{_MOST_WAITING} PersistentVolumeClaims of namespace {key.namespace} wait for "
                f"their volumes, and no more may: PersistentVolumeClaim {key.name} comes later"
            )
            raise VolumeNotBound(ErrorDetails(f"BIND {key}", 0, "", message))

    def _unbound_claims(self, pod: Pod) -> Iterator[Key]:
        for volume in pod.spec.volumes:
            name = f"{pod.metadata.name}-{volume.name}" if volume.ephemeral else ""
            if volume.persistent_volume_claim:
                name = volume.persistent_volume_claim.claim_name
            claim = self._cluster.claims.get(Key(pod.metadata.namespace, name))
            if (
                claim is not None
                and not claim.spec.volume_name
                and self._waits_for_first_consumer(claim)
            ):
                yield claim.metadata.key

    def _waits_for_first_consumer(self, claim: PersistentVolumeClaim) -> bool:
        storage_class = self._cluster.storage_classes.get(claim.spec.storage_class_name or "")
        return storage_class is not None and (
            storage_class.volume_binding_mode == "WaitForFirstConsumer"
            and storage_class.provisioner != NO_PROVISIONER
        )

    async def _bind(self, client: Client, key: Key, node: str) -> None:
        known = self._cluster.claims.get(key)
        uid = {"uid": known.metadata.uid} if known else {}
        fields = {"metadata": {**uid, "annotations": {SELECTED_NODE: node}}}
        changed = self._changed[key] = asyncio.Event()
        await client.merge_patch(PVCS, key, fields)
        deadline_s = client.clock.monotonic_s() + _TIMEOUT_S
        while True:
            changed.clear()
            claim = self._cluster.claims.get(key)
            if claim is not None and claim.spec.volume_name and claim.status.phase == "Bound":
                return
            left_s = deadline_s - client.clock.monotonic_s()
            if claim is None or left_s <= 0:
                await self._clear_selected_node(client, key)
                waited = f"on node {node} after {_TIMEOUT_S:g} s"
                message = f"PersistentVolumeClaim {key} has no volume {waited}"
                raise VolumeNotBound(ErrorDetails(f"BIND {key}", 0, "", message))
            with suppress(TimeoutError):
                await within(client.clock, left_s, changed.wait())

    async def _clear_selected_node(self, client: Client, key: Key) -> None:
        try:
            await client.merge_patch(
                PVCS, key, {"metadata": {"annotations": {SELECTED_NODE: None}}}
            )
        except ApiError:
            return  # the claim is gone, or another client has changed it
