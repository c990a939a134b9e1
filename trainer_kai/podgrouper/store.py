"""The store of the podgrouper: workloads and owners, PodGroups, Jobs, pods and PriorityClasses.

Changes arrive in any order; each returns the workload to reconcile. A pod belongs to a workload
only if its controller is a Job that the workload controls, and if the Job counts the pod: the pod
has the label that the Job selects and, unless it is finished, the finalizer by which Jobs track
pods. A user with the right to create pods can write owners and labels; a pod with all of these is a
pod of that Job, which the Job counts and deletes like its other pods.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.meta import Key, Meta, OwnerReference, PartialObject
from trainer_kai.api.names import CONTROLLER_UID, JOB_TRACKING, POD_GROUP
from trainer_kai.api.pod import TERMINAL_PHASES, BriefPod, Pod
from trainer_kai.api.resources import JOBS
from trainer_kai.podgrouper.watched_podgroup import StoredPodGroup, WatchedPodGroup, stored_podgroup
from trainer_kai.policy.podgroups.followed_values import (
    FollowedValues,
    followed_values,
    with_followed_values,
)
from trainer_kai.policy.podgroups.grouping import MAIN, PodObservation, observe_pod, podgroup_name
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.workloads.kinds import kind_of_owner, kind_of_pod
from trainer_kai.policy.workloads.owner_chain import OwnerChain, OwnerRecord, owner_record
from trainer_kai.policy.workloads.workload import ObjectKey, PodPlace, Workload


class PodRecord(NamedTuple):
    key: Key
    uid: str
    job_uid: str
    place: PodPlace
    group: str  # "" while it is not assigned
    observation: PodObservation


class _Owner(NamedTuple):
    uid: str
    values: FollowedValues


class PodgrouperStore:
    """With *counts* assigned pods are kept too."""

    def __init__(self, *, counts: bool) -> None:
        self.workloads: dict[ObjectKey, Workload] = {}
        self._owners: dict[ObjectKey, _Owner] = {}
        self._workloads_by_owner: dict[ObjectKey, set[ObjectKey]] = {}
        self._counts = counts
        self._groups: dict[str, dict[Key, StoredPodGroup]] = {}  # by the uid of their workload
        self._group_owners: dict[Key, tuple[str, ObjectKey]] = {}
        self._workload_uids: dict[str, str] = {}  # by the uid of a Job
        self._job_uids: dict[Key, str] = {}
        self._pods: dict[ObjectKey, dict[Key, PodRecord]] = {}  # by the workload in their label
        self._workload_by_pod: dict[Key, ObjectKey] = {}
        self._group_by_pod: dict[Key, Key] = {}  # pods on nodes: the PodGroup in their annotation
        self._running: Counter[Key] = Counter()  # pods on nodes, by PodGroup
        self._group_by_unfinished_pod: dict[Key, Key] = {}
        self._unfinished: Counter[Key] = Counter()  # these pods, by PodGroup
        self.orphans: dict[Key, str] = {}  # PodGroups that we applied and nothing owns: their uids
        self._priority_classes: dict[str, PriorityClass] = {}  # names and values
        self.priority_classes = SelectablePriorityClasses({})

    def groups(self, uid: str) -> dict[Key, StoredPodGroup]:
        return self._groups.get(uid, {})

    def members(self, workload: Workload) -> Iterator[PodRecord]:
        for pod in self._pods.get(workload.key, {}).values():
            # Where the workload is itself a Job, no other object controls its pods.
            if self._workload_uids.get(pod.job_uid, pod.job_uid) == workload.metadata.uid:
                yield pod

    def is_known_member(self, pod: Key) -> bool:
        """Say whether a pod that is not assigned belongs to a workload that is grouped here."""
        key = self._workload_by_pod.get(pod)
        workload = self.workloads.get(key) if key is not None else None
        if workload is None or key is None or not self.is_grouped(workload):
            return False
        job_uid = self._pods[key][pod].job_uid
        return self._workload_uids.get(job_uid, job_uid) == workload.metadata.uid

    def is_grouped(self, workload: Workload) -> bool:
        """Say whether a workload gets PodGroups as its kind has them."""
        return workload.is_admitted_here and self.has_owner(workload)

    def owner_record(self, namespace: str, owner: OwnerReference) -> OwnerRecord | None:
        """Return an owner that is watched; of the owners of workloads only their uids are."""
        key = ObjectKey(owner.kind, namespace, owner.name)
        workload = self.workloads.get(key) if kind_of_owner(owner) is not None else None
        if workload is not None:
            return owner_record(owner, workload.metadata)
        known = self._owners.get(key)
        return OwnerRecord(owner, ()) if known is not None and known.uid == owner.uid else None

    def workload_of(self, chain: OwnerChain) -> tuple[Workload | None, bool]:
        """Return the workload that owners lead to, the farthest; else whether it may come yet."""
        may_come = False
        for owner in reversed(chain.owners):
            reference = owner.reference
            if kind_of_owner(reference) is None:
                continue
            key = ObjectKey(reference.kind, chain.namespace, reference.name)
            workload = self.workloads.get(key)
            if workload is None or workload.metadata.uid != reference.uid:
                may_come = True
            elif self.is_grouped(workload):
                return workload, False
            else:
                may_come = may_come or workload.is_admitted_here  # its own owner may come
        return None, may_come

    def is_running(self, uid: str) -> bool:
        """All PodGroups of the workload count: they are evicted together."""
        return any(self._running[key] for key in self.groups(uid))

    def has_owner(self, workload: Workload) -> bool:
        """Say whether the object that a workload names as its owner exists, with that uid."""
        if not workload.needs_owner:
            return True
        owner, key = workload.owner, workload.owner_key
        if owner is None or key is None or key not in self._owners:
            return False
        return self._owners[key].uid == owner.uid

    def with_owner_values(self, workload: Workload) -> Workload:
        """Return a workload with the values of its owner that may have changed since."""
        key = workload.owner_key
        if key is None or not self.has_owner(workload):
            return workload
        return with_followed_values(workload, self._owners[key].values)

    def workload_changed(self, key: ObjectKey, workload: Workload | None) -> ObjectKey | None:
        """Return the workload, unless nothing has changed that its PodGroups depend on."""
        known = self.workloads.pop(key, None)
        before = known.owner_key if known else None
        if before is not None:
            self._workloads_by_owner[before].discard(key)
            if not self._workloads_by_owner[before]:
                del self._workloads_by_owner[before]
        if workload is None:
            return None
        self.workloads[key] = workload
        named = workload.owner_key
        if named is not None:
            self._workloads_by_owner.setdefault(named, set()).add(key)
        # Of other kinds the queue of the namespace is read at each change.
        is_same = known is not None and workload.kind.has_mark and workload.is_same(known)
        return None if is_same else key

    def owner_changed(self, key: ObjectKey, owner: PartialObject | None) -> frozenset[ObjectKey]:
        """Return the workloads that wait for the owner, or follow it in a value that changed."""
        before = self._owners.pop(key, None)
        if owner is None:
            return frozenset()
        meta = owner.metadata
        self._owners[key] = _Owner(meta.uid, followed_values(meta))
        is_new = before != self._owners[key]
        return frozenset(self._workloads_by_owner.get(key, ())) if is_new else frozenset()

    def has_unfinished_pods(self, group: Key) -> bool:
        return group in self._unfinished

    def group_deleted(self, key: Key, uid: str) -> ObjectKey | None:
        """Forget a PodGroup, unless it was recreated."""
        if self.orphans.get(key) == uid:
            del self.orphans[key]
        owner, workload = self._group_owners.get(key, ("", None))
        known = self._groups.get(owner, {}).get(key)
        if known is None or known.uid not in {"", uid}:
            return None
        del self._group_owners[key], self._groups[owner][key]
        if not self._groups[owner]:
            del self._groups[owner]
        return workload

    def group_changed(self, key: Key, watched: WatchedPodGroup) -> ObjectKey | None:
        """Return the workload, unless the PodGroup is as stored: at most its status changed."""
        group = stored_podgroup(watched)
        owner = _owner_of_group(watched.metadata)
        if owner is None:
            workload_before = self.group_deleted(key, group.uid)
            if group.managed_paths and not watched.metadata.owner_references:
                self.orphans[key] = group.uid
            return workload_before
        self.orphans.pop(key, None)
        uid, workload = owner
        known = self._groups.setdefault(uid, {})
        before = known.get(key)
        if before is None or not _is_older(group, before):
            known[key] = group
        self._group_owners[key] = owner
        is_same = before is not None and before._replace(version="") == group._replace(version="")
        return None if is_same else workload

    def job_changed(self, key: Key, job: PartialObject | None) -> ObjectKey | None:
        """Return the workload if pods of the Job were stored before."""
        if job is None:
            self._workload_uids.pop(self._job_uids.pop(key, ""), None)
            return None
        controller = job.metadata.controller
        kind = kind_of_owner(controller) if controller else None
        if controller is None or kind is None:
            return None
        is_new = self._workload_uids.get(job.metadata.uid) != controller.uid
        self._workload_uids[job.metadata.uid] = controller.uid
        self._job_uids[key] = job.metadata.uid
        workload = ObjectKey(kind.resource.kind, key.namespace, controller.name)
        return workload if is_new and self._pods.get(workload) else None

    def priority_class_changed(self, name: str, found: PriorityClass | None) -> None:
        if found is None:
            self._priority_classes.pop(name, None)
        else:
            self._priority_classes[name] = replace(found, metadata=Meta(name=name))
        self.priority_classes = SelectablePriorityClasses(self._priority_classes)

    def pod_changed(self, key: Key, pod: Pod | BriefPod | None) -> ObjectKey | None:
        left = self._track_running(key, pod)
        self._track_unfinished(key, pod)
        return self._track_member(key, pod) or left

    def pod_assigned(self, key: Key, uid: str, group: str) -> None:
        """Take note of our own write before the watch reports it."""
        named = self._workload_by_pod.get(key)
        pods = self._pods.get(named, {}) if named is not None else {}
        if key in pods and pods[key].uid == uid:
            pods[key] = pods[key]._replace(group=group)

    def _track_unfinished(self, key: Key, pod: Pod | BriefPod | None) -> None:
        before = self._group_by_unfinished_pod.pop(key, None)
        if before is not None:
            self._unfinished[before] -= 1
            if not self._unfinished[before]:
                del self._unfinished[before]
        name = pod.metadata.annotations.get(POD_GROUP, "") if pod is not None else ""
        if name and pod is not None and pod.status.phase not in TERMINAL_PHASES:
            group = self._group_by_unfinished_pod[key] = Key(key.namespace, name)
            self._unfinished[group] += 1

    def _track_running(self, key: Key, pod: Pod | BriefPod | None) -> ObjectKey | None:
        """Return the workload if this was its last pod on a node."""
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

    def _track_member(self, key: Key, pod: Pod | BriefPod | None) -> ObjectKey | None:
        named = self._workload_by_pod.pop(key, None)
        before = self._pods.get(named, {}).pop(key, None) if named else None
        if named and not self._pods.get(named):
            self._pods.pop(named, None)
        is_kept = pod is not None and (self._counts or not pod.metadata.annotations.get(POD_GROUP))
        member = _member(key, pod) if pod is not None and is_kept else None
        if member is None:
            return named if self._counts else None
        workload, record = member
        self._pods.setdefault(workload, {})[key] = record
        self._workload_by_pod[key] = workload
        return workload if record != before else None


def _running_group(pod: Pod | BriefPod | None) -> Key | None:
    if pod is None or not pod.spec.node_name or pod.metadata.deletion_timestamp:
        return None
    name, is_over = pod.metadata.annotations.get(POD_GROUP), pod.status.phase in TERMINAL_PHASES
    return Key(pod.metadata.namespace, name) if name and not is_over else None


def _member(key: Key, pod: Pod | BriefPod) -> tuple[ObjectKey, PodRecord] | None:
    """Return the workload that a pod names, and the pod, if a Job counts it."""
    meta = pod.metadata
    controller, kind = meta.controller, kind_of_pod(meta.labels)
    if controller is None or kind is None or not is_job_pod(pod, controller):
        return None
    place = kind.pod_place(meta.labels)
    record = PodRecord(
        key=key,
        uid=meta.uid,
        job_uid=controller.uid,
        place=place,
        group=meta.annotations.get(POD_GROUP, ""),
        observation=observe_pod(pod, place),
    )
    return ObjectKey(kind.resource.kind, key.namespace, meta.labels[kind.name_label]), record


def names_workload(pod: Pod | BriefPod) -> bool:
    return kind_of_pod(pod.metadata.labels) is not None


def is_job_pod(pod: Pod | BriefPod, controller: OwnerReference) -> bool:
    """Say whether the Job that controls a pod counts it."""
    if (controller.api_version, controller.kind) != (JOBS.api_version, JOBS.kind):
        return False
    is_over = pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp
    is_tracked = JOB_TRACKING in pod.metadata.finalizers or is_over
    return bool(is_tracked) and pod.metadata.labels.get(CONTROLLER_UID) == controller.uid


def _owner_of_group(meta: Meta) -> tuple[str, ObjectKey] | None:
    """Return the workload that owns a PodGroup, or the object of another kind in its name."""
    for owner in meta.owner_references:
        name = podgroup_name(owner.name, owner.uid, MAIN)
        if kind_of_owner(owner) is not None or meta.name == name:
            return owner.uid, ObjectKey(owner.kind, meta.namespace, owner.name)
    return None


def _is_older(group: StoredPodGroup, known: StoredPodGroup) -> bool:
    """Say whether a state is older than the stored one, the response to our own write."""
    if group.uid != known.uid or not (group.version.isdecimal() and known.version.isdecimal()):
        return False
    return int(group.version) < int(known.version)
