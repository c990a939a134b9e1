"""The cluster as the watches show it, with the assumed changes of the scheduler laid over it.

Updated by watches, read by the cycle; both on one event loop. The snapshot of a plan is frozen:
meanwhile the cache goes on, and `is_outdated` finds commands whose pods or nodes have changed.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from scheduler.state.cache.assumed import AssumedChanges, InFlightEvictions, PlannedEvictions
from scheduler.state.cache.cluster_events import (
    ANY_EVENT,
    FOREIGN_POD,
    INCOMPLETE_GROUP,
    NO_EVENT,
    RESOURCES_FREED,
    RESOURCES_TAKEN,
    STAGE_PROGRESS,
    ClusterEvent,
    is_pending,
    is_ready,
    offers_less,
    pod_fingerprint,
    podgroup_fingerprint,
    queueing_hint,
)
from scheduler.state.cache.creation_failures import PodCreationFailures
from scheduler.state.cache.members import PodGroupMembers, podgroup_key, resource_use
from scheduler.state.cache.suspended_trainjobs import SuspendedTrainJobs
from scheduler.state.commands import PodGroupCommands
from scheduler.state.inputs import Permit, StateOptions, format_timestamp
from scheduler.state.podgroups.attributes import (
    has_eviction_copy,
    is_suspended_by_eviction,
    suspend_refusal,
    will_run_again,
)
from scheduler.state.podgroups.missing_pods import (
    Shortage,
    is_lost,
    min_existing_pods,
    replaces_lost_pods,
    reserve_lost_places,
    shortage_of,
)
from scheduler.state.snapshot.cluster_state import ClusterState
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import EVICTED_BY, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.errors import InvariantError
from trainer_kai.policy.podgroups.eviction_record import is_evicted
from trainer_kai.policy.pods.requests import ResourceAmounts

if TYPE_CHECKING:
    from scheduler.state.queues.access import AccessQuestion

__all__ = ["ClusterCache"]


class ClusterCache:
    """The objects by name, and what the scheduler wrote and has not seen yet."""

    def __init__(self, options: Callable[[], StateOptions]) -> None:
        self.assumed: Final = AssumedChanges()
        self._state: Final = ClusterState(options())
        self.cluster: Final = self._state.cluster  # with the assumed changes
        self._stores: Final = {id(store.objects): store for store in self._state.stores}
        self._options: Final = options
        self.scheduler_name: Final = options().scheduler_name
        self.default_queue: Final = options().default_queue
        self.kueue: Final = options().kueue
        self._seen_pods: Final[dict[Key, Pod]] = {}  # as seen, where a change is assumed
        self._seen_groups: Final[dict[Key, PodGroup]] = {}
        self._outdated: set[Key] = set()
        self.is_leading = False
        self._incomplete: dict[Key, None] = {}  # started PodGroups that may lack pods
        self._lost_pods: dict[Key, dict[Key, Pod]] = {}  # by PodGroup: places to reserve
        self._annotations_to_write: dict[Key, str] = {}  # by PodGroup: places of lost pods
        self.members: Final = PodGroupMembers(self.cluster, self.scheduler_name)
        self.in_flight_evictions: Final = InFlightEvictions(self.cluster, options)
        self.suspended_trainjobs: Final = SuspendedTrainJobs(self.cluster, self.members)
        self._min_pods: Final[dict[Key, int]] = {}  # by PodGroup: it cannot be placed with fewer
        self.creation_failures: Final = PodCreationFailures(
            self.cluster, self.members, self._min_pods
        )
        # Called with a PodGroup whose pods have changed, with the access questions of a snapshot,
        # and with a TrainJob whose eviction record has changed.
        self.on_podgroup_change: Callable[[Key], None] | None = None
        self.on_access_questions: Callable[[AbstractSet[AccessQuestion]], None] | None = None
        self.on_eviction_record_change: Callable[[Key], None] | None = None

    def update_pod(self, key: Key, seen: Pod | None) -> ClusterEvent:
        """Note a pod, or that it is gone; return the cluster event."""
        shown = self.assumed.apply_to_pod(key, seen)
        if shown is seen or seen is None:
            self._seen_pods.pop(key, None)
        else:
            self._seen_pods[key] = seen
        before = self.cluster.pods.get(key)
        self._state.pods.put(key, shown)
        cluster_event = self._pod_event(key, before, shown)
        if cluster_event - STAGE_PROGRESS:
            is_evicted = bool(self.assumed.evicted_uid(key))
            if before is not None and not is_evicted and is_lost(before, shown):
                self._note_incomplete(podgroup_key(key, before))
                if self._note_lost_pod(key, before):
                    cluster_event = ANY_EVENT  # its reserved place has to be written
            self._update_members(key, before, shown)
        return (
            INCOMPLETE_GROUP
            if cluster_event is ANY_EVENT and self._waits_for_members(key, shown)
            else cluster_event
        )

    def update_group(self, key: Key, seen: PodGroup | None) -> ClusterEvent:
        """Note a PodGroup, or that it is gone; return the cluster event."""
        shown = self.assumed.apply_to_group(key, seen)
        if shown is seen or seen is None:
            self._seen_groups.pop(key, None)
        else:
            self._seen_groups[key] = seen
        before = self.cluster.pod_groups.get(key)
        self._state.pod_groups.put(key, shown)
        self.members.set_owners(key, shown)
        self._update_record(before, shown)
        if podgroup_fingerprint(before) == podgroup_fingerprint(shown):
            return NO_EVENT
        if shown is None:
            self._min_pods.pop(key, None)
        else:
            self._min_pods[key] = min_existing_pods(shown)
        return ANY_EVENT

    def update(self, known: dict[Any, Any], key: Key, seen: Object | None) -> ClusterEvent:
        """Note an object of another kind: *known* is one of the tables of the cluster."""
        name = key if key.namespace else key.name
        before = known.get(name)
        store = self._stores.get(id(known))  # None for a kind that no plan needs
        if store is not None:
            store.put(name, seen)
        elif seen is None:
            known.pop(name, None)
            return NO_EVENT
        else:
            known[name] = seen
            return NO_EVENT
        if known is self.cluster.trainjobs:
            return self._trainjob_event(key, before, known.get(key))
        if known is self.cluster.nodes and offers_less(before, seen):
            self._outdated.add(key)
        return queueing_hint(before, seen)

    def set_suspend_refusal(self, job: Key, why: str | None) -> ClusterEvent:
        """Note why a TrainJob cannot be suspended; None if it can be."""
        before = self.cluster.suspend_refusals.get(job)
        self._state.suspend_refusals.put(job, why)
        if why is not None:
            self._forget_evictions(self.members.placed_pods_of_jobset(job))
        return NO_EVENT if before == why else ANY_EVENT

    def set_permit(self, pair: Key, permit: Permit | None) -> ClusterEvent:
        """Note whether a namespace may use a queue; None if that is not known."""
        before = self.cluster.permits.get(pair)
        self._state.permits.put(pair, permit)
        return NO_EVENT if before == permit else ANY_EVENT

    def start_leading(self) -> None:
        """Begin to write; another leader may have left PodGroups without pods: all are checked."""
        self.is_leading = True
        for job in [*self.cluster.suspend_refusals]:
            self._state.suspend_refusals.put(job, None)  # each leader tries by itself
        self._incomplete = dict.fromkeys(self.cluster.pod_groups)
        self._assume_suspended_evicted()

    def stop_leading(self, now_s: float) -> None:
        """Write no longer."""
        self.is_leading = False
        self._lost_pods, self._annotations_to_write = {}, {}
        self.assumed.limit_waits(now_s)
        self.in_flight_evictions.clear()
        self.on_podgroup_change = self.on_eviction_record_change = self.on_access_questions = None

    def snapshot(self) -> EncodedSnapshot:
        """Return the snapshot for a plan; `is_outdated` compares with it from now on."""
        self._reserve_lost_places()
        self._outdated = set()
        now = self._options().now
        self.creation_failures.refresh(now)
        encoded = self._state.snapshot(now)
        if self.on_access_questions is not None:
            self.on_access_questions(self._state.access_questions)
        return encoded

    @property
    def terminating_pods(self) -> list[Pod]:
        """Return the pods of our scheduler that were terminating at the last snapshot."""
        return self._state.terminating_pods

    def check(self) -> None:
        """Raise `InvariantError` if a process that starts now would have another state."""
        self._state.check(self._options().now)
        pairs = ((key, podgroup_key(key, pod)) for key, pod in self.cluster.pods.items())
        if {it for it in pairs if it[1]} != self.members.pairs:
            raise InvariantError("the members of groups")
        if self._min_pods != {
            it: min_existing_pods(group) for it, group in self.cluster.pod_groups.items()
        }:
            raise InvariantError("how many pods groups need")

    def is_outdated(self, commands: PodGroupCommands) -> bool:
        """Say whether a pod or a node of the commands has changed since the last snapshot."""
        return any(
            it.pod in self._outdated or Key("", it.node) in self._outdated
            for it in (*commands.binds, *commands.nominations)
        ) or any(pod in self._outdated for one in commands.evictions for pod in one.pods)

    def assume(self, commands: PodGroupCommands) -> PodGroupCommands:
        """Assume that commands are carried out; return them with the uids of their pods."""
        if commands.binds and commands.group in self.cluster.pod_groups:
            self._incomplete[commands.group] = None
        for pod, node in commands.binds:
            self.assumed.bind(pod, self.cluster.pods[pod].metadata, node)
            self._refresh_pod(pod)
        for pod, node in commands.nominations:
            self.assumed.nominate(pod, self.cluster.pods[pod].metadata.uid, node)
            self._refresh_pod(pod)
        text = commands.release_annotation
        if text is None:
            text = commands.reserve_annotation
        if text is not None:
            self._assume_reservation(commands.group, text)
        uids = tuple([self.cluster.pods[it.pod].metadata.uid for it in commands.nominations])
        now = self._options().now
        evictions = self.in_flight_evictions.begin(commands.group, commands.evictions, now)
        at = format_timestamp(now)
        for one in evictions:
            for name, text in one.reserved_annotations:
                self._assume_reservation(name, text)
            for pod, uid in zip(one.pods, one.uids, strict=True):
                self.assumed.evict(pod, uid, at)
                self._refresh_pod(pod)
        return commands._replace(evictions=evictions, uids=uids)

    def pods_not_terminating(self, job: Key) -> list[Key]:
        """Return the pods of a TrainJob on nodes that were not seen to terminate."""
        pods, seen = self.cluster.pods, self._seen_pods
        placed = self.members.placed_pods_of_jobset(job)
        return [it for it in placed if not seen.get(it, pods[it]).metadata.deletion_timestamp]

    def forget_evictions(self, commands: PodGroupCommands, some: PlannedEvictions) -> None:
        """Take back evictions for a preemptor."""
        self._forget_evictions(self.in_flight_evictions.forget(commands.group, some))
        self.forget_places(some)

    def forget_places(self, some: PlannedEvictions) -> None:
        """Take back the reserved places of evictions that relocate PodGroups."""
        for group in (group for one in some for group, _ in one.reserved_annotations):
            self.forget_reservation(group)

    def _forget_evictions(self, pods: Iterable[Key]) -> None:
        for pod in pods:
            self.assumed.forget_eviction(pod)
            self._refresh_pod(pod)

    def forget_bind(self, pod: Key) -> None:
        """Take back that a pod is bound."""
        self.assumed.forget_bind(pod)
        self._refresh_pod(pod)

    def forget_nomination(self, pod: Key) -> None:
        """Take back that a pod is nominated."""
        self.assumed.forget_nomination(pod)
        self._refresh_pod(pod)

    def restore_reservation(self, group: Key, text: str | None) -> None:
        """Take back that places were released; *text* is the annotation before, if any."""
        if text is None or group not in self.cluster.pod_groups:
            self.forget_reservation(group)
        else:
            self._assume_reservation(group, text)

    def _assume_reservation(self, key: Key, text: str) -> None:
        group = self.cluster.pod_groups.get(key)
        if group is not None:
            self.assumed.reserve(key, group.metadata.uid, text)
            self._refresh_group(key)

    def await_reservation(self, group: Key, until_s: float) -> None:
        """Assume the annotation of a PodGroup until it is seen, or until *until_s*."""
        self.assumed.await_seen(group, until_s)
        self._refresh_group(group)

    def forget_reservation(self, group: Key) -> None:
        """Take back the reserved places of a PodGroup."""
        self.assumed.forget_reservation(group)
        self._refresh_group(group)

    def assume_eviction_record(self, group: PodGroup, text: str | None, until_s: float) -> None:
        """Assume that the eviction record of a PodGroup is written; None if it is removed."""
        key = group.metadata.key
        if text is None:
            self.assumed.forget_record(key)
        else:
            self.assumed.record_eviction(key, group.metadata.uid, text, until_s)
        self._refresh_group(key)

    def expire(self, now_s: float) -> list[Key]:
        """Forget assumed changes that were not seen in time; return their objects."""
        pods, groups = self.assumed.forget_overdue(now_s)
        for refresh, keys in ((self._refresh_pod, pods), (self._refresh_group, groups)):
            for key in keys:
                refresh(key)
        if pods:
            self._assume_suspended_evicted()
        return [*pods, *groups]

    def incomplete_groups(self) -> list[Key]:
        """Return the started PodGroups that may lack pods."""
        return [*self._incomplete]

    def mark_complete(self, group: Key) -> None:
        """Note that a PodGroup lacks no pods, or has not started."""
        self._incomplete.pop(group, None)

    def shortage(self, group: Key) -> Shortage | None:
        """Return which pods a PodGroup lacks; None if none, or it has not started, or it ends."""
        podgroup = self.cluster.pod_groups.get(group)
        if podgroup is None or self._is_terminating(group.namespace):
            return None
        members = [self.cluster.pods[key] for key in self.members.pods_of(group)]
        return shortage_of(podgroup, members, self.suspended_trainjobs.jobset_of(podgroup))

    def _trainjob_event(
        self, key: Key, before: TrainJob | None, now: TrainJob | None
    ) -> ClusterEvent:
        """Return the cluster event of a TrainJob; of a new one of its name no refusal is known."""
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._state.suspend_refusals.put(key, None)
        groups = self.suspended_trainjobs.groups_naming(key)
        if now is not None and (
            has_eviction_copy(now) or any(is_evicted(now, it) for it in groups)
        ):
            self._notify_record(key)
        for it in groups:
            self._update_evicted(
                it,
                was=_is_suspended_by_eviction(before, it),
                is_now=_is_suspended_by_eviction(now, it),
            )
        records = [_trainjob_fingerprint(it, groups, kueue=self.kueue) for it in (before, now)]
        return NO_EVENT if records[0] == records[1] else ANY_EVENT

    def _update_record(self, before: PodGroup | None, now: PodGroup | None) -> None:
        """Note the eviction record of a PodGroup, if it has changed."""
        records = [it.metadata.annotations.get(EVICTED_BY) if it else None for it in (before, now)]
        group = now or before
        job = (
            self.suspended_trainjobs.trainjob_of(group)
            if group and records[0] != records[1]
            else None
        )
        if group is None or job is None:
            return
        self._notify_record(job.metadata.key)
        self._update_evicted(
            group,
            was=_is_suspended_by_eviction(job, before),
            is_now=_is_suspended_by_eviction(job, now),
        )

    def _notify_record(self, job: Key) -> None:
        if self.on_eviction_record_change is not None:
            self.on_eviction_record_change(job)

    def _update_evicted(self, group: PodGroup, *, was: bool, is_now: bool) -> None:
        """Assume that the pods of a PodGroup terminate while its TrainJob is evicted."""
        if is_now:
            self._assume_evicted(group)
        elif was:
            self._forget_evictions(self.members.placed_pods(group.metadata.key))

    def _assume_suspended_evicted(self) -> None:
        """Assume that the pods of suspended TrainJobs terminate, until that is seen."""
        for group in self.suspended_trainjobs.evicted_groups():
            self._assume_evicted(group)

    def _assume_evicted(self, group: PodGroup) -> None:
        """Assume that the pods of a PodGroup terminate, until its TrainJob is resumed."""
        for key in self.members.placed_pods(group.metadata.key) if self.is_leading else ():
            meta = self.cluster.pods[key].metadata
            if not meta.deletion_timestamp:
                self.assumed.evict(key, meta.uid, format_timestamp(self._options().now))
                self._refresh_pod(key)

    def annotations_to_write(self) -> list[PodGroupCommands]:
        """Return the annotations of places that were reserved since the last call."""
        self._reserve_lost_places()
        annotations, self._annotations_to_write = self._annotations_to_write, {}
        return [PodGroupCommands(group, text, (), (), None) for group, text in annotations.items()]

    def _note_lost_pod(self, key: Key, lost: Pod) -> bool:
        """Note a lost pod, if a new pod may need its place; say whether."""
        name = podgroup_key(key, lost)
        group = self.cluster.pod_groups.get(name) if name else None
        if name is None or group is None or not self.is_leading or not self.members.is_ours(lost):
            return False
        if self._is_terminating(key.namespace) or not replaces_lost_pods(
            group, self.suspended_trainjobs.jobset_of(group)
        ):
            return False
        self._lost_pods.setdefault(name, {})[key] = lost
        return True

    def _reserve_lost_places(self) -> None:
        """Reserve the places of the pods that were lost of late, for new pods."""
        lost_pods, self._lost_pods = self._lost_pods, {}
        for name, lost in lost_pods.items():
            group = self.cluster.pod_groups.get(name)
            if group is None:
                continue
            others = (self.cluster.pods[it] for it in self.members.pods_of(name) - lost.keys())
            text = reserve_lost_places(
                lost.values(), others, group, self.suspended_trainjobs.jobset_of(group)
            )
            if text is not None:
                self._annotations_to_write[name] = text
                self._assume_reservation(name, text)

    def _is_terminating(self, namespace: str) -> bool:
        """Say whether a namespace is being deleted: no pods are created in it."""
        known = self.cluster.namespaces.get(namespace)
        return known is not None and bool(known.metadata.deletion_timestamp)

    def resource_use_of(self, group: Key) -> tuple[ResourceAmounts, ResourceAmounts]:
        """Return what the pods of a PodGroup are allocated, and what they request in all."""
        return resource_use(self.cluster.pods[key] for key in self.members.pods_of(group))

    def retry_annotation(self, group: Key, text: str) -> None:
        """Write an annotation later that could not be written yet."""
        self._annotations_to_write.setdefault(group, text)

    def _waits_for_members(self, key: Key, pod: Pod | None) -> bool:
        """Say whether a pod waits for its PodGroup, or for other pods of it, to be created."""
        name = podgroup_key(key, pod) if is_pending(pod) else None
        if name is None:
            return False
        group = self.cluster.pod_groups.get(name)
        if group is None:
            return True
        if group.metadata.annotations.get(RESERVED):
            return False  # its place may be reserved: it need not wait for the others
        return len(self.members.pods_of(name)) < self._min_pods[name]

    def _note_incomplete(self, group: Key | None) -> None:
        if group is not None:
            self._incomplete[group] = None

    def _update_members(self, key: Key, before: Pod | None, now: Pod | None) -> None:
        old, new = podgroup_key(key, before), podgroup_key(key, now)
        self.members.move(key, old, new)
        if self.on_podgroup_change is not None:
            for group in {old, new}:
                if group is not None:
                    self.on_podgroup_change(group)

    def _refresh_pod(self, key: Key) -> None:
        self.update_pod(key, self._seen_pods.get(key) or self.cluster.pods.get(key))

    def _refresh_group(self, key: Key) -> None:
        self.update_group(key, self._seen_groups.get(key) or self.cluster.pod_groups.get(key))

    def _pod_event(self, key: Key, before: Pod | None, now: Pod | None) -> ClusterEvent:
        old, new = pod_fingerprint(before), pod_fingerprint(now)
        if old == new:
            was, is_ = is_ready(before), is_ready(now)
            return NO_EVENT if was == is_ else STAGE_PROGRESS
        if (
            old is None
            or new is None
            or old[:2] != new[:2]
            or old.is_terminating != new.is_terminating
        ):
            self._outdated.add(key)
        if new is not None and new.node and (old is None or old.node != new.node):
            self._outdated.add(Key("", new.node))  # it uses room there
        if old is not None and old.node and not is_pending(now):
            return RESOURCES_FREED
        pod = before if now is None else now
        if pod is not None and not self.members.is_ours(pod):
            return RESOURCES_TAKEN if new is not None and new.node else FOREIGN_POD
        return ANY_EVENT


def _is_suspended_by_eviction(job: TrainJob | None, group: PodGroup | None) -> bool:
    return job is not None and group is not None and is_suspended_by_eviction(job, group)


def _trainjob_fingerprint(
    job: TrainJob | None, groups: Iterable[PodGroup], *, kueue: bool
) -> object:
    """Return what of a TrainJob matters to a plan; one that is gone keeps no PodGroup back."""
    will_run = [job is None or will_run_again(job, it) for it in groups]
    return job and suspend_refusal(job, kueue=kueue), will_run
