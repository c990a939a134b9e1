"""Reconciles PodGroups with workloads: the only module around `plan` that waits.

All replicas watch the cluster; only the leader writes. A new leader reconciles every workload, so
no change is lost while there is no leader. Each write may be repeated: a PodGroup is applied as a
whole, and a pod is assigned by its uid.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.meta import Key, Object, PartialObject
from trainer_kai.api.names import GANG, MEMBERS, POD_GROUP, QUEUE, STAGE
from trainer_kai.api.pod import BriefPod
from trainer_kai.api.resources import JOBS, PODS, PRIORITY_CLASSES
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventObject, EventRecorder
from trainer_kai.kube.process.context import ClientObserver
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.process.tasks import cancel_all
from trainer_kai.kube.rest.request import DeleteOptions, ListTarget, Selection, WriteOptions
from trainer_kai.kube.rest.response import Conflict, NotFound
from trainer_kai.kube.watch import Delta, DeltaType, Watch
from trainer_kai.kube.workqueue import RecentWrites, Requeue, WorkQueue, WorkQueueSettings
from trainer_kai.podgrouper.other_kinds import OtherKinds
from trainer_kai.podgrouper.plan import GroupingPlan, ObservedState, PodAssignment, plan
from trainer_kai.podgrouper.store import PodgrouperStore
from trainer_kai.podgrouper.watched_podgroup import (
    FIELD_MANAGER,
    WATCHED_PODGROUPS,
    WatchedPodGroup,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules, ManifestFields
from trainer_kai.policy.workloads.kinds import KINDS, OWNERS, watch_name
from trainer_kai.policy.workloads.workload import ObjectKey, Workload, WorkloadKind
from trainer_kai.service.health import Health
from trainer_kai.service.metrics import Metrics

T = TypeVar("T", bound=Object)

_JOBS: Final = JOBS.with_struct(PartialObject)
_PODS: Final = PODS.with_struct(BriefPod)
_WORKERS: Final = 32  # of each kind: a busy API server takes long to answer, and pods wait for it
_ORPHAN_S: Final = 60.0  # after which a PodGroup without owner and pods is deleted
_APPLY: Final = WriteOptions(field_manager=FIELD_MANAGER, force=True)
_ASSIGN: Final = WriteOptions(field_manager=FIELD_MANAGER)


class Podgrouper:
    """Watches all kinds into the store, and writes while this process is the leader."""

    def __init__(
        self,
        rules: GroupingRules,
        recorder: EventRecorder,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._rules = rules
        self._recorder = recorder
        self._recent_writes = RecentWrites()
        recorder.is_busy = self._recent_writes.are_many  # pods wait for PodGroups, not for Events
        self._metrics = metrics
        self._log = log
        self._store = PodgrouperStore(counts=rules.mode == "external")
        self._others = OtherKinds(rules, self._store, self, recorder, metrics, log)
        self._unsupported_fields: frozenset[str] = frozenset()
        self._warned_uids: dict[ObjectKey, str] = {}  # of workloads with findings that were posted
        self._deferred_messages: dict[ObjectKey, str] = {}  # of the last Event `NotWhileRunning`
        # Assigned pods that no watch has reported: the uid and the PodGroup. Older events may come.
        self._unseen: dict[Key, tuple[str, str]] = {}
        self._applying: dict[Key, bool] = {}  # False: it was deleted before the answer came
        self._queues: dict[str, WorkQueue[ObjectKey]] = {}  # by kind, while this process leads
        self._orphan_queue: WorkQueue[Key] | None = None  # the same
        self._orphaned: dict[Key, tuple[str, float]] = {}  # uid, and since when it has no owner
        self._unsynced = 0
        self._synced = asyncio.Event()

    def start_watches(
        self, run: Runner, client: Client, client_observer: ClientObserver, health: Health
    ) -> None:
        watched = [*self._watched()]
        self._unsynced = len(watched)
        # The API server serves these kinds only where their controllers are installed.
        optional = {
            *(watch_name(it.resource) for it in KINDS),
            *(it.resource.plural for it in OWNERS),
        }
        for name, target, on_change in watched:
            watch = Watch(client, target, client_observer, optional=name in optional)
            health.add_condition(f"{name} followed", watch.not_synced_reason)
            run.start(f"watch {name}", _watch_service(watch, on_change, self._once_synced()))

    def _watched(self) -> Iterator[tuple[str, ListTarget[Any], Callable[[Delta[Any]], None]]]:
        ours = Selection(labels=GANG)
        for kind in KINDS:
            target = ListTarget(kind.resource, selection=Selection(labels=kind.selection))
            yield watch_name(kind.resource), target, partial(self._on_workload, kind)
        yield "podgroups", ListTarget(WATCHED_PODGROUPS, selection=ours), self._on_podgroup
        for label in filter(None, (kind.job_label for kind in KINDS)):
            target = ListTarget(_JOBS, "", Selection(labels=label), only_metadata=True)
            yield f"jobs with {label}", target, self._on_job
        for owner in OWNERS:
            owners = ListTarget(owner.resource.with_struct(PartialObject), only_metadata=True)
            yield owner.resource.plural, owners, partial(self._on_owner, owner.resource.kind)
        if self._rules.mode == "bundled":
            ours = Selection(fields=f"spec.schedulerName={self._rules.scheduler_name}")
        yield "pods", ListTarget(_PODS, selection=ours), self._on_pod
        yield "priorityclasses", ListTarget(PRIORITY_CLASSES), self._on_priority_class

    async def lead(self, client: Client) -> None:
        """*client* is fenced."""
        await self._synced.wait()
        counts = Counter(key.kind for key in self._store.workloads)
        counts_by_name = {it.resource.plural: counts[it.resource.kind] for it in KINDS}
        self._log.info("grouping begins", **counts_by_name)
        queues = {it.resource.kind: self._new_queue(client, it) for it in KINDS}
        orphan_queue: WorkQueue[Key] = WorkQueue(
            lambda key: self.delete_orphan(client, key),
            WorkQueueSettings("orphans", workers=1),
            client.clock,
            self._log,
            metrics=self._metrics.work_queue("orphans"),
        )
        for workload in self._store.workloads:
            queues[workload.kind].add(workload)
        for group in self._store.orphans:
            orphan_queue.add(group)
        self._queues, self._orphan_queue = queues, orphan_queue
        services = [*(it.run() for it in queues.values()), orphan_queue.run()]
        if self._rules.mode == "bundled":
            services += self._others.lead(client)
        running = [asyncio.create_task(it) for it in services]
        try:
            ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            self._queues, self._orphan_queue = {}, None
            self._others.stop()
            await cancel_all(running)

    def _new_queue(self, client: Client, kind: WorkloadKind) -> WorkQueue[ObjectKey]:
        """Each kind has its own, so that many workloads of one delay no other."""
        name = kind.resource.plural
        return WorkQueue(
            lambda key: self.reconcile(client, key),
            WorkQueueSettings(name, workers=_WORKERS),
            client.clock,
            self._log,
            metrics=self._metrics.work_queue(name),
        )

    async def delete_orphan(self, client: Client, key: Key) -> Requeue | None:
        """Delete a PodGroup of ours that lost its owner, when it is of no use any more.

        Its workload was deleted and left its dependents behind. Without an owner it is not garbage
        collected, and would keep its queue from being deleted.
        """
        uid = self._store.orphans.get(key)
        if uid is None:  # it is gone, or has an owner again
            self._orphaned.pop(key, None)
            return None
        now_s = client.clock.monotonic_s()
        known = self._orphaned.get(key)
        if known is None or known[0] != uid:
            known = self._orphaned[key] = uid, now_s
        if now_s - known[1] < _ORPHAN_S or self._store.has_unfinished_pods(key):
            return Requeue.after(_ORPHAN_S)
        with suppress(NotFound, Conflict):  # the watch reports what happened to it
            await client.delete(WATCHED_PODGROUPS, key, DeleteOptions(uid=uid))
            self._log.info("podgroup without owner deleted", group=str(key))
        self._orphaned.pop(key, None)
        return None

    async def reconcile(self, client: Client, key: ObjectKey) -> Requeue | None:
        workload = self._store.workloads.get(key)
        # The PodGroups of a workload that was deleted are garbage collected.
        if workload is None:
            return None
        workload = await self._others.with_namespace_queue(self._store.with_owner_values(workload))
        uid = workload.metadata.uid
        observed = self.observed(uid)._replace(has_owner=self._store.has_owner(workload))
        # Owners may lead to the same pods as their labels.
        members = (*self._others.members(workload), *self._store.members(workload))
        pods = {it.key: it for it in members}.values()
        steps = plan(workload, observed, pods, self._rules)
        self._warn(workload, steps)
        self._post_deferred(workload, steps)
        before = self._podgroup_queues(workload)
        try:
            for fields in steps.apply:
                await self.apply(client, fields)
        finally:
            if steps.is_first and self._store.groups(uid):
                self._post_created(workload, steps)
            self._post_queue_change(workload, before)
        for assignment in steps.assign:
            if await self.assign(client, assignment):
                self._store.pod_assigned(assignment.key, assignment.uid, assignment.group)
        return None

    def observed(self, uid: str) -> ObservedState:
        """Return what is known of the PodGroups of an object."""
        return ObservedState(
            self._store.groups(uid),
            self._unsupported_fields,
            is_running=self._store.is_running(uid),
            priority_classes=self._store.priority_classes,
        )

    async def assign(self, client: Client, assignment: PodAssignment) -> bool:
        """Say whether the pod is still there."""
        pod, written = assignment.key, (assignment.uid, assignment.group)
        if self._unseen.get(pod) == written:
            return True
        self._unseen[pod] = written  # before the answer, which the watch may outrun
        try:
            await client.merge_patch(_PODS, pod, assignment.fields, _ASSIGN)
        except (NotFound, Conflict):
            self._unseen.pop(pod, None)
            return False  # the pod was deleted or recreated: the watch reports that
        except BaseException:
            self._unseen.pop(pod, None)
            raise
        self._metrics.pods_assigned.inc()
        self._log.info("pod assigned", pod=str(pod), group=assignment.group)
        return True

    async def apply(self, client: Client, fields: ManifestFields) -> None:
        key = Key(fields["metadata"]["namespace"], fields["metadata"]["name"])
        self._applying[key] = True
        self._recent_writes.note(client.clock.monotonic_s())
        try:
            applied = await client.apply(WATCHED_PODGROUPS, key, fields, _APPLY)
        finally:
            still_exists = self._applying.pop(key)
        # Stored at once: before the watch reports it, the next reconcile would apply it again.
        if still_exists:
            self._store.group_changed(key, applied)
        # An older CRD of KAI drops fields that it does not have.
        self._unsupported_fields |= fields["spec"].keys() - applied.spec.keys()
        self._metrics.podgroups_applied.inc()
        self._log.info("podgroup applied", group=str(key), queue=fields["spec"]["queue"])

    def _post_created(self, workload: Workload, steps: GroupingPlan) -> None:
        planned = "; ".join(_described(fields) for fields in steps.apply)
        queue = workload.metadata.labels.get(QUEUE) or self._rules.default_queue
        message = f"Created the PodGroups in queue {queue}: {planned}"
        self._recorder.post(_regarding(workload), "PodGroupsCreated", message)

    def _post_queue_change(self, workload: Workload, before: AbstractSet[str]) -> None:
        moved = self._podgroup_queues(workload) - before
        if before and moved:
            old, new = ", ".join(sorted(before)), ", ".join(sorted(moved))
            message = f"The queue of the PodGroups changed from {old} to {new}"
            self._recorder.post(_regarding(workload), "QueueChanged", message)

    def _podgroup_queues(self, workload: Workload) -> AbstractSet[str]:
        groups = self._store.groups(workload.metadata.uid).values()
        return {group.spec.get("queue", "") for group in groups}

    def _warn(self, workload: Workload, steps: GroupingPlan) -> None:
        """Once for each workload, as long as this process runs."""
        key, uid = workload.key, workload.metadata.uid
        findings = steps.podgroup_plan.findings
        if findings and self._warned_uids.get(key) != uid:
            self._warned_uids[key] = uid
            for finding in findings:
                reason = "CannotRun" if finding.blocks else "Noted"
                self._recorder.post(_regarding(workload), reason, str(finding), "Warning")

    def _post_deferred(self, workload: Workload, steps: GroupingPlan) -> None:
        """Post the changes that have no effect while pods run; again only if they differ."""
        key, message = workload.key, "; ".join(map(str, steps.deferred))
        if message == self._deferred_messages.get(key, ""):
            return
        if message:
            self._deferred_messages[key] = message
            self._recorder.post(_regarding(workload), "NotWhileRunning", message, "Warning")
        else:
            del self._deferred_messages[key]

    def _once_synced(self) -> Callable[[], None]:
        is_synced = False

        def synced() -> None:
            nonlocal is_synced
            if not is_synced:
                is_synced = True
                self._unsynced -= 1
                if not self._unsynced:
                    self._synced.set()

        return synced

    def _on_workload(self, kind: WorkloadKind, change: Delta[Any]) -> None:
        key, obj = ObjectKey(kind.resource.kind, *change.key), _present(change)
        if obj is None:
            self._warned_uids.pop(key, None)
            self._deferred_messages.pop(key, None)
        self._enqueue(self._store.workload_changed(key, None if obj is None else kind.adapt(obj)))

    def _on_podgroup(self, change: Delta[Any]) -> None:
        group: WatchedPodGroup | None = _present(change)
        if group is None:
            if change.key in self._applying:
                self._applying[change.key] = False
            owner = self._store.group_deleted(change.key, change.uid)
            if owner is not None:
                self.enqueue_workload(owner)
                self._others.group_deleted(owner)
        else:
            self._enqueue(self._store.group_changed(change.key, group))
            if change.key in self._store.orphans and self._orphan_queue is not None:
                self._orphan_queue.add(change.key)

    def _on_job(self, change: Delta[PartialObject]) -> None:
        self._enqueue(self._store.job_changed(change.key, _present(change)))

    def _on_owner(self, kind: str, change: Delta[PartialObject]) -> None:
        for key in self._store.owner_changed(ObjectKey(kind, *change.key), _present(change)):
            self._enqueue(key)

    def _on_pod(self, change: Delta[BriefPod]) -> None:
        pod = _present(change)
        _, written = self._unseen.get(change.key, ("", ""))
        if pod is None or pod.metadata.annotations.get(POD_GROUP) == written:
            self._unseen.pop(change.key, None)
        self._enqueue(self._store.pod_changed(change.key, pod))
        if self._rules.mode == "bundled":
            self._others.pod_changed(change.key, pod)

    def _on_priority_class(self, change: Delta[PriorityClass]) -> None:
        self._store.priority_class_changed(change.key.name, _present(change))

    def _enqueue(self, key: ObjectKey | None) -> None:
        if key is not None:
            self.enqueue_workload(key)
            self._others.owner_changed(key)

    def enqueue_workload(self, key: ObjectKey) -> None:
        queue = self._queues.get(key.kind)
        if queue is not None:
            queue.add(key)


def _regarding(workload: Workload) -> EventObject:
    it = workload.regarding
    return EventObject(it.api_version, it.kind, workload.metadata.namespace, it.name, it.uid)


def _present(change: Delta[T]) -> T | None:
    return None if change.type is DeltaType.DELETED else change.object


def _watch_service(
    watch: Watch[Any], on_change: Callable[[Delta[Any]], None], synced: Callable[[], None]
) -> Callable[[], Coroutine[Any, Any, None]]:
    return lambda: watch.run(on_change, synced)


def _described(fields: ManifestFields) -> str:
    annotations = fields["metadata"]["annotations"]
    return f"{annotations[MEMBERS]} ({annotations[STAGE]})"
