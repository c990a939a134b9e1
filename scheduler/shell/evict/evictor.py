"""Evicts PodGroups, and limits how long their pods may take to terminate.

A workload is suspended and resumed, other pods are deleted. Victims are evicted only if all that
their preemptor needs can be: a dry run checks that before the first eviction. A failure after the
dry run is an accident: the other evictions go on, and the next plan sees the result.

Resources that are used over quota can be reclaimed only if pods terminate in time, and a user may
have asked for 68 years. A pod with a grace period longer than the configuration allows is deleted
once more, with the longest grace period that it may have, which the API server counts from the
first deletion: at once if it was evicted, by itself or with its workload, because other pods wait
for its node; else when it has had that long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.shell.event_objects import event_object, post_event
from scheduler.shell.evict.rate_limit import evicted_gpus_annotation
from scheduler.shell.evict.suspend_resume import Suspender
from scheduler.shell.evict.write_eviction_records import last_eviction_annotation
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PlannedEviction, PodGroupCommands
from scheduler.state.inputs import epoch_s
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    DISRUPTION_TARGET,
    EVICTED_GPUS,
    LAST_EVICTION,
    LAST_EVICTION_RECORD,
    POD_GROUP,
)
from trainer_kai.api.resources import PODGROUPS, PODS
from trainer_kai.api.text import listed_names
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventRecorder
from trainer_kai.kube.rest.request import DeleteOptions, WriteOptions
from trainer_kai.kube.rest.response import ApiError, Conflict, NotFound
from trainer_kai.service.metrics import Metrics

DISRUPTION_TARGET_WRITE: Final = WriteOptions(
    field_manager="trainer-kai-eviction", subresource="status", force=True
)
_ANNOTATE: Final = WriteOptions(field_manager=FIELD_MANAGER)
_MAX_CONCURRENT_WRITES: Final = 16
_MAX_NAMED: Final = 3  # victims that an Event names
_TICK_S: Final = 3.0


class Evictor:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        suspender: Suspender,
        recorder: EventRecorder,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._cache = cache
        self._suspender = suspender
        self._recorder = recorder
        self._log = log
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)

    async def evict_all(
        self, commands: PodGroupCommands, is_still_wanted: Callable[[], bool]
    ) -> tuple[tuple[PlannedEviction, ...], bool]:
        """Evict all victims of the commands, or none unless one fails after its dry run.

        They are evicted if the preemptor *is_still_wanted*, and for a stale gang, which has none.
        Return the evictions that failed, and whether to back off before they are tried again:
        Workloads are backed off here.
        """
        evictions = commands.evictions
        reasons = await self._gather(self._dry_run(eviction) for eviction in evictions)
        if not any(reasons):
            if not is_still_wanted():
                return evictions, False
            reasons = await self._gather(self._evict_one(eviction) for eviction in evictions)
            failed = tuple([it for it, why in zip(evictions, reasons, strict=True) if why])
        else:
            failed = evictions
        need_backoff = [self._record_failure(*it) for it in zip(evictions, reasons, strict=True)]
        if not failed and any(it.preemptor for it in evictions):
            self._post_to_preemptor(commands.group, evictions)
        return failed, any(need_backoff)

    def _record_failure(self, eviction: PlannedEviction, reason: str | None) -> bool:
        if reason is None:
            return False
        self._metrics.evictions.labels(eviction.action, "refused", eviction.queue).inc()
        self._log.warning("victim not evicted", victim=eviction.title, reason=reason)
        if eviction.suspends is None or not eviction.suspends.uid:
            if eviction.preemptor is None:  # no condition of a preemptor shows it
                message = f"Not evicted: {reason}. Cause of the eviction: {eviction.reason}"
                self._post(eviction.groups[0], "NotEvicted", message)
            return True
        self._suspender.back_off(eviction.suspends, reason)
        return False

    def _post_to_preemptor(self, preemptor: Key, evictions: tuple[PlannedEviction, ...]) -> None:
        names = listed_names([eviction.title for eviction in evictions], _MAX_NAMED)
        message = f"Starts when the evicted pods have terminated: those of {names}"
        self._post(preemptor, "Evicting", message)

    async def _gather(self, calls: Iterable[Awaitable[str | None]]) -> list[str | None]:
        async def failure_of(it: Awaitable[str | None]) -> str | None:
            try:
                return await it
            except ApiError as error:
                return str(error)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(failure_of(it)) for it in calls]
        return [task.result() for task in tasks]

    async def _dry_run(self, eviction: PlannedEviction) -> str | None:
        if eviction.suspends is None:
            return await self._delete_pods(eviction, is_dry=True)
        async with self._semaphore:
            return await self._suspender.dry_run_failure(eviction.suspends)

    async def _evict_one(self, eviction: PlannedEviction) -> str | None:
        if eviction.suspends is None:
            reason = await self._delete_pods(eviction)
        else:
            async with self._semaphore:
                reason = await self._suspender.suspend(eviction, eviction.suspends)
        if reason is not None:
            return reason
        for group in eviction.groups:  # the first PodGroup records the GPUs of all
            await self._annotate_eviction(
                group, eviction, eviction.gpus if group == eviction.groups[0] else 0
            )
            self._post(group, "Evict", eviction.reason)
        self._metrics.evictions.labels(eviction.action, "evicted", eviction.queue).inc()
        self._log.info(
            "victim evicted",
            victim=eviction.title,
            reason=eviction.reason,
            pods=len(eviction.pods),
        )
        return None

    async def _delete_pods(self, eviction: PlannedEviction, *, is_dry: bool = False) -> str | None:
        named = zip(eviction.pods, eviction.uids, strict=True)
        reasons = await self._gather(
            self._delete_pod(key, uid, eviction.reason, is_dry=is_dry) for key, uid in named
        )
        return next(filter(None, reasons), None)

    async def _delete_pod(self, key: Key, uid: str, why: str, *, is_dry: bool) -> str | None:
        pod = self._cache.cluster.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            return None  # the pod has terminated
        fields = {
            "metadata": {"uid": uid},
            "status": {"conditions": [disruption_target(why, self._now())]},
        }
        try:
            async with self._semaphore:
                if not is_dry:
                    await self._client.apply(PODS, key, fields, DISRUPTION_TARGET_WRITE)
                await self._client.delete(PODS, key, DeleteOptions(uid=uid, dry_run=is_dry))
        except (NotFound, Conflict):
            return None
        if not is_dry and not pod.metadata.annotations.get(POD_GROUP):
            self._recorder.post(event_object(PODS, pod.metadata), "Evict", why)
        return None

    async def _annotate_eviction(self, key: Key, eviction: PlannedEviction, gpus: int) -> None:
        """Write on a PodGroup that it was evicted, for its preemption delay and the rate limit."""
        group = self._cache.cluster.pod_groups.get(key)
        if group is None:
            return
        evicted_gpus = evicted_gpus_annotation(
            group.metadata, gpus, self._client.clock.now().timestamp()
        )
        at = self._now()
        annotations = {
            LAST_EVICTION: at,
            EVICTED_GPUS: evicted_gpus,
            LAST_EVICTION_RECORD: last_eviction_annotation(group, eviction, at),
        }
        fields = {"uid": group.metadata.uid, "annotations": annotations}
        try:
            async with self._semaphore:
                await self._client.merge_patch(PODGROUPS, key, {"metadata": fields}, _ANNOTATE)
        except ApiError as error:  # the eviction is carried out nevertheless
            self._log.warning("evicted podgroup not annotated", group=str(key), error=str(error))

    def _now(self) -> str:
        return self._client.clock.now().isoformat(timespec="seconds")

    def _post(self, key: Key, reason: str, message: str) -> None:
        """Post an Event about a PodGroup; all but that of an eviction on its workload, too."""
        group = self._cache.cluster.pod_groups.get(key)
        if group is None:
            return
        if reason == "Evict":
            self._recorder.post(event_object(PODGROUPS, group.metadata), reason, message)
        else:
            post_event(self._cache, self._recorder, group, (reason, reason), message)


def disruption_target(
    message: str, at: str, reason: str = "PreemptionByScheduler"
) -> dict[str, Any]:
    return {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


class TerminationGraceLimiter:
    def __init__(
        self, client: Client, cache: ClusterCache, max_grace_s: float, log: FilteringBoundLogger
    ) -> None:
        self._client = client
        self._cache = cache
        # With 0 the pod would be removed before the kubelet has stopped it.
        self._max_grace_s = max(int(max_grace_s), 1)
        self._log = log

    async def run(self) -> None:
        while True:
            await self._client.clock.sleep(_TICK_S)
            for meta in self._pods_over_limit():
                await self._shorten(meta)

    def _pods_over_limit(self) -> list[Meta]:
        terminating = (pod.metadata for pod in self._cache.terminating_pods)
        over_limit = [
            it for it in terminating if it.deletion_grace_period_seconds > self._max_grace_s
        ]
        if not over_limit:
            return []
        evicted, now_s = self._evicted_pods(), self._client.clock.now().timestamp()
        return [it for it in over_limit if it.key in evicted or self._deadline_s(it) <= now_s]

    def _evicted_pods(self) -> set[Key]:
        cache = self._cache
        deleted = (
            it
            for evictions in cache.in_flight_evictions.current().values()
            for one in evictions
            for it in one.pods
        )
        suspended = (
            it
            for one in cache.suspended_workloads.evicted_groups()
            for it in cache.members.placed_pods(one.metadata.key)
        )
        return {*deleted, *suspended}

    def _deadline_s(self, meta: Meta) -> float:
        deletion_s = epoch_s(meta.deletion_timestamp) or 0
        return deletion_s - meta.deletion_grace_period_seconds + self._max_grace_s

    async def _shorten(self, meta: Meta) -> None:
        deletion = DeleteOptions(uid=meta.uid, grace_s=self._max_grace_s)
        try:
            await self._client.delete(PODS, meta.key, deletion)
        except NotFound:
            return  # the pod has terminated
        except ApiError as error:
            self._log.warning("pod grace not shortened", pod=str(meta.key), error=str(error))
            return
        self._log.info("pod grace shortened", pod=str(meta.key), to_s=self._max_grace_s)
