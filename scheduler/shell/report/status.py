"""Writes conditions, Events and status of PodGroups, pods and queues, level by level.

1. A PodGroup that waits has one scheduling condition, as KAI writes it, with our reason beside it.
   It is removed when no pod of the PodGroup waits any more.
2. A pod is marked Unschedulable only where another node would help: autoscalers act on it. A pod
   without a PodGroup has a condition for any other reason as well, under the name of the reason.
3. A reason must have held for a moment before it is written, and numbers alone are written anew
   only now and then: a reason that changes is reported at once, a count that changes is not.
4. No plan waits for these writes. A write that fails is repeated as long as its content is true.
5. While many pods are bound, the use of resources in the status of PodGroups waits, for some
   seconds: each write delays a bind, and the use of a PodGroup that starts changes several times.

While another scheduler with our name pauses us, `PauseReporter` reports only that:

1. A PodGroup is reported once in each pause: a condition, and an Event on it and on its workload.
   What the other scheduler writes afterwards stays: the two never take turns at a PodGroup.
2. The condition has a type of its own. KAI leaves a PodGroup alone that carries
   `UnschedulableOnNodePool` and has `schedulingBackoff` 1, so that type would stop KAI as well.
3. It is written only over the version that was seen, so nothing of the other scheduler is lost.
4. At most 50 PodGroups a second are written. `StatusReporter` removes the condition when we
   schedule again.
"""

import asyncio
import zlib
from typing import Any, Final, Literal, NamedTuple

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.writes import FIELD_MANAGER, LimitedWrites
from scheduler.shell.event_objects import post_event
from scheduler.shell.report.asks import record_ask
from scheduler.shell.report.plan_report import (
    Gauges,
    PlanReport,
    PodEvents,
    PodGroupReport,
    missing_queue_use,
)
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.cluster_events import is_pending
from trainer_kai.api.kai_kinds import PodGroup, QueueStatus, SchedulingCondition
from trainer_kai.api.meta import Condition, Key
from trainer_kai.api.names import POD_GROUP
from trainer_kai.api.pod import Pod
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.resources import PODGROUPS, PODS, QUEUES
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventRecorder
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError, Conflict, Invalid, NotFound, is_retryable
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings
from trainer_kai.policy.pods.requests import format_amounts
from trainer_kai.service.metrics import Metrics

PAUSED: Final = UnschedulableReason.SCHEDULER_PAUSED.value
_STATUS: Final = WriteOptions(field_manager=FIELD_MANAGER, subresource="status")
_POD_CONDITION: Final = WriteOptions(
    field_manager="trainer-kai-unschedulable", subresource="status", force=True
)
_POD_SCHEDULED: Final = "PodScheduled"
_CONDITION_TYPE: Final = "UnschedulableOnNodePool"
_NODE_POOL: Final = "default"
_SETTLED_S: Final = 0.3  # how long a reason must hold before it is written
_MISSING_S: Final = 3.0  # each PodGroup lacks pods for a moment, while they are created
_MAX_MISSING_S: Final = 15.0  # even if more pods keep coming
_NEGLIGIBLE_S: Final = 1e-3  # a shorter time is none
_RESOURCES_S: Final = 1.0  # between a change of resource use and its status
_BUSY_S: Final = 3.0  # until it is tried again, while many pods are bound,
_MAX_BUSY_S: Final = 10.0  # but it is not kept back for longer
_QUEUE_S: Final = 3.0  # between two statuses of a queue
_NUMBERS_S: Final = 3.0  # between two messages that differ in numbers only,
_NUMBERS_PER_S: Final = 50  # of which so many a second are written in all,
_MAX_NUMBERS_S: Final = 60.0  # but none is older than this, or twice this
_POD_NUMBERS_S: Final = 60.0  # between two messages of a pod that differ in numbers only
_EVENT_S: Final = 15.0  # between two Events about a PodGroup
_WORKERS: Final = 8

