"""TrainJobs that the scheduler has suspended, by their PodGroups; and why others cannot be.

The pods of a suspended TrainJob are assumed to terminate until it is resumed: JobSet deletes them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from scheduler.core.model.cluster_events import NO_EVENT, ClusterEvent
from scheduler.state.cache.assumed import AssumedChanges
from scheduler.state.cache.members import PodGroupMembers
from scheduler.state.inputs import Cluster, ObjectStore, StateOptions, format_timestamp
from scheduler.state.podgroups.attributes import (
    controlling_trainjob,
    has_eviction_copy,
    is_suspended_by_eviction,
    owning_jobset,
    suspend_refusal,
    will_run_again,
)
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.podgroups.eviction_record import is_evicted


class SuspendedTrainJobs:
    """The suspended TrainJobs of *cluster*, and their PodGroups; *members* has the owners."""

    def __init__(
        self,
        cluster: Cluster,
        members: PodGroupMembers,
        assumed: AssumedChanges,
        refusals: ObjectStore[Key, str],
        options: Callable[[], StateOptions],
    ) -> None:
        """*refusals* says why TrainJobs cannot be suspended."""
        self._cluster: Final = cluster
        self._members: Final = members
        self._assumed: Final = assumed
        self._refusals: Final = refusals
        self._options: Final = options
        self._kueue: Final = options().kueue
        self._is_leading = False
        self.on_record_change: Callable[[Key], None] | None = None
        """Called with a TrainJob when its eviction record has changed."""

    def start_leading(self) -> None:
        """Assume evictions from now on; each leader tries by itself what can be suspended."""
        self._is_leading = True
        for job in [*self._refusals.objects]:
            self._refusals.put(job, None)
        self.assume_evicted()

    def stop_leading(self) -> None:
        """Assume nothing any more."""
        self._is_leading = False
        self.on_record_change = None

    def set_refusal(self, job: Key, reason: str | None) -> ClusterEvent:
        """Note why a TrainJob cannot be suspended; None if it can be."""
        before = self._refusals.objects.get(job)
        self._refusals.put(job, reason)
        if reason is not None:
            self._forget_evictions(self._members.placed_pods_of_jobset(job))
        return NO_EVENT if before == reason else ClusterEvent.ANY

    def pods_not_terminating(self, job: Key) -> list[Key]:
        """Return the pods of a TrainJob on nodes that were not seen to terminate."""
        seen = ((it, self._assumed.seen_pod(it)) for it in self._members.placed_pods_of_jobset(job))
        return [key for key, pod in seen if pod and not pod.metadata.deletion_timestamp]

    def assume_evicted(self) -> None:
        """Assume that the pods of suspended TrainJobs terminate, until that is seen."""
        for group in self.evicted_groups():
            self._assume_evicted(group)

    def trainjob_event(
        self, key: Key, before: TrainJob | None, now: TrainJob | None
    ) -> ClusterEvent:
        """Return the cluster event of a TrainJob; of a new one of its name no refusal is known."""
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._refusals.put(key, None)
        groups = self.groups_naming(key)
        if now is not None and (
            has_eviction_copy(now) or any(is_evicted(now, it) for it in groups)
        ):
            self._notify(key)
        for it in groups:
            self._update_evicted(
                it,
                was=_is_suspended_by_eviction(before, it),
                is_now=_is_suspended_by_eviction(now, it),
            )
        was, is_ = (_fingerprint(it, groups, kueue=self._kueue) for it in (before, now))
        return NO_EVENT if was == is_ else ClusterEvent.ANY

    def update_record(self, before: PodGroup | None, now: PodGroup | None) -> None:
        """Note the eviction record of a PodGroup, if it has changed."""
        records = [it.metadata.annotations.get(EVICTED_BY) if it else None for it in (before, now)]
        group = now or before
        job = self.trainjob_of(group) if group and records[0] != records[1] else None
        if group is None or job is None:
            return
        self._notify(job.metadata.key)
        self._update_evicted(
            group,
            was=_is_suspended_by_eviction(job, before),
            is_now=_is_suspended_by_eviction(job, now),
        )

    def trainjobs(self) -> list[Key]:
        """Return the TrainJobs with an eviction record, on a PodGroup or copied, forged or not."""
        recorded = (self.trainjob_of(group) for group in self._groups_with_record())
        copied = (job for job in self._cluster.trainjobs.values() if has_eviction_copy(job))
        return [*dict.fromkeys(job.metadata.key for job in (*recorded, *copied) if job)]

    def evicted_groups(self) -> list[PodGroup]:
        """Return the PodGroups of TrainJobs that an eviction has suspended."""
        pairs = ((self.trainjob_of(group), group) for group in self._groups_with_record())
        return [
            group
            for job, group in pairs
            if job is not None and is_suspended_by_eviction(job, group)
        ]

    def groups_naming(self, trainjob: Key) -> list[PodGroup]:
        """Return the PodGroups that name a JobSet of this name as their owner."""
        return [self._cluster.pod_groups[it] for it in self._members.groups_of(trainjob)]

    def groups_of(self, job: TrainJob) -> list[PodGroup]:
        """Return the PodGroups of the JobSet that a TrainJob controls, by uid."""
        jobset = self._cluster.jobsets.get(job.metadata.key)
        controller = jobset.metadata.controller if jobset else None
        if controller is None or controller.uid != job.metadata.uid:
            return []
        return [it for it in self.groups_naming(job.metadata.key) if self.jobset_of(it) is jobset]

    def jobset_of(self, group: PodGroup) -> JobSet | None:
        """Return the JobSet that owns a PodGroup."""
        return owning_jobset(group, self._cluster.jobsets)

    def trainjob_of(self, group: PodGroup) -> TrainJob | None:
        """Return the TrainJob that controls the JobSet of a PodGroup."""
        return controlling_trainjob(self.jobset_of(group), self._cluster.trainjobs)

    def _groups_with_record(self) -> Iterator[PodGroup]:
        groups = self._cluster.pod_groups.values()
        return (it for it in groups if EVICTED_BY in it.metadata.annotations)

    def _notify(self, job: Key) -> None:
        if self.on_record_change is not None:
            self.on_record_change(job)

    def _update_evicted(self, group: PodGroup, *, was: bool, is_now: bool) -> None:
        """Assume that the pods of a PodGroup terminate while its TrainJob is evicted."""
        if is_now:
            self._assume_evicted(group)
        elif was:
            self._forget_evictions(self._members.placed_pods(group.metadata.key))

    def _assume_evicted(self, group: PodGroup) -> None:
        """Assume that the pods of a PodGroup terminate, until its TrainJob is resumed."""
        for key in self._members.placed_pods(group.metadata.key) if self._is_leading else ():
            meta = self._cluster.pods[key].metadata
            if not meta.deletion_timestamp:
                self._assumed.evict(key, meta.uid, format_timestamp(self._options().now))

    def _forget_evictions(self, pods: Iterable[Key]) -> None:
        for pod in pods:
            self._assumed.forget_eviction(pod)


def _is_suspended_by_eviction(job: TrainJob | None, group: PodGroup | None) -> bool:
    return job is not None and group is not None and is_suspended_by_eviction(job, group)


def _fingerprint(job: TrainJob | None, groups: Iterable[PodGroup], *, kueue: bool) -> object:
    """Return what of a TrainJob matters to a plan; one that is gone keeps no PodGroup back."""
    will_run = [job is None or will_run_again(job, it) for it in groups]
    return job and suspend_refusal(job, kueue=kueue), will_run
