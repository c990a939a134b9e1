"""Which Jobs cannot create their pods, and why: the last Event of each Job that may still apply.

Each plan checks whether they still do. One Event is kept for a Job, for at most `MAX_JOBS` Jobs:
to forget one makes no plan wrong, and a Job that fails again has another Event.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.members import PodGroupMembers
from scheduler.state.inputs import Cluster
from trainer_kai.api.cluster_kinds import Event
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GANG, JOB_NAME
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.policy.podgroups.grouping import podgroup_name
from trainer_kai.policy.pods.creation_failures import (
    CreatedPod,
    PodCreationFailure,
    is_recent,
    read_creation_failure,
    still_applies,
)
from trainer_kai.policy.workloads.kinds import workload_of_job
from trainer_kai.policy.workloads.workload import Workload

MAX_JOBS: Final = 500

_ByJob: TypeAlias = Mapping[str, Sequence[CreatedPod]]


class CreationFailure(NamedTuple):
    reason: str
    existing: int
    required: int  # the PodGroup cannot be placed with fewer


class PodCreationFailures:
    """The last failure of each Job, and what that means for PodGroups."""

    def __init__(
        self, cluster: Cluster, members: PodGroupMembers, min_pods: Mapping[Key, int]
    ) -> None:
        self._cluster: Final = cluster
        self._members: Final = members
        self._min_pods: Final = min_pods
        self._by_job: dict[Key, PodCreationFailure] = {}
        self.by_podgroup: Mapping[Key, CreationFailure] = {}  # by PodGroup, as of the last refresh

    def __len__(self) -> int:
        return len(self._by_job)

    def update(self, key: Key, event: Event | None) -> ClusterEvent:
        if event is None:
            causes = self._by_job.items()
            outdated = [job for job, it in causes if Key(job.namespace, it.event) == key]
            for job in outdated:
                del self._by_job[job]
            return ClusterEvent.ANY if outdated else NO_EVENT
        one = read_creation_failure(event)
        before = self._by_job.get(one.job) if one else None
        if one is None or (before is not None and before[:2] > one[:2]):
            return NO_EVENT
        is_known = workload_of_job(one.job, self._cluster.workloads) is not None
        if len(self._by_job) >= MAX_JOBS and before is None:
            if not is_known:
                return NO_EVENT  # there may be any number of other Jobs
            del self._by_job[min(self._by_job.values()).job]
        self._by_job[one.job] = one
        is_new = before is None or before.reason != one.reason
        return ClusterEvent.ANY if is_new and is_known else NO_EVENT

    def refresh(self, now: int) -> None:
        """Forget what does not apply any more, and find the PodGroups of the others."""
        latest: dict[Key, PodCreationFailure] = {}
        created_pods: dict[Key, _ByJob] = {}  # by PodGroup; each is read once
        at = datetime.fromtimestamp(now, UTC)
        for one in sorted(self._by_job.values()):
            found = workload_of_job(one.job, self._cluster.workloads)
            if found is None and is_recent(one, at):
                continue  # a workload may be seen later than the events of its Jobs
            labels = found[1].template.spec.template.metadata.labels if found else {}
            group = _podgroup_key(found[0], labels.get(GANG)) if found else None
            if found and group and group not in created_pods:
                created_pods[group] = self._pods_by_job(group)
            pods = created_pods[group].get(one.job.name, ()) if group else ()
            if not found or not group or not still_applies(one, found[0], pods, at):
                del self._by_job[one.job]
            elif group in self._min_pods:
                latest[group] = one
        self.by_podgroup = {
            group: CreationFailure(
                str(one), _count_existing(created_pods[group]), self._min_pods[group]
            )
            for group, one in latest.items()
        }

    def _pods_by_job(self, group: Key) -> _ByJob:
        by_job: dict[str, list[CreatedPod]] = {}
        for key in self._members.pods_of(group):
            one = _created_pod(self._cluster.pods[key])
            by_job.setdefault(one.job, []).append(one)
        return by_job


def _podgroup_key(workload: Workload, suffix: str | None) -> Key | None:
    """Return the PodGroup that lacks the pods; None if the Job has no PodGroup of ours."""
    if suffix is None:
        return None
    return Key(
        workload.key.namespace, podgroup_name(workload.key.name, workload.metadata.uid, suffix)
    )


def _count_existing(created_pods: _ByJob) -> int:
    return sum(one.counts for pods in created_pods.values() for one in pods)


def _created_pod(pod: Pod) -> CreatedPod:
    meta = pod.metadata
    counts = not meta.deletion_timestamp and pod.status.phase not in TERMINAL_PHASES[1:]
    return CreatedPod(meta.labels.get(JOB_NAME, ""), meta.creation_timestamp, counts)