_POLL_S: Final = 3.0
_WRITE_INTERVAL_S: Final = 0.02
_SubjectKind = Literal["group", "pod", "queue"]


class _Subject(NamedTuple):
    kind: _SubjectKind
    key: Key


class StatusReporter:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        recorder: EventRecorder,
        binds: LimitedWrites,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._cache = cache
        self._recorder = recorder
        self._binds = binds
        self._log = log
        self._report = PlanReport({}, {})
        self._gauges = Gauges(metrics)
        self._pod_events = PodEvents(cache, recorder, client.clock, metrics, log)
        self._marked: dict[Key, set[Key]] = {}  # PodGroup → its marked pods
        self._marking_podgroup: dict[Key, Key] = {}  # pod → its PodGroup
        self._kept_back_s: dict[Key, float] = {}  # since when the use of a PodGroup is kept back
        self._reported_s: dict[Key, float] = {}  # when a PodGroup was reported last
        self._posted_s: dict[Key, float] = {}  # and by an Event
        self._reported_waiting: set[Key] = set()  # no Event said yet that these PodGroups start
        self._podgroups_waiting = 0
        self._standalone_waiting = 0
        self._queue_reported_s: dict[str, float] = {}
        self._queue_uids: dict[str, str] = {}
        # since when pods are missing, and when the number last changed
        self._pods_missing_s: dict[Key, tuple[float, float]] = {}
        self._has_begun = False
        self._queue: WorkQueue[_Subject] = WorkQueue(
            self._reconcile,
            WorkQueueSettings("reports", workers=_WORKERS),
            client.clock,
            log,
            metrics=metrics.work_queue("reports"),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._pod_events.run())

    def publish(self, report: PlanReport) -> None:
        """Take the report of a plan, and write what differs from the one before."""
        before, self._report = self._report, report
        if not self._has_begun:
            self._adopt_existing()
        pod_groups = self._cache.cluster.pod_groups
        without_queue = (pod_groups[it] for it in report.without_queue if it in pod_groups)
        self._gauges.update(report, missing_queue_use(without_queue))
        self._podgroups_waiting = sum(
            it in self._cache.cluster.pod_groups for it in report.podgroups
        )
        self._standalone_waiting = len(report.podgroups) - self._podgroups_waiting
        for group in before.podgroups.keys() | report.podgroups.keys():
            if before.podgroups.get(group) != report.podgroups.get(group):
                self._queue.add_after(_Subject("group", group), _SETTLED_S)
                self._note_missing(group, report.podgroups.get(group))
        for name in before.queues.keys() - report.queues.keys():
            self._queue_reported_s.pop(name, None)
            self._queue_uids.pop(name, None)
        for name, usage in report.queues.items():
            known, is_new = before.queues.get(name), self._is_recreated(name)
            if known is None or is_new or known[:3] != usage[:3]:
                self._queue.add_after(_Subject("queue", Key("", name)), self._queue_delay_s(name))

    def _is_recreated(self, name: str) -> bool:
        """Say whether a queue was recreated since its last report: its status is empty."""
        queue = self._cache.cluster.queues.get(name)
        uid = queue.metadata.uid if queue else ""
        before, self._queue_uids[name] = self._queue_uids.get(name), uid
        return before != uid

    def _queue_delay_s(self, name: str) -> float:
        """Return how soon the status of a queue is written: in a busy queue it changes often."""
        since_s = self._client.clock.monotonic_s() - self._queue_reported_s.get(name, -_QUEUE_S)
        return max(_RESOURCES_S, _QUEUE_S - since_s)

    def podgroup_changed(self, group: Key) -> None:
        """Take note that a PodGroup is deleted, or that its pods are created, deleted or placed."""
        self._queue.add_after(_Subject("group", group), _RESOURCES_S)

    async def _reconcile(self, subject: _Subject) -> Requeue | None:
        try:
            match subject.kind:
                case "group":
                    return await self._reconcile_podgroup(subject.key)
                case "pod":
                    return await self._reconcile_pod(subject.key)
                case "queue":
                    await self._reconcile_queue(subject.key)
        except (NotFound, Conflict):
            return None  # the object is gone or recreated: the watch will show that
        except Invalid as error:
            self._log.warning(
                "status not written", kind=subject.kind, key=str(subject.key), error=str(error)
            )
        return None

    def _note_missing(self, group: Key, report: PodGroupReport | None) -> None:
        if report is not None and report.reason == UnschedulableReason.PODS_MISSING:
            now_s = self._client.clock.monotonic_s()
            first_s, _ = self._pods_missing_s.get(group, (now_s, now_s))
            self._pods_missing_s[group] = first_s, now_s  # more pods have come
        else:
            self._pods_missing_s.pop(group, None)

    async def _reconcile_podgroup(self, key: Key) -> Requeue | None:
        report = self._report.podgroups.get(key)
        self._mark_pods(key, report)
        delay_s = self._missing_delay_s(key)
        if not delay_s:
            self._pod_events.update(key, report)
        group = self._cache.cluster.pod_groups.get(key)
        if group is None:
            self._kept_back_s.pop(key, None)
            self._posted_s.pop(key, None)
            self._reported_waiting.discard(key)
            if report is None:
                self._reported_s.pop(key, None)
            return Requeue.after(delay_s) if delay_s else None
        await record_ask(self._client, group, self._report.asks.get(key))
        conditions = None if delay_s else self._conditions(group, report)
        kept_back_s = await self._write_status(group, conditions)
        if conditions and report is not None:
            self._reported_s[key] = self._client.clock.monotonic_s()
            self._reported_waiting.add(key)
            self._post_waiting(group, report)
        elif report is None or report.has_begun:
            self._post_start(group)
        if delay_s or kept_back_s:
            return Requeue.after(delay_s or kept_back_s)
        if conditions is not None or not _has_old_numbers(group, report):
            return None
        return Requeue.after(self._numbers_delay_s(key))

    async def _write_status(
        self, group: PodGroup, conditions: list[dict[str, Any]] | None
    ) -> float:
        """Write what has changed; return how long the use of resources alone is kept back."""
        usage, key = self._resources_status(group), group.metadata.key
        kept_back_s = self._busy_delay_s(key) if usage is not None and conditions is None else 0.0
        parts = {"schedulingConditions": conditions, "resourcesStatus": usage}
        fields = {name: part for name, part in parts.items() if part is not None}
        if fields and not kept_back_s:
            body = {"metadata": {"uid": group.metadata.uid}, "status": fields}
            await self._client.merge_patch(PODGROUPS, key, body, _STATUS)
        if not kept_back_s:
            self._kept_back_s.pop(key, None)
        return kept_back_s

    def _busy_delay_s(self, group: Key) -> float:
        if not self._binds.is_busy:
            return 0.0
        now_s = self._client.clock.monotonic_s()
        since_s = self._kept_back_s.setdefault(group, now_s)
        return _BUSY_S if now_s - since_s < _MAX_BUSY_S else 0.0

    def _missing_delay_s(self, group: Key) -> float:
        """Return for how long it is not reported yet that pods of a PodGroup are missing."""
        if group not in self._pods_missing_s:
            return 0.0
        first_s, last_s = self._pods_missing_s[group]
        until_s = min(last_s + _MISSING_S, first_s + _MAX_MISSING_S)
        delay_s = until_s - self._client.clock.monotonic_s()
        return delay_s if delay_s > _NEGLIGIBLE_S else 0.0

    def _numbers_delay_s(self, group: Key) -> float:
        """Return how long until new numbers alone may be reported for a PodGroup."""
        now_s = self._client.clock.monotonic_s()
        reported_s = self._reported_s.setdefault(group, now_s)
        delay_s = reported_s + numbers_interval_s(group, self._podgroups_waiting) - now_s
        return delay_s if delay_s > _NEGLIGIBLE_S else 0.0

    def _conditions(
        self, group: PodGroup, report: PodGroupReport | None
    ) -> list[dict[str, Any]] | None:
        current = group.status.scheduling_conditions
        if report is None or report.has_begun:
            return [] if current else None
        others = [_condition_fields(it) for it in current if not _is_replaced(it)]
        ours = current[-1] if current else None
        if ours is None or _is_outdated(ours, report):
            self._posted_s.pop(group.metadata.key, None)
            number = max((_transition_number(it.transition_id) for it in current), default=0) + 1
            since = self._client.clock.now().isoformat(timespec="seconds")
            return [*others, self._condition(report, str(number), since)]
        if ours.message == report.message or self._numbers_delay_s(group.metadata.key):
            return None
        return [*others, self._condition(report, ours.transition_id, ours.last_transition_time)]

    def _condition(self, report: PodGroupReport, number: str, since: str | None) -> dict[str, Any]:
        return {
            "type": _CONDITION_TYPE,
            "nodePool": _NODE_POOL,
            "status": "True",
            "reason": "Unschedulable",
            "message": report.message,
            "reasons": [
                {"reason": reason, "message": message}
                for reason, message in (
                    (report.kai_reason, report.kai_message),
                    (report.reason.value, report.message),
                )
                if reason
            ],
            "transitionID": number,
            "lastTransitionTime": since,
        }

    def _resources_status(self, group: PodGroup) -> dict[str, Any] | None:
        """Return the used and requested resources for the status; None if they are right."""
        allocated, requested = self._cache.members.resource_use(group.metadata.key)
        current = group.status.resources_status
        now = {"allocated": format_amounts(allocated), "requested": format_amounts(requested)}
        if (now["allocated"], now["requested"]) == (
            dict(current.allocated),
            dict(current.requested),
        ):
            return None
        removed = dict.fromkeys({*current.allocated, *current.requested})
        return {what: {**removed, **amounts} for what, amounts in now.items()}

    def _post_waiting(self, group: PodGroup, report: PodGroupReport) -> None:
        """Post an Event why a PodGroup waits; for new numbers alone only now and then."""
        now_s, key = self._client.clock.monotonic_s(), group.metadata.key
        if now_s - self._posted_s.get(key, -_EVENT_S) >= _EVENT_S:
            self._posted_s[key] = now_s
            self._post(group, "Unschedulable", "Waiting", f"{report.reason}: {report.message}")

    def _post_start(self, group: PodGroup) -> None:
        """Post an Event that a PodGroup starts, if one said that it waits."""
        key = group.metadata.key
        if key in self._reported_waiting and self._cache.members.placed_pods(key):
            self._reported_waiting.discard(key)
            self._post(
                group, "Scheduled", "Starting", "The pods of the PodGroup have nodes, and it starts"
            )

    def _post(self, group: PodGroup, reason: str, job_reason: str, message: str) -> None:
        post_event(self._cache, self._recorder, group, (reason, job_reason), message)

    def _adopt_existing(self) -> None:
        """Reconcile all PodGroups and marked pods from before this process led."""
        self._has_begun = True
        for key in self._cache.cluster.pod_groups:
            self._queue.add_after(_Subject("group", key), _RESOURCES_S)
        for key, pod in self._cache.cluster.pods.items():
            group = pod.metadata.annotations.get(POD_GROUP)
            if group and not pod.spec.node_name and _is_marked(pod):
                self._marking_podgroup[key] = Key(key.namespace, group)
                self._marked.setdefault(self._marking_podgroup[key], set()).add(key)

    def _mark_pods(self, group: Key, report: PodGroupReport | None) -> None:
        known = self._cache.cluster.pod_groups.get(group)
        may_mark = known is None or known.spec.mark_unschedulable
        wanted = set(report.pods) if report is not None and may_mark else set()
        standalone_pod = self._standalone_pod(group, report)
        if standalone_pod is not None:
            wanted = {standalone_pod}
            self._queue.add(_Subject("pod", standalone_pod))  # also for another reason or number
        before = self._marked.pop(group, set())
        if wanted:
            self._marked[group] = wanted
        for pod in wanted - before:
            self._marking_podgroup[pod] = group
            self._queue.add(_Subject("pod", pod))
        for pod in before - wanted:
            self._marking_podgroup.pop(pod, None)
            self._queue.add(_Subject("pod", pod))

    def _standalone_pod(self, group: Key, report: PodGroupReport | None) -> Key | None:
        has_members = bool(self._cache.members.pods_of(group))
        return None if report is None or has_members else report.standalone_pod

    async def _reconcile_pod(self, key: Key) -> Requeue | None:
        pod = self._cache.cluster.pods.get(key)
        if pod is None or pod.spec.node_name:
            return None
        group = self._marking_podgroup.get(key)
        report = self._report.podgroups.get(group) if group else None
        status: dict[str, Any] = {}
        if group is not None and report is not None:
            current = _pod_scheduled(pod)
            condition = self._pod_condition(report, current)
            if self._standalone_pod(group, report) is not None:
                if _is_written(current, condition):
                    return None
                if delay_s := self._pod_delay_s(group, report, current):
                    return Requeue.after(delay_s)
                self._reported_s[group] = self._client.clock.monotonic_s()
            status["conditions"] = [condition]
        fields = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._client.apply(PODS, key, fields, _POD_CONDITION)
        return None

    def _pod_condition(
        self, report: PodGroupReport, current: Condition | None
    ) -> dict[str, str | None]:
        """Return the condition of a pod; with any reason but Unschedulable no autoscaler acts."""
        reason = "Unschedulable" if report.pods else report.reason.value
        since = self._client.clock.now().isoformat(timespec="seconds")
        if current is not None and (current.status, current.reason) == ("False", reason):
            since = current.last_transition_time or since
        return {
            "type": _POD_SCHEDULED,
            "status": "False",
            "reason": reason,
            "message": f"{report.reason}: {report.message}",
            "lastTransitionTime": since,
        }

    def _pod_delay_s(self, group: Key, report: PodGroupReport, current: Condition | None) -> float:
        """Return how long until new numbers alone may be written on a pod without a PodGroup."""
        if current is None or not current.message.startswith(f"{report.reason}: "):
            return 0.0
        now_s = self._client.clock.monotonic_s()
        interval_s = max(_POD_NUMBERS_S, self._standalone_waiting / _NUMBERS_PER_S)
        delay_s = self._reported_s.setdefault(group, now_s) + interval_s - now_s
        return delay_s if delay_s > _NEGLIGIBLE_S else 0.0

    async def _reconcile_queue(self, key: Key) -> None:
        queue, usage = self._cache.cluster.queues.get(key.name), self._report.queues.get(key.name)
        if queue is None or usage is None:
            return
        children = sorted(
            name
            for name, other in self._cache.cluster.queues.items()
            if other.spec.parent_queue == key.name
        )
        current = queue.status
        if list(current.child_queues) == children and _status_amounts(current) == usage[:3]:
            return
        status = {
            "childQueues": children,
            "allocated": usage.allocated,
            "allocatedNonPreemptible": usage.allocated_non_preemptible,
            "requested": usage.requested,
        }
        body = {"metadata": {"uid": queue.metadata.uid}, "status": status}
        self._queue_reported_s[key.name] = self._client.clock.monotonic_s()
        await self._client.merge_patch(QUEUES, key, body, _STATUS)


