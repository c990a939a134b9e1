"""The pods that no label assigns to a workload, by their owners, and what these turned out to be.

A pod is loose while it runs or waits, has an owner, and is not an assigned pod of a Job that names
its workload by labels. Its owners have to be read before its PodGroup is known; pods with equal
owners have one result. A loose pod may turn out to belong to a workload after all, by its owners.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from trainer_kai.api.meta import Key, OwnerReference
from trainer_kai.api.names import POD_GROUP
from trainer_kai.api.pod import TERMINAL_PHASES, BriefPod, Pod
from trainer_kai.api.resources import JOBS, PODS
from trainer_kai.podgrouper.store import PodRecord, is_job_pod, names_workload
from trainer_kai.policy.podgroups.default_group import DefaultGroup, PodRequest
from trainer_kai.policy.podgroups.grouping import PodObservation, podset_name
from trainer_kai.policy.workloads.owner_chain import GroupSubject, is_skipped, leading_owner
from trainer_kai.policy.workloads.workload import ObjectKey, Workload

K = TypeVar("K", bound=Hashable)


class OwnersKey(NamedTuple):
    """The owners of a pod as it names them, which proves nothing; equal for its siblings."""

    namespace: str
    references: tuple[OwnerReference, ...]
    alone: str = ""  # the uid of a pod that its owner does not count


class GroupKey(NamedTuple):
    owner: ObjectKey  # of the PodGroup
    uid: str


class LoosePod(NamedTuple):
    key: Key
    uid: str
    group: str  # "" while it is not assigned
    is_bound: bool
    labels: Mapping[str, str]
    priority_class: str
    phase: str

    def record(self, workload: Workload) -> PodRecord:
        """Return it as a pod of a workload that its owners led to."""
        place = workload.kind.pod_place(self.labels)
        observation = PodObservation(
            podset=podset_name(place.replicated_job, place.job_index),
            attempt=place.attempt,
            phase=self.phase,
            is_bound=self.is_bound,
            is_terminating=False,
        )
        uid = workload.metadata.uid
        return PodRecord(self.key, self.uid, uid, place, self.group, observation)


class LoosePods:
    def __init__(self) -> None:
        self._pods: dict[OwnersKey, dict[Key, LoosePod]] = {}
        self._owners_of: dict[Key, OwnersKey] = {}
        self._subjects: dict[OwnersKey, GroupSubject] = {}
        self._members: dict[ObjectKey, set[OwnersKey]] = {}  # of workloads
        self._workload_of: dict[OwnersKey, Workload] = {}
        self._owners_by_group: dict[GroupKey, set[OwnersKey]] = {}
        self._groups: dict[OwnersKey, frozenset[GroupKey]] = {}
        self._group_by_owner: dict[ObjectKey, GroupKey] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[OwnersKey]:
        return iter(tuple(self._pods))

    def any_pod(self, owners: OwnersKey) -> LoosePod | None:
        return next(iter(self._pods.get(owners, {}).values()), None)

    def is_waiting(self, owners: OwnersKey) -> bool:
        return any(not pod.is_bound for pod in self._pods.get(owners, {}).values())

    def references_of(self, owners: OwnersKey) -> tuple[OwnerReference, ...]:
        """Return all owners that were read."""
        subject = self._subjects.get(owners)
        return tuple(it.reference for it in subject.owners) if subject is not None else ()

    def is_assigned(self, owners: OwnersKey) -> bool:
        return all(pod.group for pod in self._pods.get(owners, {}).values())

    def owners_of_group(self, owner: ObjectKey) -> tuple[OwnersKey, ...]:
        """Return what leads to the PodGroup of an object."""
        group = self._group_by_owner.get(owner)
        return tuple(self._owners_by_group.get(group, ())) if group is not None else ()

    def group_of(self, owner: ObjectKey) -> GroupKey | None:
        return self._group_by_owner.get(owner)

    def pod_changed(self, key: Key, pod: Pod | BriefPod | None) -> OwnersKey | None:
        """Return the owners to read if the pod has none of them read, or is to be assigned."""
        owners = _owners_of(pod) if pod is not None else None
        before = self._owners_of.pop(key, None)
        known = self._pods[before].pop(key) if before is not None else None
        found = None
        if owners is not None and pod is not None:
            found = _loose_pod(key, pod)
            self._owners_of[key] = owners
            self._pods.setdefault(owners, {})[key] = found
        if before is not None and not self._pods[before]:
            self._forget(before)
        if found is None or (found == known and owners == before):
            return None
        return owners

    def assigned(self, key: Key, uid: str, group: str) -> None:
        """Take note of our own write before the watch reports it."""
        pods = self._pods.get(self._owners_of[key], {}) if key in self._owners_of else {}
        if key in pods and pods[key].uid == uid:
            pods[key] = pods[key]._replace(group=group)

    def member_of(self, owners: OwnersKey, workload: Workload) -> None:
        """Take note that the owners lead to a workload."""
        self._leave(owners)
        self._workload_of[owners] = workload
        self._members.setdefault(workload.key, set()).add(owners)

    def members(self, workload: Workload) -> Iterator[PodRecord]:
        for owners in self._members.get(workload.key, ()):
            if self._workload_of[owners].metadata.uid == workload.metadata.uid:
                yield from (pod.record(workload) for pod in self._pods[owners].values())

    def resolved(self, owners: OwnersKey, subject: GroupSubject) -> frozenset[GroupKey]:
        """Take note of what the owners are; return the PodGroups of their pods."""
        self._leave(owners)
        self._subjects[owners] = subject
        pods = self._pods[owners].values()
        groups = frozenset(_group_key(_group_owner(subject, pod), pod.key) for pod in pods)
        self._groups[owners] = groups
        for group in groups:
            self._owners_by_group.setdefault(group, set()).add(owners)
            self._group_by_owner[group.owner] = group
        return groups

    def pods(self, group: GroupKey) -> list[LoosePod]:
        """Return the pods of a PodGroup, in an order that does not change."""
        found: list[LoosePod] = []
        for owners in self._owners_by_group.get(group, ()):
            pods = self._pods[owners]
            if self._subjects[owners].owner is not None:
                found += pods.values()
            else:
                pod = pods.get(Key(group.owner.namespace, group.owner.name))
                found += [pod] if pod is not None and pod.uid == group.uid else []
        return sorted(found)

    def default_group(self, group: GroupKey) -> DefaultGroup | None:
        """Return what a PodGroup is for; None if it has no pods any more."""
        pods = self.pods(group)
        if not pods:
            return None
        subject = self._subjects[self._owners_of[pods[0].key]]
        return DefaultGroup(
            group.owner.namespace,
            _group_owner(subject, pods[0]),
            subject,
            PodRequest(pods[0].labels, pods[0].priority_class),
        )

    def _leave(self, owners: OwnersKey) -> None:
        self._subjects.pop(owners, None)
        workload = self._workload_of.pop(owners, None)
        if workload is not None:
            _discard(self._members, workload.key, owners)
        for group in self._groups.pop(owners, ()):
            if _discard(self._owners_by_group, group, owners):
                self._group_by_owner.pop(group.owner, None)

    def _forget(self, owners: OwnersKey) -> None:
        del self._pods[owners]
        self._leave(owners)


def _discard(sets: dict[K, set[OwnersKey]], key: K, owners: OwnersKey) -> bool:
    """Say whether the set is empty now."""
    sets[key].discard(owners)
    if sets[key]:
        return False
    del sets[key]
    return True


def _owners_of(pod: Pod | BriefPod) -> OwnersKey | None:
    """Return the owners of a loose pod."""
    meta = pod.metadata
    is_over = bool(meta.deletion_timestamp) or pod.status.phase in TERMINAL_PHASES
    if is_over or not meta.owner_references or is_skipped(meta.annotations):
        return None
    owner = leading_owner(meta.owner_references)
    is_of_job = owner is not None and (owner.api_version, owner.kind) == (
        JOBS.api_version,
        JOBS.kind,
    )
    if not is_of_job or owner is None:
        return OwnersKey(meta.namespace, meta.owner_references)
    is_assigned = bool(meta.annotations.get(POD_GROUP))
    if not is_job_pod(pod, owner):  # or no more, because the Job was deleted
        return None if is_assigned else OwnersKey(meta.namespace, (), meta.uid)
    if is_assigned and names_workload(pod):
        return None
    return OwnersKey(meta.namespace, meta.owner_references)


def _loose_pod(key: Key, pod: Pod | BriefPod) -> LoosePod:
    meta = pod.metadata
    return LoosePod(
        key=key,
        uid=meta.uid,
        group=meta.annotations.get(POD_GROUP, ""),
        is_bound=bool(pod.spec.node_name),
        labels=meta.labels,
        priority_class=pod.spec.priority_class_name,
        phase=pod.status.phase,
    )


def _group_owner(subject: GroupSubject, pod: LoosePod) -> OwnerReference:
    if subject.owner is not None:
        return subject.owner.reference
    return OwnerReference(
        api_version=PODS.api_version, kind=PODS.kind, name=pod.key.name, uid=pod.uid
    )


def _group_key(owner: OwnerReference, pod: Key) -> GroupKey:
    return GroupKey(ObjectKey(owner.kind, pod.namespace, owner.name), owner.uid)
