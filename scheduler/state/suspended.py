"""Which TrainJobs are suspended by us: as their PodGroups say it, and by way of their JobSets."""

from collections.abc import Iterator
from typing import Final

from scheduler.state.cluster import Cluster
from scheduler.state.members import Members
from scheduler.state.stays import is_copied, is_held, trainjob_of
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob

__all__ = ["Suspended"]


class Suspended:
    """What is known is what *cluster* says; whose a group is, what *members* say."""

    def __init__(self, cluster: Cluster, members: Members) -> None:
        self._cluster: Final = cluster
        self._members: Final = members

    def trainjobs(self) -> list[Key]:
        """Return the TrainJobs with a record on a PodGroup, or a copy of one, forged or not."""
        told = (self.trainjob_of(group) for group in self._told())
        copied = (job for job in self._cluster.trainjobs.values() if is_copied(job))
        return [*dict.fromkeys(job.metadata.key for job in (*told, *copied) if job)]

    def groups(self) -> list[PodGroup]:
        """Return the PodGroups whose pods are to leave."""
        pairs = ((self.trainjob_of(group), group) for group in self._told())
        return [group for job, group in pairs if job is not None and is_held(job, group)]

    def named(self, trainjob: Key) -> list[PodGroup]:
        """Return the PodGroups that name a JobSet as their owner which is called like this."""
        return [self._cluster.pod_groups[it] for it in self._members.groups_of(trainjob)]

    def groups_of(self, job: TrainJob) -> list[PodGroup]:
        """Return the PodGroups of the JobSet that this very TrainJob controls."""
        jobset = self._cluster.jobsets.get(job.metadata.key)
        above = jobset.metadata.controller if jobset else None
        if above is None or above.uid != job.metadata.uid:
            return []
        return [it for it in self.named(job.metadata.key) if self.jobset_of(it) is jobset]

    def jobset_of(self, group: PodGroup) -> JobSet | None:
        """Return the JobSet that owns a PodGroup."""
        meta = group.metadata
        owned = {owner.name: owner.uid for owner in meta.owner_references}
        found = (self._cluster.jobsets.get(Key(meta.namespace, name)) for name in owned)
        return next((it for it in found if it and it.metadata.uid in owned.values()), None)

    def trainjob_of(self, group: PodGroup) -> TrainJob | None:
        """Return the TrainJob that controls the JobSet of a PodGroup."""
        return trainjob_of(self.jobset_of(group), self._cluster.trainjobs)

    def _told(self) -> Iterator[PodGroup]:
        groups = self._cluster.pod_groups.values()
        return (it for it in groups if EVICTED_BY in it.metadata.annotations)