def numbers_interval_s(group: Key, waiting: int) -> float:
    """Return how long reported numbers of a PodGroup stay, where so many PodGroups wait.

    It differs from one to the next, so that PodGroups reported together spread out over time.
    """
    own = 1 + zlib.crc32(str(group).encode()) / 2**32
    return max(_NUMBERS_S, min(waiting / _NUMBERS_PER_S, _MAX_NUMBERS_S) * own)


def _is_replaced(condition: SchedulingCondition) -> bool:
    """Say whether a new condition replaces this one: our older one, or that of a pause."""
    return condition.type == PAUSED or (condition.type, condition.node_pool) == (
        _CONDITION_TYPE,
        _NODE_POOL,
    )


def _status_amounts(status: QueueStatus) -> tuple[object, ...]:
    return dict(status.allocated), dict(status.allocated_non_preemptible), dict(status.requested)


def _is_outdated(ours: SchedulingCondition, report: PodGroupReport) -> bool:
    titles = {one.reason for one in ours.reasons}
    return ours.type != _CONDITION_TYPE or ours.status != "True" or report.reason not in titles


def _has_old_numbers(group: PodGroup, report: PodGroupReport | None) -> bool:
    conditions = group.status.scheduling_conditions
    if report is None or report.has_begun or not conditions:
        return False
    return conditions[-1].message != report.message


