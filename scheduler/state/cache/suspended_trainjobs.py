"""Which TrainJobs the scheduler has suspended, as their PodGroups say it."""

from collections.abc import Iterator
from typing import Final

from scheduler.state.cache.members import PodGroupMembers
from scheduler.state.inputs import Cluster
from scheduler.state.podgroups.attributes import (
    controlling_trainjob,
    has_eviction_copy,
    is_suspended_by_eviction,
)
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob

__all__ = ["SuspendedTrainJobs"]


class SuspendedTrainJobs:
    """The suspended TrainJobs of *cluster*, and their PodGroups; *members* has the owners."""

    def __init__(self, cluster: Cluster, members: PodGroupMembers) -> None:
        self._cluster: Final = cluster
        self._members: Final = members

    def trainjobs(self) -> list[Key]:
        """Return the TrainJobs with an eviction record, on a PodGroup or copied, forged or not."""
        recorded = (self.trainjob_of(group) for group in self._groups_with_record())
        copied = (job for job in self._cluster.trainjobs.values() if has_eviction_copy(job))
        return [*dict.fromkeys(job.metadata.key for job in (*recorded, *copied) if job)]

    def evicted_groups(self) -> list[PodGroup]:
        """Return the PodGroups whose TrainJob is suspended by an eviction."""
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
        meta = group.metadata
        owned = {owner.name: owner.uid for owner in meta.owner_references}
        found = (self._cluster.jobsets.get(Key(meta.namespace, name)) for name in owned)
        return next((it for it in found if it and it.metadata.uid in owned.values()), None)

    def trainjob_of(self, group: PodGroup) -> TrainJob | None:
        """Return the TrainJob that controls the JobSet of a PodGroup."""
        return controlling_trainjob(self.jobset_of(group), self._cluster.trainjobs)

    def _groups_with_record(self) -> Iterator[PodGroup]:
        groups = self._cluster.pod_groups.values()
        return (it for it in groups if EVICTED_BY in it.metadata.annotations)
