"""The store of the podgrouper: TrainJobs, JobSets, PodGroups, Jobs, pods and PriorityClasses.

Changes arrive in any order; each returns the JobSet to reconcile. A pod belongs to a JobSet only if
its controller is a Job that the JobSet controls, and if the Job counts the pod: the pod has the
label that the Job selects and, unless it is finished, the finalizer by which Jobs track pods. A
user with the right to create pods can write owners and labels; a pod with all of these is a pod of
that Job, which the Job counts and deletes like its other pods.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Meta, OwnerReference, PartialObject
from trainer_kai.api.names import (
    CONTROLLER_UID,
    JOB_INDEX,
    JOB_TRACKING,
    JOBSET_NAME,
    POD_GROUP,
    REPLICATED_JOB,
)
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.resources import JOBS, JOBSETS, same_name_trainjob_owner
from trainer_kai.podgrouper.watched_podgroup import StoredPodGroup, WatchedPodGroup, stored_podgroup
from trainer_kai.policy.podgroups.grouping import PodObservation, observe_pod
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses


class PodRecord(NamedTuple):
    key: Key
    uid: str
    job_uid: str
    replicated_job: str
    job_index: str
    group: str  # "" while it is not assigned
    observation: PodObservation


class PodgrouperStore:
    """With *counts* assigned pods are kept too."""

    def __init__(self, *, counts: bool) -> None:
        self.jobsets: dict[Key, JobSet] = {}
        self._trainjobs: dict[Key, str] = {}  # uids
        self._jobsets_by_trainjob: dict[Key, set[Key]] = {}  # by their controller
        self._counts = counts
        self._groups: dict[str, dict[Key, StoredPodGroup]] = {}  # by the uid of their JobSet
        self._group_owners: dict[Key, tuple[str, Key]] = {}
        self._jobset_uids: dict[str, str] = {}  # by the uid of a Job
        self._job_uids: dict[Key, str] = {}
        self._pods: dict[Key, dict[Key, PodRecord]] = {}  # by the JobSet in their label
        self._jobset_by_pod: dict[Key, Key] = {}
        self._group_by_pod: dict[Key, Key] = {}  # pods on nodes: the PodGroup in their annotation
        self._running: Counter[Key] = Counter()  # pods on nodes, by PodGroup
        self._group_by_unfinished_pod: dict[Key, Key] = {}
        self._unfinished: Counter[Key] = Counter()  # these pods, by PodGroup
        self.orphans: dict[Key, str] = {}  # PodGroups that we applied and nothing owns: their uids
        self._priority_classes: dict[str, PriorityClass] = {}  # names and values
        self.priority_classes = SelectablePriorityClasses({})

    def groups(self, uid: str) -> dict[Key, StoredPodGroup]:
        return self._groups.get(uid, {})

    def members(self, jobset: JobSet) -> Iterator[PodRecord]:
        for pod in self._pods.get(jobset.metadata.key, {}).values():
            if self._jobset_uids.get(pod.job_uid) == jobset.metadata.uid:
                yield pod

    def is_running(self, uid: str) -> bool:
        """All PodGroups of the JobSet count: they are evicted together."""
        return any(self._running[key] for key in self.groups(uid))

    def has_trainjob(self, jobset: JobSet) -> bool:
        """Say whether the TrainJob that a JobSet names as its controller exists, with that uid."""
        owner = same_name_trainjob_owner(jobset.metadata)
        if owner is None:
            return False
        return self._trainjobs.get(Key(jobset.metadata.namespace, owner.name)) == owner.uid

    def jobset_changed(self, key: Key, jobset: JobSet | None) -> Key | None:
        before = _trainjob_key(self.jobsets.pop(key, None))
        if before is not None:
            self._jobsets_by_trainjob[before].discard(key)
            if not self._jobsets_by_trainjob[before]:
                del self._jobsets_by_trainjob[before]
        if jobset is None:
            return None
        self.jobsets[key] = jobset
        named = _trainjob_key(jobset)
        if named is not None:
            self._jobsets_by_trainjob.setdefault(named, set()).add(key)
        return key

    def trainjob_changed(self, key: Key, trainjob: PartialObject | None) -> frozenset[Key]:
        """Return the JobSets that wait for the TrainJob."""
        before = self._trainjobs.pop(key, None)
        if trainjob is None:
            return frozenset()
        self._trainjobs[key] = trainjob.metadata.uid
        is_new = before != trainjob.metadata.uid
        return frozenset(self._jobsets_by_trainjob.get(key, ())) if is_new else frozenset()

    def has_unfinished_pods(self, group: Key) -> bool:
        return group in self._unfinished

    def group_deleted(self, key: Key, uid: str) -> Key | None:
        """Forget a PodGroup, unless it was recreated."""
        if self.orphans.get(key) == uid:
            del self.orphans[key]
        owner, jobset = self._group_owners.get(key, ("", None))
        known = self._groups.get(owner, {}).get(key)
        if known is None or known.uid not in {"", uid}:
            return None
        del self._group_owners[key], self._groups[owner][key]
        if not self._groups[owner]:
            del self._groups[owner]
        return jobset

    def group_changed(self, key: Key, watched: WatchedPodGroup) -> Key | None:
        group = stored_podgroup(watched)
        owner = _jobset_owner(watched.metadata)
        if owner is None:
            jobset_before = self.group_deleted(key, group.uid)
            if group.managed_paths and not watched.metadata.owner_references:
                self.orphans[key] = group.uid
            return jobset_before
        self.orphans.pop(key, None)
        uid, jobset = owner
        known = self._groups.setdefault(uid, {})
        if key not in known or not _is_older(group, known[key]):
            known[key] = group
        self._group_owners[key] = owner
        return jobset

    def job_changed(self, key: Key, job: PartialObject | None) -> Key | None:
        """Return the JobSet if pods of the Job were stored before."""
        if job is None:
            self._jobset_uids.pop(self._job_uids.pop(key, ""), None)
            return None
        controller = job.metadata.controller
        if controller is None or not _is_jobset(controller.api_version, controller.kind):
            return None
        is_new = self._jobset_uids.get(job.metadata.uid) != controller.uid
        self._jobset_uids[job.metadata.uid] = controller.uid
        self._job_uids[key] = job.metadata.uid
        jobset = Key(key.namespace, controller.name)
        return jobset if is_new and self._pods.get(jobset) else None

    def priority_class_changed(self, name: str, found: PriorityClass | None) -> None:
        if found is None:
            self._priority_classes.pop(name, None)
        else:
            self._priority_classes[name] = replace(found, metadata=Meta(name=name))
        self.priority_classes = SelectablePriorityClasses(self._priority_classes)

    def pod_changed(self, key: Key, pod: Pod | None) -> Key | None:
        left = self._track_running(key, pod)
        self._track_unfinished(key, pod)
        return self._track_member(key, pod) or left

    def _track_unfinished(self, key: Key, pod: Pod | None) -> None:
        before = self._group_by_unfinished_pod.pop(key, None)
        if before is not None:
            self._unfinished[before] -= 1
            if not self._unfinished[before]:
                del self._unfinished[before]
        name = pod.metadata.annotations.get(POD_GROUP, "") if pod is not None else ""
        if name and pod is not None and pod.status.phase not in TERMINAL_PHASES:
            group = self._group_by_unfinished_pod[key] = Key(key.namespace, name)
            self._unfinished[group] += 1

    def _track_running(self, key: Key, pod: Pod | None) -> Key | None:
        """Return the JobSet if this was its last pod on a node."""
        before, group = self._group_by_pod.pop(key, None), _running_group(pod)
        if group is not None:
            self._group_by_pod[key] = group
            self._running[group] += 1
        if before is None:
            return None
        self._running[before] -= 1
        if self._running[before]:
            return None
        del self._running[before]
        return self._group_owners.get(before, ("", None))[1]

    def _track_member(self, key: Key, pod: Pod | None) -> Key | None:
        named = self._jobset_by_pod.pop(key, None)
        before = self._pods.get(named, {}).pop(key, None) if named else None
        if named and not self._pods.get(named):
            self._pods.pop(named, None)
        record = None if pod is None else _pod_record(pod)
        if pod is None or record is None or (record.group and not self._counts):
            return named if self._counts else None
        jobset = Key(key.namespace, pod.metadata.labels.get(JOBSET_NAME, ""))
        self._pods.setdefault(jobset, {})[key] = record
        self._jobset_by_pod[key] = jobset
        return jobset if record != before else None


def _trainjob_key(jobset: JobSet | None) -> Key | None:
    owner = same_name_trainjob_owner(jobset.metadata) if jobset else None
    return Key(jobset.metadata.namespace, owner.name) if jobset and owner else None


def _running_group(pod: Pod | None) -> Key | None:
    if pod is None or not pod.spec.node_name or pod.metadata.deletion_timestamp:
        return None
    name, is_over = pod.metadata.annotations.get(POD_GROUP), pod.status.phase in TERMINAL_PHASES
    return Key(pod.metadata.namespace, name) if name and not is_over else None


def _pod_record(pod: Pod) -> PodRecord | None:
    meta = pod.metadata
    controller = meta.controller
    if controller is None or not _is_job_pod(pod, controller):
        return None
    return PodRecord(
        key=meta.key,
        uid=meta.uid,
        job_uid=controller.uid,
        replicated_job=meta.labels.get(REPLICATED_JOB, ""),
        job_index=meta.labels.get(JOB_INDEX, ""),
        group=meta.annotations.get(POD_GROUP, ""),
        observation=observe_pod(pod),
    )


def _is_job_pod(pod: Pod, controller: OwnerReference) -> bool:
    if (controller.api_version, controller.kind) != (JOBS.api_version, JOBS.kind):
        return False
    is_over = pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp
    is_tracked = JOB_TRACKING in pod.metadata.finalizers or is_over
    return bool(is_tracked) and pod.metadata.labels.get(CONTROLLER_UID) == controller.uid


def _jobset_owner(meta: Meta) -> tuple[str, Key] | None:
    for owner in meta.owner_references:
        if _is_jobset(owner.api_version, owner.kind):
            return owner.uid, Key(meta.namespace, owner.name)
    return None


def _is_jobset(api_version: str, kind: str) -> bool:
    return kind == JOBSETS.kind and api_version.partition("/")[0] == JOBSETS.group


def _is_older(group: StoredPodGroup, known: StoredPodGroup) -> bool:
    """Say whether a state is older than the stored one, the response to our own write."""
    if group.uid != known.uid or not (group.version.isdecimal() and known.version.isdecimal()):
        return False
    return int(group.version) < int(known.version)
