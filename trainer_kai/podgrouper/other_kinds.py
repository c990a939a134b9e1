"""Groups the pods that no label assigns to a workload: it reads their owners, and writes PodGroups.

First the owners of equal pods are read, then the PodGroup is written: two work queues, so that one
PodGroup is written by one worker, however many owners below have pods for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Final, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.api.names import QUEUE
from trainer_kai.api.pod import BriefPod, Pod
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventObject, EventRecorder
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings
from trainer_kai.podgrouper.loose_pods import GroupKey, LoosePod, LoosePods, OwnersKey
from trainer_kai.podgrouper.owner_reader import OwnerReader
from trainer_kai.podgrouper.plan import (
    GroupingPlan,
    ObservedState,
    PodAssignment,
    assign_all,
    plan_default,
)
from trainer_kai.podgrouper.store import PodgrouperStore, PodRecord
from trainer_kai.policy.podgroups.default_group import (
    DefaultGroup,
    default_group_findings,
    default_podgroup,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules, ManifestFields
from trainer_kai.policy.queueing.queue_resolution import queue_of_owner
from trainer_kai.policy.workloads.owner_chain import ChainEnd, OwnerChain, group_subject
from trainer_kai.policy.workloads.workload import ObjectKey, Workload
from trainer_kai.service.metrics import Metrics

K = TypeVar("K", bound=Hashable)

_MAY_COME_S: Final = 1.0  # watches are not in step: a workload may be known a moment after its pods
_AGAIN_S: Final = 60.0  # until owners are read again while a pod of them has no node
_AGAIN_PER_S: Final = 20  # and no more than so many
_ASSIGNED_AT_ONCE: Final = 16  # pods of one PodGroup
_MOST_TOLD: Final = 1_000


class GroupWriter(Protocol):
    """Writes what a plan says; `Podgrouper` is one."""

    async def apply(self, client: Client, fields: ManifestFields) -> None: ...

    async def assign(self, client: Client, assignment: PodAssignment) -> bool: ...

    def observed(self, uid: str) -> ObservedState: ...

    def enqueue_workload(self, key: ObjectKey) -> None: ...


class OtherKinds:
    def __init__(
        self,
        rules: GroupingRules,
        store: PodgrouperStore,
        writer: GroupWriter,
        recorder: EventRecorder,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._rules = rules
        self._store = store
        self._writer = writer
        self._recorder = recorder
        self._metrics = metrics
        self._log = log
        self._pods = LoosePods()
        self._told: dict[Hashable, None] = {}  # of what an Event was posted
        self._waited: set[OwnersKey] = set()  # for a workload that may come
        self._reader: OwnerReader | None = None  # while this process leads
        self._owners_queue: WorkQueue[OwnersKey] | None = None  # the same
        self._groups_queue: WorkQueue[GroupKey] | None = None  # the same

    def members(self, workload: Workload) -> list[PodRecord]:
        return [*self._pods.members(workload)]

    def pod_changed(self, key: Key, pod: Pod | BriefPod | None) -> None:
        owners = self._pods.pod_changed(key, pod)
        if owners is not None and not self._store.is_known_member(key) and self._owners_queue:
            self._owners_queue.add(owners)

    def owner_changed(self, owner: ObjectKey) -> None:
        """Plan the PodGroup of an object again, if it has one of these."""
        group = self._pods.group_of(owner)
        if group is not None and self._groups_queue is not None:
            self._groups_queue.add(group)

    def group_deleted(self, owner: ObjectKey) -> None:
        """Look whether the owner of a PodGroup still exists: only then it is made again."""
        for owners in self._pods.owners_of_group(owner):
            if self._owners_queue is not None and self._reader is not None:
                self._reader.forget(owners.namespace, self._pods.references_of(owners))
                self._owners_queue.add(owners)

    def lead(self, client: Client) -> list[Coroutine[Any, Any, None]]:
        """Begin to group; return what has to run while this process leads."""
        reader = self._reader = OwnerReader(client, self._store.owner_record)

        def read(owners: OwnersKey) -> Coroutine[Any, Any, Requeue | None]:
            return self.read_owners(reader, owners)

        def write(group: GroupKey) -> Coroutine[Any, Any, Requeue | None]:
            return self.write_group(client, reader, group)

        self._owners_queue = self._new_queue(client, "owners", read)
        self._groups_queue = self._new_queue(client, "podgroups", write)
        for owners in self._pods:
            pod = self._pods.any_pod(owners)
            if pod is not None and not self._store.is_known_member(pod.key):
                self._owners_queue.add(owners)
        return [self._owners_queue.run(), self._groups_queue.run()]

    async def with_namespace_queue(self, workload: Workload) -> Workload:
        needs_queue = not (workload.kind.has_mark or workload.metadata.labels.get(QUEUE))
        if self._reader is None or not needs_queue:
            return workload
        queue = await self._reader.namespace_queue(workload.metadata.namespace)
        return workload.with_namespace_queue(queue)

    def stop(self) -> None:
        self._owners_queue = self._groups_queue = self._reader = None

    def _new_queue(
        self, client: Client, name: str, reconcile: Callable[[K], Awaitable[Requeue | None]]
    ) -> WorkQueue[K]:
        settings, metrics = WorkQueueSettings(name, workers=8), self._metrics.work_queue(name)
        return WorkQueue(reconcile, settings, client.clock, self._log, metrics=metrics)

    async def read_owners(self, reader: OwnerReader, owners: OwnersKey) -> Requeue | None:
        pod = self._pods.any_pod(owners)
        if pod is None or self._store.is_known_member(pod.key):
            self._waited.discard(owners)
            return None
        chain = await reader.chain(owners.namespace, owners.references)
        pod = self._pods.any_pod(owners)
        is_gone = chain.end is ChainEnd.MISSING and self._pods.is_assigned(owners)
        if pod is None or chain.is_skipped or is_gone:  # an owner that is gone takes its pods along
            self._waited.discard(owners)
            return None
        workload, may_come = self._store.workload_of(chain)
        if may_come and owners not in self._waited:
            self._waited.add(owners)
            return Requeue.after(_MAY_COME_S)
        self._waited.discard(owners)
        if workload is not None:
            self._pods.member_of(owners, workload)
            self._writer.enqueue_workload(workload.key)
            return None
        self._tell_end(chain, pod)
        for group in self._pods.resolved(owners, group_subject(chain)):
            if self._groups_queue is not None:
                self._groups_queue.add(group)
        if not self._pods.is_waiting(owners):
            return None
        # Owners are not watched: a queue that is corrected while pods wait is seen by asking again.
        return Requeue.after(max(_AGAIN_S, len(self._pods) / _AGAIN_PER_S))

    async def write_group(self, client: Client, reader: OwnerReader, key: GroupKey) -> None:
        group = self._pods.default_group(key)
        if group is None:
            return
        queue = queue_of_owner(group.subject.labels, group.pod.labels)
        queue = queue or await reader.namespace_queue(group.namespace) or self._rules.default_queue
        pods = self._pods.pods(key)
        if group.subject.existing_group:
            assign = assign_all(group.subject.existing_group, pods)
        else:
            observed = self._writer.observed(group.owner.uid)
            wanted = default_podgroup(
                group, queue, observed.priority_classes, self._rules.kind_defaults
            )
            steps = plan_default(wanted, observed, pods, self._rules)
            for fields in steps.apply:
                await self._writer.apply(client, fields)
            self._tell_steps(group, steps)
            assign = steps.assign
        # Some at once: a pod that waits too long for its PodGroup is scheduled alone.
        for start in range(0, len(assign), _ASSIGNED_AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for assignment in assign[start : start + _ASSIGNED_AT_ONCE]:
                    tasks.create_task(self._assign(client, assignment))

    async def _assign(self, client: Client, assignment: PodAssignment) -> None:
        if await self._writer.assign(client, assignment):
            self._pods.assigned(assignment.key, assignment.uid, assignment.group)

    def _tell_end(self, chain: OwnerChain, pod: LoosePod) -> None:
        """Say once why a chain of owners could not be followed: by kind, or by pod."""
        if chain.end is ChainEnd.TOP:
            return
        at = chain.unread or (chain.owners[-1].reference if chain.owners else None)
        owner = group_subject(chain).owner
        counted = f"{owner.reference.kind} {owner.reference.name}" if owner else "the pod alone"
        name = f"{at.kind} {at.name} ({at.api_version})" if at else "the pod"
        message = f"The PodGroup is that of {counted}, because {name} {chain.end.value}"
        key: Hashable = pod.key, chain.end
        if chain.end is ChainEnd.FORBIDDEN and at is not None:
            key = at.api_version.rpartition("/")[0], at.kind
        regarding = EventObject("v1", "Pod", pod.key.namespace, pod.key.name, pod.uid)
        if self._tell(key, regarding, "OwnerNotRead", message):
            self._log.warning("owner not read", pod=str(pod.key), owner=name, why=chain.end.value)

    def _tell_steps(self, group: DefaultGroup, steps: GroupingPlan) -> None:
        owner = group.owner
        regarding = EventObject(
            owner.api_version, owner.kind, group.namespace, owner.name, owner.uid
        )
        if steps.is_first and group.subject.owner is not None:
            queue = steps.apply[0]["spec"]["queue"]
            message = f"Created PodGroup {group.key.name} in queue {queue}"
            self._recorder.post(regarding, "PodGroupsCreated", message)
        for finding in default_group_findings(group.subject):
            reason = "CannotRun" if finding.blocks else "Noted"
            self._tell((owner.uid, finding), regarding, reason, str(finding))
        deferred = "; ".join(map(str, steps.deferred))
        if deferred:
            self._tell((owner.uid, deferred), regarding, "NotWhileRunning", deferred)

    def _tell(self, key: Hashable, regarding: EventObject, reason: str, message: str) -> bool:
        """Post a warning once for each key; say whether it was posted."""
        if key in self._told:
            return False
        if len(self._told) >= _MOST_TOLD:
            del self._told[next(iter(self._told))]
        self._told[key] = None
        self._recorder.post(regarding, reason, message, "Warning")
        return True
