"""What is written about the suspension of a workload: eviction records, and Jobs to recreate.

A record is an annotation on each PodGroup of a workload, written before it is suspended: it is
suspended only after all records were written, and a record without a suspension is removed again by
`suspend`, also after a restart. Each write names the uid of its PodGroup; one that is deleted or
recreated needs no record. A written record counts before a watch shows it: the watch of workloads
may be quicker, and a suspension without a record is its user's.

Jobs of which a kubelet refused pods, or of which some ranks have succeeded and others have not, are
deleted while their workload is suspended: its controller recreates them, suspended as it is, and
their pods run from rank 0 when it is resumed. There is no state here: which Jobs these are, and
which pods are left of Jobs that were deleted, is read each time, so the next leader continues. A
Job is deleted by its uid, and only while it, its workload and their owner are suspended; a policy
of the cluster keeps this process from deleting a Job that runs
(`manifests/base/policies/jobs.yaml`).
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.shell.evict.rate_limit import reduced_gpus_annotation
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PlannedEviction
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY, EVICTED_GPUS, LAST_EVICTION_RECORD
from trainer_kai.api.pod import Pod, kubelet_refusal
from trainer_kai.api.resources import JOBS, PODGROUPS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import DeleteOptions, ListTarget, Selection, WriteOptions
from trainer_kai.kube.rest.response import ApiError, Conflict, NotFound
from trainer_kai.policy.podgroups.eviction_record import (
    EvictionRecord,
    LastEviction,
    encode_eviction_record,
    encode_last_eviction,
    last_eviction_of,
)
from trainer_kai.policy.podgroups.grouping import workload_name
from trainer_kai.policy.workloads.recreation import JobProgress, job_progress, jobs_to_recreate
from trainer_kai.policy.workloads.workload import Suspendable, Workload

_Annotations: TypeAlias = dict[str, str | None]  # None removes one

_MAX_CONCURRENT_WRITES: Final = 16
_WATCH_DEADLINE_S: Final = 15.0  # until a watch must have shown a write
_WRITE: Final = WriteOptions(field_manager=FIELD_MANAGER)
_DRY_RUN: Final = WriteOptions(field_manager=FIELD_MANAGER, dry_run=True)


class EvictionRecords:
    def __init__(self, client: Client, cache: ClusterCache, log: FilteringBoundLogger) -> None:
        self._client = client
        self._cache = cache
        self._log = log
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)

    async def write(
        self,
        suspended: Suspendable,
        groups: Iterable[PodGroup],
        record: EvictionRecord,
        *,
        is_dry: bool = False,
    ) -> str | None:
        """Write on each PodGroup that its workload is evicted; return why one write fails."""
        notes: list[tuple[PodGroup, _Annotations]]
        notes = [
            (group, {EVICTED_BY: encode_eviction_record(suspended, group, record)})
            for group in groups
        ]
        return await self._write_all(notes, _DRY_RUN if is_dry else _WRITE)

    async def remove(self, groups: Iterable[PodGroup], unused_gpus: Mapping[Key, int]) -> bool:
        """Remove the records, and the GPUs that were not evicted; say whether that is done.

        If no pod with a GPU was evicted after all, no last eviction stays on the PodGroups either.
        """
        groups = [*groups]
        is_undone = any(_is_undone(it, unused_gpus.get(it.metadata.key, 0)) for it in groups)
        notes: list[tuple[PodGroup, _Annotations]] = []
        for group in groups:
            gpus = unused_gpus.get(group.metadata.key, 0)
            changes: _Annotations = {EVICTED_BY: None}
            if gpus:
                changes[EVICTED_GPUS] = reduced_gpus_annotation(group.metadata, gpus)
            if is_undone:
                changes[LAST_EVICTION_RECORD] = None
            notes.append((group, changes))
        reason = await self._write_all(notes, _WRITE)
        if reason is not None:
            self._log.warning("eviction record not removed", reason=reason)
        return reason is None

    async def _write_all(
        self, notes: Iterable[tuple[PodGroup, _Annotations]], write: WriteOptions
    ) -> str | None:
        async with asyncio.TaskGroup() as tasks:
            writes = [tasks.create_task(self._write_one(*it, write)) for it in notes]
        return next(filter(None, (task.result() for task in writes)), None)

    async def _write_one(
        self, group: PodGroup, notes: _Annotations, write: WriteOptions
    ) -> str | None:
        meta = group.metadata
        fields = {"metadata": {"uid": meta.uid, "annotations": notes}}
        try:
            async with self._semaphore:
                await self._client.merge_patch(PODGROUPS, meta.key, fields, write)
        except (NotFound, Conflict):
            return None
        except ApiError as error:
            return f"PodGroup {meta.key} cannot be annotated with its eviction: {error}"
        if not write.dry_run:
            until_s = self._client.clock.monotonic_s() + _WATCH_DEADLINE_S
            self._cache.assumed.record_eviction(group, notes[EVICTED_BY], until_s)
        return None


def last_eviction_annotation(group: PodGroup, eviction: PlannedEviction, at: str) -> str:
    """Return what stays on a PodGroup about an eviction: Events expire, and the record ends."""
    preemptor = eviction.preemptor
    last = LastEviction(
        at=at,
        action=eviction.action,
        queue=eviction.queue,
        preemptor=workload_name(preemptor) if preemptor is not None else "",
        preemptor_queue=eviction.preemptor_queue,
        gpus=_gpus(eviction.evicted_gpus),
        lost_gpu_seconds=eviction.lost_work,
        message=eviction.reason,
    )
    return encode_last_eviction(group, last)


def _gpus(milli: int) -> float:
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def _is_undone(group: PodGroup, unused_gpus: int) -> bool:
    last = last_eviction_of(group)
    return last is not None and 0 < 1000 * last.gpus <= unused_gpus


class JobRecreator:
    """Deletes partly succeeded Jobs of suspended workloads, which their controllers recreate."""

    def __init__(self, client: Client, cache: ClusterCache, log: FilteringBoundLogger) -> None:
        self._client = client
        self._cache = cache
        self._log = log
        self._list_lock = asyncio.Lock()  # one list at a time: a user's Jobs may be large

    async def recreate(self, suspended: Suspendable) -> bool:
        """Delete the Jobs that have partly succeeded; say whether no pod of such Jobs is left."""
        workload = self._cache.suspended_workloads.workload_of(suspended)
        if workload is None or not workload.kind.controls_jobs:
            return True
        if workload.is_finished:
            return True  # no Job of it runs again
        jobs = await self._jobs(workload)
        succeeded, refused = self._succeeded(suspended), self._refused(suspended)
        evicted = self._cache.api_evictions.counts_by_job()
        name = self._cache.scheduler_name
        to_delete = [*jobs_to_recreate(workload, name, jobs, succeeded, evicted)]
        # Their counters would say that the workload failed, where its nodes did. What has succeeded
        # is worth more.
        of_no_use = refused - succeeded.keys() - {it.uid for it in to_delete}
        to_delete += [it for it in jobs if it.uid in of_no_use and not it.succeeded]
        for one in to_delete:
            await self._delete(one)
        return not to_delete and succeeded.keys() | refused <= {it.uid for it in jobs}

    async def _jobs(self, workload: Workload) -> list[JobProgress]:
        meta, kind, progress = workload.metadata, workload.kind, list[JobProgress]()
        selection = Selection(labels=f"{kind.name_label}={meta.name}")
        async with self._list_lock:
            async for page in self._client.pages(ListTarget(JOBS, meta.namespace, selection)):
                owned = ((it, it.metadata.controller) for it in page.items)
                progress += [
                    job_progress(it, kind) for it, owner in owned if owner and owner.uid == meta.uid
                ]
        return progress

    def _succeeded(self, suspended: Suspendable) -> Counter[str]:
        """Count the pods of a workload that succeeded and still exist, by their Job's uid."""
        pods = self._pods(suspended)
        owners = (it.metadata.controller for it in pods if it.status.phase == "Succeeded")
        return Counter(it.uid for it in owners if it is not None)

    def _refused(self, suspended: Suspendable) -> set[str]:
        """Return the uids of the Jobs with pods that a kubelet refused, and that still exist."""
        owners = (it.metadata.controller for it in self._pods(suspended) if kubelet_refusal(it))
        return {it.uid for it in owners if it is not None}

    def _pods(self, suspended: Suspendable) -> Iterator[Pod]:
        cache = self._cache
        for group in cache.members.groups_of(suspended.key):
            for key in cache.members.pods_of(group):
                yield cache.cluster.pods[key]

    async def _delete(self, job: JobProgress) -> None:
        try:
            await self._client.delete(JOBS, job.key, DeleteOptions(uid=job.uid))
        except (NotFound, Conflict):
            return  # the Job is deleted or recreated
        self._log.info("job deleted for recreation", job=str(job.key), succeeded=job.succeeded)
