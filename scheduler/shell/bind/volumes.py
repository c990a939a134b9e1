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

from scheduler.shell.bind.steps import BindStep, PodBind, StepFailed
from scheduler.state.cache.cache import ClusterCache
from trainer_kai.api.cluster_kinds import PersistentVolumeClaim
from trainer_kai.api.meta import Key
from trainer_kai.api.names import NO_PROVISIONER, SELECTED_NODE
from trainer_kai.api.resources import PVCS
from trainer_kai.kube.client import Client, RetryPolicy
from trainer_kai.kube.process.tasks import within
from trainer_kai.kube.rest.response import ApiError, ErrorDetails

_TIMEOUT_S: Final = 120.0  # a volume of a cloud takes a minute
_MOST_WAITING: Final = 500  # claims of one namespace: more would hold places for other pods' time


class VolumeNotBound(StepFailed):
    """A claim has no volume in time: the pod is planned anew."""

    def __init__(self, claim: Key, message: str) -> None:
        super().__init__(ErrorDetails(f"BIND {claim}", 0, "", message), "VolumeNotBound")


class VolumeStep(BindStep):
    """Binds claims of the cached cluster, each once however many pods share it."""

    name = "volumes"

    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client = client.with_retry_policy(RetryPolicy(waits_when_throttled=False))
        self._cluster = cache.cluster
        self._in_flight: dict[Key, asyncio.Task[None]] = {}  # pods of a gang may share a claim
        self._waiting: Counter[str] = Counter()  # claims that are in flight, by namespace
        self._changed: dict[Key, asyncio.Event] = {}  # of these claims
        cache.on_claim_change = self._claim_changed

    def _claim_changed(self, key: Key) -> None:
        if key in self._changed:
            self._changed[key].set()

    def is_done(self, bind: PodBind) -> bool:
        return next(self._unbound_claims(bind), None) is None

    async def prepare(self, bind: PodBind) -> None:
        for key in [*self._unbound_claims(bind)]:
            task = self._in_flight.get(key)
            if task is None:
                self._check_bound(key)
                task = asyncio.create_task(self._bind(key, bind.node))
                self._in_flight[key] = task
                self._waiting[key.namespace] += 1
                task.add_done_callback(self._remove_when_done(key))
            await asyncio.shield(task)

    async def undo(self, bind: PodBind) -> None:
        """Leave the volumes: they exist, and the pod is planned where they are."""

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
            raise VolumeNotBound(key, message)

    def _unbound_claims(self, bind: PodBind) -> Iterator[Key]:
        pod = self._cluster.pods.get(bind.pod)
        if pod is None or pod.metadata.uid != bind.uid:
            return
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

    async def _bind(self, key: Key, node: str) -> None:
        known = self._cluster.claims.get(key)
        uid = {"uid": known.metadata.uid} if known else {}
        fields = {"metadata": {**uid, "annotations": {SELECTED_NODE: node}}}
        changed = self._changed[key] = asyncio.Event()
        await self._client.merge_patch(PVCS, key, fields)
        deadline_s = self._client.clock.monotonic_s() + _TIMEOUT_S
        while True:
            changed.clear()
            claim = self._cluster.claims.get(key)
            if claim is not None and claim.spec.volume_name and claim.status.phase == "Bound":
                return
            left_s = deadline_s - self._client.clock.monotonic_s()
            if claim is None or left_s <= 0:
                await self._clear_selected_node(key)
                waited = f"on node {node} after {_TIMEOUT_S:g} s"
                message = f"PersistentVolumeClaim {key} has no volume {waited}"
                raise VolumeNotBound(key, message)
            with suppress(TimeoutError):
                await within(self._client.clock, left_s, changed.wait())

    async def _clear_selected_node(self, key: Key) -> None:
        try:
            await self._client.merge_patch(
                PVCS, key, {"metadata": {"annotations": {SELECTED_NODE: None}}}
            )
        except ApiError:
            return  # the claim is gone, or another client has changed it
