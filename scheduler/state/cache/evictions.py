"""Evictions that are not over yet, and the TrainJobs that they have suspended.

An eviction is in flight from the decision until its pods are gone or overdue. The pods of a
TrainJob that the scheduler has suspended are assumed to terminate until it is resumed: JobSet
deletes them.

A Job that is suspended and resumed leaves out the ranks that have succeeded. The others continue
from a checkpoint and wait for all ranks, so they would wait for ever: such Jobs are recreated. A
PodGroup that is complete stays complete, and so does a Job that runs its pods in several rounds:
those do not wait for each other.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.assumed import AssumedChanges
from scheduler.state.cache.members import PodGroupMembers, podgroup_key
from scheduler.state.commands import OwningTrainJob, PlannedEviction, PodGroupCommands
from scheduler.state.inputs import Cluster, ObjectStore, StateOptions, format_timestamp
from scheduler.state.podgroups.attributes import (
    controlling_trainjob,
    has_eviction_copy,
    is_suspended_by_eviction,
    owning_jobset,
    suspend_refusal,
    will_run_again,
)
from scheduler.state.podgroups.missing_pods import podset_of
from scheduler.state.podgroups.podgroup import (
    NamedPlace,
    ReservedPodSet,
    min_members,
    read_reserved,
    write_reserved,
)
from scheduler.state.pods.pod_table import termination_deadline
from trainer_kai.api.jobset import Job, JobSet
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import COMPLETION_INDEX, EVICTED_BY, REPLICATED_JOB, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.api.resources import JOBSETS
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.podgroups.anticipated import anticipated_pod
from trainer_kai.policy.podgroups.eviction_record import is_evicted
from trainer_kai.policy.podgroups.grouping import plan_podgroups

_RELOCATION_WAIT_S: Final = 300  # pods that come back later have no reserved places

PlannedEvictions: TypeAlias = tuple[PlannedEviction, ...]


class InFlightEvictions:
    """Evictions that were begun, by preemptor; *cluster* says which pods terminate."""

    def __init__(
        self, cluster: Cluster, assumed: AssumedChanges, options: Callable[[], StateOptions]
    ) -> None:
        self._cluster: Final = cluster
        self._assumed: Final = assumed
        self._options: Final = options
        self._by_preemptor: dict[Key, PlannedEvictions] = {}
        # PodGroups with an unconfirmed eviction, and the nodes of their reserved places.
        self._undecided: Final[dict[Key, frozenset[str]]] = {}

    def begin(self, preemptor: Key, evictions: PlannedEvictions, now: int) -> PlannedEvictions:
        """Assume evictions for a preemptor; return them with uids, owners and annotations."""
        begun = tuple(
            [
                with_reserved_annotations(self._with_identity(eviction), self._cluster, now)
                for eviction in evictions
            ]
        )
        if begun:
            self._by_preemptor[preemptor] = (*self._by_preemptor.get(preemptor, ()), *begun)
            for group in (group for eviction in begun for group in eviction.groups):
                self._undecided[group] = self._reserved_nodes(group)
        at = format_timestamp(now)
        for eviction in begun:
            for group, text in eviction.reserved_annotations:
                self._assumed.reserve(group, text)
            for pod, uid in zip(eviction.pods, eviction.uids, strict=True):
                self._assumed.evict(pod, uid, at)
        return begun

    def _with_identity(self, eviction: PlannedEviction) -> PlannedEviction:
        pods = self._cluster.pods
        uids = tuple([pods[pod].metadata.uid if pod in pods else "" for pod in eviction.pods])
        owners = [self.owning_trainjob(group) for group in eviction.groups]
        return eviction._replace(uids=uids, owner=next(filter(None, owners), None))

    def is_undecided(self, commands: PodGroupCommands) -> bool:
        nodes = {node for _, node in commands.binds}
        return commands.group in self._undecided or any(
            not nodes.isdisjoint(reserved_places) for reserved_places in self._undecided.values()
        )

    def settle(self, evictions: Iterable[PlannedEviction]) -> None:
        for group in (group for eviction in evictions for group in eviction.groups):
            self._undecided.pop(group, None)

    def forget(self, preemptor: Key, evictions: PlannedEvictions) -> None:
        known = self._by_preemptor.pop(preemptor, ())
        remaining = tuple([eviction for eviction in known if eviction not in evictions])
        if remaining:
            self._by_preemptor[preemptor] = remaining
        self.settle(evictions)
        for pod in (pod for eviction in evictions for pod in eviction.pods):
            self._assumed.forget_eviction(pod)
        self.forget_places(evictions)

    def forget_places(self, evictions: PlannedEvictions) -> None:
        for group in (group for one in evictions for group, _ in one.reserved_annotations):
            self._assumed.forget_reservation(group)

    def clear(self) -> None:
        """Forget all evictions: another leader decides from now on."""
        self._by_preemptor = {}
        self._undecided.clear()

    def current(self) -> Mapping[Key, PlannedEvictions]:
        """Return the evictions with terminating pods; forget evictions that are over or overdue.

        What overdue ones would free is not nominated any more, so that no PodGroup waits for it.
        """
        options = self._options()
        in_flight = {
            preemptor: tuple([it for it in evictions if self._is_any_terminating(it.pods, options)])
            for preemptor, evictions in self._by_preemptor.items()
        }
        self._by_preemptor = {
            preemptor: evictions for preemptor, evictions in in_flight.items() if evictions
        }
        return dict(self._by_preemptor)

    def _reserved_nodes(self, group: Key) -> frozenset[str]:
        known = self._cluster.pod_groups.get(group)
        reserved = read_reserved(known.metadata.annotations.get(RESERVED, "")) if known else {}
        return frozenset(
            place.node
            for reserved_places in ({} if isinstance(reserved, str) else reserved).values()
            for place in reserved_places
        )

    def _is_any_terminating(self, pods: Iterable[Key], options: StateOptions) -> bool:
        present = [self._cluster.pods[key].metadata for key in pods if key in self._cluster.pods]
        return any(
            meta.deletion_timestamp and termination_deadline(meta, options) >= options.now
            for meta in present
        )

    def owning_trainjob(self, group: Key) -> OwningTrainJob | None:
        """Return the TrainJob that owns a PodGroup; None if its pods are evicted one by one.

        If the JobSet is not known, or another one has its name, the TrainJob has no name.
        """
        known = self._cluster.pod_groups.get(group)
        owners = known.metadata.owner_references if known else ()
        if all(owner.kind != JOBSETS.kind for owner in owners):
            return None
        jobset = owning_jobset(known, self._cluster.jobsets)
        if jobset is None:
            return OwningTrainJob(Key(group.namespace, ""), "")
        job = controlling_trainjob(jobset, self._cluster.trainjobs)
        return OwningTrainJob(job.metadata.key, job.metadata.uid) if job is not None else None


class SuspendedTrainJobs:
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
        self._is_leading = False
        self.on_record_change = None

    def set_refusal(self, job: Key, reason: str | None) -> ClusterEvent:
        before = self._refusals.objects.get(job)
        self._refusals.put(job, reason)
        if reason is not None:
            self._forget_evictions(self._members.placed_pods_of_jobset(job))
        return NO_EVENT if before == reason else ClusterEvent.ANY

    def pods_not_terminating(self, job: Key) -> list[Key]:
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
        pairs = ((self.trainjob_of(group), group) for group in self._groups_with_record())
        return [
            group
            for job, group in pairs
            if job is not None and is_suspended_by_eviction(job, group)
        ]

    def groups_naming(self, trainjob: Key) -> list[PodGroup]:
        return [self._cluster.pod_groups[it] for it in self._members.groups_of(trainjob)]

    def groups_of(self, job: TrainJob) -> list[PodGroup]:
        """Return the PodGroups of the JobSet that a TrainJob controls, by uid."""
        jobset = self._cluster.jobsets.get(job.metadata.key)
        controller = jobset.metadata.controller if jobset else None
        if controller is None or controller.uid != job.metadata.uid:
            return []
        return [it for it in self.groups_naming(job.metadata.key) if self.jobset_of(it) is jobset]

    def jobset_of(self, group: PodGroup) -> JobSet | None:
        return owning_jobset(group, self._cluster.jobsets)

    def trainjob_of(self, group: PodGroup) -> TrainJob | None:
        return controlling_trainjob(self.jobset_of(group), self._cluster.trainjobs)

    def _groups_with_record(self) -> Iterator[PodGroup]:
        groups = self._cluster.pod_groups.values()
        return (it for it in groups if EVICTED_BY in it.metadata.annotations)

    def _notify(self, job: Key) -> None:
        if self.on_record_change is not None:
            self.on_record_change(job)

    def _update_evicted(self, group: PodGroup, *, was: bool, is_now: bool) -> None:
        if is_now:
            self._assume_evicted(group)
        elif was:
            self._forget_evictions(self._members.placed_pods(group.metadata.key))

    def _assume_evicted(self, group: PodGroup) -> None:
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


def with_reserved_annotations(one: PlannedEviction, cluster: Cluster, now: int) -> PlannedEviction:
    pods = [cluster.pods[key] for key in one.pods if key in cluster.pods]
    until, annotations = format_timestamp(now + _RELOCATION_WAIT_S), []
    for key, places in one.places:
        group = cluster.pod_groups.get(key)
        if group is not None:
            minimums = min_members(group)
            own = (pod for pod in pods if podgroup_key(pod.metadata.key, pod) == key)
            pods_by_podset = {podset_of(pod, minimums): pod for pod in own}
            annotations.append(
                (key, write_reserved(places, _reserved_podsets(pods_by_podset, places, until)))
            )
    return one._replace(reserved_annotations=tuple(annotations))


def _reserved_podsets(
    pods: Mapping[str, Pod], places: Iterable[NamedPlace], until: str
) -> dict[str, ReservedPodSet]:
    """Return what the annotation says of each PodSet; *pods* has one pod of each."""
    counts = Counter(place.podset for place in places)
    reserved_podsets = {}
    for podset in counts.keys() & pods.keys():
        try:
            like = anticipated_pod(pods[podset])
        except QuantityError:
            continue  # its requests cannot be read
        labels = {name: text for name, text in like.labels.items() if name != COMPLETION_INDEX}
        like = msgspec.structs.replace(
            like, sub_group_prefix=podset, count=counts[podset], labels=labels
        )
        reserved_podsets[podset] = ReservedPodSet(until=until, like=like)
    return reserved_podsets


class JobProgress(NamedTuple):
    """How far a Job is; the Job itself may have a large template."""

    key: Key
    uid: str
    replicated_job: str
    succeeded: int
    completions: int | None
    is_complete: bool
    is_one_round: bool  # all of its pods run at once


def job_progress(job: Job) -> JobProgress:
    completions, parallelism = job.spec.completions, job.spec.parallelism
    at_once = 1 if parallelism is None else parallelism
    return JobProgress(
        key=job.metadata.key,
        uid=job.metadata.uid,
        replicated_job=job.metadata.labels.get(REPLICATED_JOB, ""),
        succeeded=job.status.succeeded,
        completions=completions,
        is_complete=any(
            it.type == "Complete" and it.status == "True" for it in job.status.conditions
        ),
        is_one_round=completions is not None and completions <= at_once,
    )


def jobs_to_recreate(
    jobset: JobSet, scheduler_name: str, jobs: Iterable[JobProgress], succeeded: Mapping[str, int]
) -> Iterator[JobProgress]:
    """Yield the Jobs to recreate; *succeeded* counts existing pods by the uid of their Job."""
    known = [*jobs]
    succeeded_of = {it.uid: max(it.succeeded, succeeded.get(it.uid, 0)) for it in known}
    for planned_podgroup in plan_podgroups(jobset, scheduler_name).podgroups:
        names = {member.name for member in planned_podgroup.subgroups}
        jobs_of_podgroup = [job for job in known if job.replicated_job in names]
        finished = sum(_is_finished(job, succeeded_of[job.uid]) for job in jobs_of_podgroup)
        if finished < sum(member.replicas for member in planned_podgroup.subgroups):
            yield from (
                job for job in jobs_of_podgroup if succeeded_of[job.uid] and job.is_one_round
            )


def _is_finished(job: JobProgress, succeeded: int) -> bool:
    return job.is_complete or (job.completions is not None and succeeded >= job.completions)
