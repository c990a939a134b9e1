"""Recreates Jobs of a suspended TrainJob of which some ranks have succeeded and others have not.

The JobSet controller recreates a Job that was deleted, suspended as its JobSet is, and its pods run
from rank 0 when it is resumed. There is no state here: which Jobs have partly succeeded, and which
pods are left of Jobs that were deleted, is read each time, so the next leader continues.

A Job is deleted by its uid, and only while TrainJob, JobSet and Job are suspended; a policy of the
cluster keeps this process from deleting a Job that runs (`manifests/base/policies/jobs.yaml`).
"""

import asyncio
from collections import Counter

from structlog.typing import FilteringBoundLogger

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.evictions.jobs_to_recreate import (
    JobProgress,
    job_progress,
    jobs_to_recreate,
)
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import JOBSET_NAME
from trainer_kai.api.resources import JOBS
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.errors import Conflict, NotFound
from trainer_kai.kube.rest.request import DeleteOptions, ListTarget, Selection


class JobRecreator:
    """Deletes the partly succeeded Jobs of suspended TrainJobs, so that JobSet recreates them."""

    def __init__(self, client: Client, cache: ClusterCache, log: FilteringBoundLogger) -> None:
        self._client = client
        self._cache = cache
        self._log = log
        self._list_lock = asyncio.Lock()  # one list at a time: a user's Jobs may be large

    async def recreate(self, job: TrainJob) -> bool:
        """Delete the Jobs that have partly succeeded; say whether no pod of such Jobs is left."""
        jobset = self._cache.cluster.jobsets.get(job.metadata.key)
        controller = jobset.metadata.controller if jobset else None
        if jobset is None or controller is None or controller.uid != job.metadata.uid:
            return True
        if jobset.status.terminal_state:
            return True  # no Job of it runs again
        jobs = await self._jobs(jobset)
        succeeded = self._succeeded(job)
        to_delete = [*jobs_to_recreate(jobset, self._cache.scheduler_name, jobs, succeeded)]
        for one in to_delete:
            await self._delete(one)
        return not to_delete and succeeded.keys() <= {it.uid for it in jobs}

    async def _jobs(self, jobset: JobSet) -> list[JobProgress]:
        meta, progress = jobset.metadata, list[JobProgress]()
        target = ListTarget(JOBS, meta.namespace, Selection(labels=f"{JOBSET_NAME}={meta.name}"))
        async with self._list_lock:
            async for page in self._client.pages(target):
                owned = ((it, it.metadata.controller) for it in page.items)
                progress += [
                    job_progress(it) for it, owner in owned if owner and owner.uid == meta.uid
                ]
        return progress

    def _succeeded(self, job: TrainJob) -> Counter[str]:
        """Count the pods of a TrainJob that succeeded and are still there, by their Job's uid."""
        groups = self._cache.members.groups_of(job.metadata.key)
        pods = (
            self._cache.cluster.pods[it]
            for group in groups
            for it in self._cache.members.pods_of(group)
        )
        owners = (it.metadata.controller for it in pods if it.status.phase == "Succeeded")
        return Counter(it.uid for it in owners if it is not None)

    async def _delete(self, job: JobProgress) -> None:
        try:
            await self._client.delete(JOBS, job.key, DeleteOptions(uid=job.uid))
        except (NotFound, Conflict):
            return  # the Job is deleted or recreated
        self._log.info("job deleted for recreation", job=str(job.key), succeeded=job.succeeded)
