"""Evictions that are not over yet, and the workloads that they have suspended.

An eviction is in flight from the decision until its pods are gone or overdue. The pods of a
workload that the scheduler has suspended are assumed to terminate until it is resumed: its
controller deletes them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.assumed import AssumedChanges
from scheduler.state.cache.members import PodGroupMembers, podgroup_key
from scheduler.state.commands import PlannedEviction, PodGroupCommands, SuspendableId
from scheduler.state.inputs import Cluster, ObjectStore, StateOptions, format_timestamp
from scheduler.state.podgroups.attributes import (
    controlling_suspendable,
    has_eviction_copy,
    is_reverted,
    is_suspended_by_eviction,
    owning_workload,
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
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import COMPLETION_INDEX, EVICTED_BY, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.podgroups.anticipated import anticipated_pod
from trainer_kai.policy.podgroups.eviction_record import is_evicted
from trainer_kai.policy.workloads.kinds import kind_of_owner, named_suspendable, workload_keys
from trainer_kai.policy.workloads.workload import ObjectKey, Suspendable, Workload

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
        suspended = [self.suspendable_id(group) for group in eviction.groups]
        return eviction._replace(uids=uids, suspends=next(filter(None, suspended), None))

    def is_undecided(self, commands: PodGroupCommands) -> bool:
        nodes = {node for _, node in commands.binds}
        return commands.group in self._undecided or any(
            not nodes.isdisjoint(reserved_places) for reserved_places in self._undecided.values()
        )

    def is_begun(self, group: Key) -> bool:
        """Say whether an eviction of a PodGroup is being carried out."""
        return group in self._undecided

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

    def suspendable_id(self, group: Key) -> SuspendableId | None:
        return suspendable_id(self._cluster, group)


def suspendable_id(cluster: Cluster, group: Key) -> SuspendableId | None:
    """Return what suspends the workload of a PodGroup; None if its pods are evicted one by one.

    If the workload is not known, or another one has its name, what suspends it has no name.
    """
    known = cluster.pod_groups.get(group)
    workload = owning_workload(known, cluster.workloads)
    if workload is not None:
        found = controlling_suspendable(workload, cluster.owners)
        if found is None or is_reverted(found, cluster.reverted_suspensions):
            return None
        return SuspendableId(found.key, found.metadata.uid)
    kinds = map(kind_of_owner, known.metadata.owner_references if known else ())
    kind = next((it for it in kinds if it is not None and it.covers_all), None)
    if kind is None:
        return None
    by_users = kind.owner.resource if kind.owner is not None else kind.resource
    return SuspendableId(ObjectKey(by_users.kind, group.namespace, ""), "")


class SuspensionNotes(NamedTuple):
    refusals: ObjectStore[ObjectKey, str]  # why something cannot be suspended
    reverted: ObjectStore[ObjectKey, str]  # the uid of what another client resumed


class SuspendedWorkloads:
    """What the scheduler has suspended: workloads, or their owners."""

    def __init__(
        self,
        cluster: Cluster,
        members: PodGroupMembers,
        assumed: AssumedChanges,
        notes: SuspensionNotes,
        options: Callable[[], StateOptions],
    ) -> None:
        self._cluster: Final = cluster
        self._members: Final = members
        self._assumed: Final = assumed
        self._refusals, self._reverted = notes
        self._options: Final = options
        self._kueue: Final = options().kueue
        self._is_leading = False
        self.on_record_change: Callable[[ObjectKey], None] | None = None
        """Called with what is suspended when its eviction record has changed."""

    def start_leading(self) -> None:
        """Assume evictions from now on; each leader tries by itself what can be suspended."""
        self._is_leading = True
        for notes in (self._refusals, self._reverted):
            for key in [*notes.objects]:
                notes.put(key, None)
        self.assume_evicted()

    def stop_leading(self) -> None:
        self._is_leading = False
        self.on_record_change = None

    def find(self, key: ObjectKey) -> Suspendable | None:
        """Return an owner, or a workload that needs none."""
        workload = self._cluster.workloads.get(key)
        if workload is not None and not workload.needs_owner:
            return workload.as_suspendable()
        return self._cluster.owners.get(key)

    def workload_below(self, key: ObjectKey) -> Workload | None:
        """Return the workload of an owner, which its controller suspends; else None."""
        below = (self._cluster.workloads.get(it) for it in workload_keys(key) if it != key)
        return next(filter(None, below), None)

    def workload_of(self, found: Suspendable) -> Workload | None:
        """Return the workload that an object suspends, by uid."""
        workloads = map(self._cluster.workloads.get, workload_keys(found.key))
        named = ((it, named_suspendable(it, self._cluster.owners)) for it in workloads)
        uid = found.metadata.uid
        return next((it for it, by in named if by is not None and by.metadata.uid == uid), None)

    def set_refusal(self, key: ObjectKey, reason: str | None) -> ClusterEvent:
        before = self._refusals.objects.get(key)
        self._refusals.put(key, reason)
        if reason is not None:
            self._forget_evictions(self._members.placed_pods_of_all(key))
        return NO_EVENT if before == reason else ClusterEvent.ANY

    def set_reverted(self, found: Suspendable) -> None:
        """Have its pods evicted from now on: another client resumes what is suspended."""
        self._reverted.put(found.key, found.metadata.uid)

    def pods_not_terminating(self, key: ObjectKey) -> list[Key]:
        seen = ((it, self._assumed.seen_pod(it)) for it in self._members.placed_pods_of_all(key))
        return [key for key, pod in seen if pod and not pod.metadata.deletion_timestamp]

    def assume_evicted(self) -> None:
        """Assume that the pods of suspended workloads terminate, until that is seen."""
        for group in self.evicted_groups():
            self._assume_evicted(group)

    def suspendable_event(
        self, key: ObjectKey, before: Suspendable | None, now: Suspendable | None
    ) -> ClusterEvent:
        """Return the cluster event of a change; of a new object of its name no refusal is known."""
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._refusals.put(key, None)
            self._reverted.put(key, None)
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
        found = self.suspendable_of(group) if group and records[0] != records[1] else None
        if group is None or found is None:
            return
        self._notify(found.key)
        self._update_evicted(
            group,
            was=_is_suspended_by_eviction(found, before),
            is_now=_is_suspended_by_eviction(found, now),
        )

    def recorded(self) -> list[ObjectKey]:
        """Return what has an eviction record, on a PodGroup or copied, forged or not."""
        recorded = (self.suspendable_of(group) for group in self._groups_with_record())
        workloads = self._cluster.workloads.values()
        own = (it.as_suspendable() for it in workloads if it.is_suspended and not it.needs_owner)
        copied = (it for it in (*self._cluster.owners.values(), *own) if has_eviction_copy(it))
        return [*dict.fromkeys(it.key for it in (*recorded, *copied) if it)]

    def evicted_groups(self) -> list[PodGroup]:
        pairs = ((self.suspendable_of(group), group) for group in self._groups_with_record())
        return [
            group
            for found, group in pairs
            if found is not None and is_suspended_by_eviction(found, group)
        ]

    def groups_naming(self, key: ObjectKey) -> list[PodGroup]:
        return [self._cluster.pod_groups[it] for it in self._members.groups_of(key)]

    def groups_of(self, found: Suspendable) -> list[PodGroup]:
        """Return the PodGroups of the workload that an object suspends, by uid."""
        workload, workloads = self.workload_of(found), self._cluster.workloads
        if workload is None:
            return []
        groups = self.groups_naming(found.key)
        return [it for it in groups if owning_workload(it, workloads) is workload]

    def suspendable_of(self, group: PodGroup) -> Suspendable | None:
        workload = owning_workload(group, self._cluster.workloads)
        return controlling_suspendable(workload, self._cluster.owners)

    def _groups_with_record(self) -> Iterator[PodGroup]:
        groups = self._cluster.pod_groups.values()
        return (it for it in groups if EVICTED_BY in it.metadata.annotations)

    def _notify(self, key: ObjectKey) -> None:
        if self.on_record_change is not None:
            self.on_record_change(key)

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


def _is_suspended_by_eviction(found: Suspendable | None, group: PodGroup | None) -> bool:
    return found is not None and group is not None and is_suspended_by_eviction(found, group)


def _fingerprint(found: Suspendable | None, groups: Iterable[PodGroup], *, kueue: bool) -> object:
    """Return what matters to a plan; an object that is gone keeps no PodGroup back."""
    will_run = [found is None or will_run_again(found, it) for it in groups]
    return found and suspend_refusal(found, kueue=kueue), will_run


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