def _pod_scheduled(pod: Pod) -> Condition | None:
    return next((it for it in pod.status.conditions if it.type == _POD_SCHEDULED), None)


def _is_marked(pod: Pod) -> bool:
    condition = _pod_scheduled(pod)
    return condition is not None and condition.status == "False"


def _is_written(current: Condition | None, condition: dict[str, str | None]) -> bool:
    return current is not None and (current.status, current.reason, current.message) == (
        condition["status"],
        condition["reason"],
        condition["message"],
    )


def _transition_number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _condition_fields(condition: SchedulingCondition) -> dict[str, Any]:
    return {
        "type": condition.type,
        "nodePool": condition.node_pool,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "reasons": [{"reason": it.reason, "message": it.message} for it in condition.reasons],
        "transitionID": condition.transition_id,
        "lastTransitionTime": condition.last_transition_time,
    }


class PauseReporter:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        recorder: EventRecorder,
        why: str,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._cache = cache
        self._recorder = recorder
        self._why = why
        self._log = log
        self._reported: set[str] = set()  # uids

    async def run(self) -> None:
        """Report each PodGroup that waits, or comes to wait, as long as the pause lasts."""
        clock = self._client.clock
        while True:
            for key in [*self._cache.cluster.pod_groups]:
                group = self._cache.cluster.pod_groups.get(key)
                is_due = group is not None and self._is_unreported(group)
                if group is not None and is_due:
                    await self._report(group)
                await clock.sleep(_WRITE_INTERVAL_S if is_due else 0)  # lets other tasks run
            await clock.sleep(_POLL_S)

    def _is_unreported(self, group: PodGroup) -> bool:
        if group.metadata.uid in self._reported:
            return False
        if any(it.type == PAUSED for it in group.status.scheduling_conditions):
            return False  # an earlier leader reported it in this pause
        return any(map(self._waits, self._cache.members.pods_of(group.metadata.key)))

    def _waits(self, key: Key) -> bool:
        pod = self._cache.cluster.pods.get(key)
        return pod is not None and is_pending(pod) and self._cache.members.is_ours(pod)

    async def _report(self, group: PodGroup) -> None:
        meta = group.metadata
        conditions = [
            *map(_condition_fields, group.status.scheduling_conditions),
            self._condition(),
        ]
        version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": version, "status": {"schedulingConditions": conditions}}
        try:
            await self._client.merge_patch(PODGROUPS, meta.key, body, _STATUS)
        except (NotFound, Conflict):
            return  # the PodGroup is gone, or its new version is checked again
        except ApiError as error:
            self._log.warning("pause not reported", podgroup=str(meta.key), error=str(error))
            if is_retryable(error):
                return
        self._reported.add(meta.uid)
        post_event(self._cache, self._recorder, group, (PAUSED, PAUSED), self._why)

    def _condition(self) -> dict[str, Any]:
        return {
            "type": PAUSED,
            "nodePool": "default",
            "status": "True",
            "reason": PAUSED,
            "message": self._why,
            "reasons": [{"reason": PAUSED, "message": self._why}],
            "transitionID": "0",
            "lastTransitionTime": self._client.clock.now().isoformat(timespec="seconds"),
        }
