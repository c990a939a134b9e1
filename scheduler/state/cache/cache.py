"""The cluster as the watches show it, with the assumed changes of the scheduler laid over it.

Watches update it and the cycle reads it, both on one event loop. The snapshot of a plan is frozen
while the cache changes; `is_outdated` finds commands for pods or nodes that have changed since.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.api_evictions import ApiEvictions
from scheduler.state.cache.assumed import AssumedChanges
from scheduler.state.cache.assumed_claims import AssumedClaims
from scheduler.state.cache.cluster_events import (
    QUEUEING_HINTS,
    PodFingerprint,
    is_pending,
    is_ready,
    offers_less,
    pod_fingerprint,
    pod_hint,
    podgroup_fingerprint,
    workload_hint,
)
from scheduler.state.cache.creation_failures import PodCreationFailures
from scheduler.state.cache.evictions import (
    InFlightEvictions,
    SuspendedWorkloads,
    SuspensionNotes,
)
from scheduler.state.cache.failed_starts import FailedStarts
from scheduler.state.cache.incomplete import IncompletePodGroups, LostPods
from scheduler.state.cache.members import PodGroupMembers, podgroup_key
from scheduler.state.cache.node_refusals import NodeRefusals
from scheduler.state.cache.pods_by_gpu import GpuGroups
from scheduler.state.commands import PodGroupCommands
from scheduler.state.inputs import Permit, StateOptions
from scheduler.state.podgroups.missing_pods import is_lost, min_existing_pods
from scheduler.state.snapshot.cluster_state import ClusterState
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.cluster_kinds import Node, PersistentVolumeClaim
from trainer_kai.api.device_kinds import ResourceClaim
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import RESERVED
from trainer_kai.api.pod import Pod, kubelet_refusal
from trainer_kai.api.resources import (
    NODES,
    PODGROUPS,
    PODS,
    PVCS,
    RESOURCE_CLAIMS,
    Resource,
)
from trainer_kai.errors import InvariantError
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE, OWNER_OF_RESOURCE
from trainer_kai.policy.workloads.workload import ObjectKey

if TYPE_CHECKING:
    from scheduler.state.queues.access import AccessQuestion


class ClusterCache:
    """The objects by name, and what the scheduler wrote and has not seen yet.

    `update` takes what the watches show, and `assume` what was decided. Its parts are used
    directly: `assumed`, `in_flight_evictions`, `suspended_workloads`, `incomplete`, `lost_pods`,
    `api_evictions`, `members`, `gpu_groups` and `creation_failures`.
    """

    def __init__(self, options: Callable[[], StateOptions]) -> None:
        self._state: Final = ClusterState(options())
        self._options: Final = options
        self.scheduler_name: Final = options().scheduler_name
        self.default_queue: Final = options().default_queue
        self.kueue: Final = options().kueue
        self.staleness_grace_s: Final = options().staleness_grace_s
        self.cluster: Final = self._state.cluster  # with the assumed changes
        self.assumed: Final = AssumedChanges(self.cluster, self.update_pod, self.update_group)
        self.assumed_claims: Final = AssumedClaims(self.cluster)
        self.members: Final = PodGroupMembers(self.cluster, self.scheduler_name)
        self.gpu_groups: Final = GpuGroups(self.cluster, options())
        self.in_flight_evictions: Final = InFlightEvictions(self.cluster, self.assumed, options)
        self.suspended_workloads: Final = SuspendedWorkloads(
            self.cluster,
            self.members,
            self.assumed,
            SuspensionNotes(self._state.suspend_refusals, self._state.reverted_suspensions),
            options,
        )
        stale_since = self._state.stale_since
        self.incomplete: Final = IncompletePodGroups(self.cluster, self.members, stale_since)
        self.api_evictions: Final = ApiEvictions(self._state.api_evictions, lambda: options().now)
        self.lost_pods: Final = LostPods(self.cluster, self.members, self.assumed)
        self.node_refusals: Final = NodeRefusals(self.cluster, self.members, self.assumed, options)
        self.failed_starts: Final = FailedStarts(self.cluster, self.node_refusals)
        self._min_pods: Final[dict[Key, int]] = {}  # by PodGroup: it cannot be placed with fewer
        self.creation_failures: Final = PodCreationFailures(
            self.cluster, self.members, self._min_pods
        )
        self._pods: Final = self._state.stores[PODS]
        self._groups: Final = self._state.stores[PODGROUPS]
        self._outdated: set[Key] = set()  # pods and nodes that have changed since the snapshot
        self.is_leading = False
        self.on_podgroup_change: Callable[[Key], None] | None = None
        """Called with a PodGroup when its pods have changed, and when it is deleted."""
        self.on_access_questions: Callable[[AbstractSet[AccessQuestion]], None] | None = None
        """Called with the access questions of each snapshot."""
        self.on_claim_change: Callable[[Key], None] | None = None
        """Called with a PersistentVolumeClaim when it has changed."""
        self._updates: Final = self._updates_by_kind()

    def update(self, resource: Resource[Any], key: Key, seen: Object | None) -> ClusterEvent:
        update = self._updates.get(resource)
        if update is not None:
            return update(key, seen)
        before = self._state.put(resource, key, seen)
        return QUEUEING_HINTS[resource](before, seen)

    def _updates_by_kind(self) -> dict[Resource[Any], Callable[[Key, Any], ClusterEvent]]:
        return {
            PODS: self.update_pod,
            PODGROUPS: self.update_group,
            **{it: partial(self._update_workload, it) for it in KIND_OF_RESOURCE},
            **{it: partial(self._update_owner, it) for it in OWNER_OF_RESOURCE},
            NODES: self._update_node,
            PVCS: self._update_claim,
            RESOURCE_CLAIMS: self._update_resource_claim,
        }

    def update_pod(self, key: Key, seen: Pod | None) -> ClusterEvent:
        shown = self.assumed.apply_to_pod(key, seen)
        before: Pod | None = self._pods.put(key, shown)
        old, new = pod_fingerprint(before), pod_fingerprint(shown)
        if old == new:
            return NO_EVENT if is_ready(before) == is_ready(shown) else ClusterEvent.STAGE_PROGRESS
        self._note_outdated(key, old, new)
        self.gpu_groups.update(key, shown)
        event = pod_hint(before, shown, self.scheduler_name)
        if self.api_evictions.note(key, before, shown):
            event = ClusterEvent.ANY  # its PodGroup may have to leave the node whole
        if shown is not None and self.is_leading and kubelet_refusal(shown):
            is_now = before is not None and not kubelet_refusal(before)
            self.node_refusals.note_pod(key, shown, is_refused_now=is_now)
        if before is not None and self._note_lost_pod(key, before, shown):
            event = ClusterEvent.ANY  # its reserved place has to be written
        self._update_members(key, before, shown)
        if old is not None and old.is_terminating and new is not None and not new.is_terminating:
            self._note_incomplete(podgroup_key(key, shown))  # it is not evicted after all
        if event is ClusterEvent.ANY and self._waits_for_members(key, shown):
            return ClusterEvent.PODGROUP_INCOMPLETE
        return event

    def update_group(self, key: Key, seen: PodGroup | None) -> ClusterEvent:
        shown = self.assumed.apply_to_group(key, seen)
        before: PodGroup | None = self._groups.put(key, shown)
        self.members.set_owners(key, shown)
        self.suspended_workloads.update_record(before, shown)
        if podgroup_fingerprint(before) == podgroup_fingerprint(shown):
            return NO_EVENT
        if shown is None:
            self._min_pods.pop(key, None)
            if self.on_podgroup_change is not None:
                self.on_podgroup_change(key)
        else:
            self._min_pods[key] = min_existing_pods(shown)
        return ClusterEvent.ANY

    def _update_claim(self, key: Key, seen: PersistentVolumeClaim | None) -> ClusterEvent:
        before = self._state.put(PVCS, key, seen)
        if self.on_claim_change is not None:
            self.on_claim_change(key)
        return QUEUEING_HINTS[PVCS](before, seen)

    def _update_resource_claim(self, key: Key, seen: ResourceClaim | None) -> ClusterEvent:
        before = self._state.put(RESOURCE_CLAIMS, key, seen)
        self.assumed_claims.seen(key, seen)
        return QUEUEING_HINTS[RESOURCE_CLAIMS](before, seen)

    def set_permit(self, pair: Key, permit: Permit | None) -> ClusterEvent:
        before = self._state.permits.put(pair, permit)
        return NO_EVENT if before == permit else ClusterEvent.ANY

    def start_leading(self) -> None:
        self.is_leading = True
        self.incomplete.note_all()
        self.suspended_workloads.start_leading()

    def stop_leading(self, now_s: float) -> None:
        self.is_leading = False
        self.lost_pods.clear()
        self.node_refusals.clear()
        self.assumed.limit_waits(now_s)
        self.in_flight_evictions.clear()
        self.suspended_workloads.stop_leading()
        self.on_podgroup_change = self.on_access_questions = self.on_claim_change = None
        self.gpu_groups.on_change = self.gpu_groups.on_leftover = None

    def snapshot(self) -> EncodedSnapshot:
        """Return the snapshot for a plan; `is_outdated` compares with it from now on."""
        self.lost_pods.reserve()
        self._outdated = set()
        self.assumed_claims.forget_others()
        now = self._options().now
        self.api_evictions.forget_older(now)
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
            raise InvariantError("the members of PodGroups")
        if self._min_pods != {
            it: min_existing_pods(group) for it, group in self.cluster.pod_groups.items()
        }:
            raise InvariantError("how many pods PodGroups need")
        gpu_groups = GpuGroups(self.cluster, self._options())
        for key, pod in self.cluster.pods.items():
            gpu_groups.update(key, pod)
        if gpu_groups.content != self.gpu_groups.content:
            raise InvariantError("which pods share GPUs")

    def is_outdated(self, commands: PodGroupCommands) -> bool:
        return any(
            it.pod in self._outdated or Key("", it.node) in self._outdated
            for it in (*commands.binds, *commands.nominations)
        ) or any(pod in self._outdated for one in commands.evictions for pod in one.pods)

    def does_something(self, commands: PodGroupCommands) -> bool:
        """Say whether commands change anything; a plan repeats the nominations that exist."""
        pods = self.cluster.pods
        annotations = commands.reserve_annotation, commands.release_annotation
        is_any = annotations != (None, None) or commands.line_annotation is not None
        return bool(commands.binds or commands.evictions or is_any) or any(
            it.pod in pods and pods[it.pod].status.nominated_node_name != it.node
            for it in commands.nominations
        )

    def assume(self, commands: PodGroupCommands) -> PodGroupCommands:
        """Assume that commands are carried out; return them with the uids of their pods."""
        if commands.binds and commands.group in self.cluster.pod_groups:
            self.incomplete.note(commands.group)
        for pod, node in commands.binds:
            self.assumed.bind(pod, node, commands.gpu_groups.get(pod, ()))
            if commands.claims:
                self.assumed_claims.bind(pod, node, commands.claims.get(pod, ()))
        for pod, node in commands.nominations:
            self.assumed.nominate(pod, node)
        text = commands.release_annotation
        if text is None:
            text = commands.reserve_annotation
        if text is not None:
            self.assumed.reserve(commands.group, text)
        if commands.line_annotation is not None:
            self.assumed.set_line(commands.group, commands.line_annotation)
        uids = tuple([self.cluster.pods[it.pod].metadata.uid for it in commands.nominations])
        self.api_evictions.settle(commands.evictions)
        now = self._options().now
        evictions = self.in_flight_evictions.begin(commands.group, commands.evictions, now)
        return commands._replace(evictions=evictions, uids=uids)

    def expire(self, now_s: float) -> list[Key]:
        pods, groups = self.assumed.forget_overdue(now_s)
        if pods:
            self.suspended_workloads.assume_evicted()
        return [*pods, *groups]

    def _update_workload(
        self, resource: Resource[Any], key: Key, seen: Object | None
    ) -> ClusterEvent:
        named, workloads = ObjectKey(resource.kind, *key), self.cluster.workloads
        before = workloads.get(named)
        self._state.put(resource, key, seen)
        now = workloads.get(named)
        own = [it.as_suspendable() if it and not it.needs_owner else None for it in (before, now)]
        event = self.suspended_workloads.suspendable_event(named, *own) if any(own) else NO_EVENT
        return event | workload_hint(before, now)

    def _update_owner(self, resource: Resource[Any], key: Key, seen: Object | None) -> ClusterEvent:
        named, owners = ObjectKey(resource.kind, *key), self.cluster.owners
        before = owners.get(named)
        self._state.put(resource, key, seen)
        return self.suspended_workloads.suspendable_event(named, before, owners.get(named))

    def _update_node(self, key: Key, seen: Node | None) -> ClusterEvent:
        before = self._state.put(NODES, key, seen)
        if offers_less(before, seen):
            self._outdated.add(key)
        return QUEUEING_HINTS[NODES](before, seen)

    def _note_outdated(
        self, key: Key, old: PodFingerprint | None, new: PodFingerprint | None
    ) -> None:
        """Note that commands for a pod, or for the node that it got, rely on what was before."""
        if (
            old is None
            or new is None
            or old[:2] != new[:2]
            or old.is_terminating != new.is_terminating
        ):
            self._outdated.add(key)
        if (
            new is not None
            and new.node
            and (old is None or old.node != new.node or old.resized != new.resized)
        ):
            self._outdated.add(Key("", new.node))  # it uses resources there

    def _note_lost_pod(self, key: Key, before: Pod, now: Pod | None) -> bool:
        """Note a pod that left its node without an eviction; say whether its place is reserved."""
        if self.assumed.evicted_uid(key) or not is_lost(before, now):
            return False
        self._note_incomplete(podgroup_key(key, before))
        if kubelet_refusal(now):
            return False  # its node is avoided
        return self.is_leading and self.lost_pods.note(key, before)

    def _note_incomplete(self, group: Key | None) -> None:
        if group is not None and self.is_leading:  # `note_all` covers the start of leading
            self.incomplete.note(group)

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

    def _update_members(self, key: Key, before: Pod | None, now: Pod | None) -> None:
        old, new = podgroup_key(key, before), podgroup_key(key, now)
        self.members.move(key, old, new)
        if self.on_podgroup_change is not None:
            for group in {old, new}:
                if group is not None:
                    self.on_podgroup_change(group)
