"""What a plan is reported as: messages of PodGroups, amounts and gauges of queues, Events on pods.

Events on pods that wait let `kubectl describe pod` show why:

1. Type and reason are those of kube-scheduler (Warning, FailedScheduling). The message is that of
   the PodGroup, or of the pod if it has no PodGroup.
2. Of a PodGroup at most `_MAX_PODS` waiting pods get an Event, the first ones by name. All pods of
   a PodGroup wait for one reason, and its condition and its own Events show that too.
3. An Event is posted when the reason changes, and once more each half hour while the reason holds,
   because the API server deletes Events after an hour. New numbers alone are not posted.
4. At most `_PER_S` of these Events are posted a second, half of what the recorder sends, and none
   while many Events wait to be sent: Events about evictions do not wait behind them.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import Gauge
from structlog.typing import FilteringBoundLogger

from scheduler.core.messages.eviction_messages import nominated_message
from scheduler.core.messages.rejection_messages import (
    kai_condition,
    no_pods_message,
    rejection_message,
)
from scheduler.core.model.podgroup import PodGroupInfo, podsets_of
from scheduler.core.model.resources import NONE, Ints, ResourceKind
from scheduler.core.model.result import Plan
from scheduler.core.node_requests import waits_for_capacity
from scheduler.shell.event_objects import event_object
from scheduler.shell.report.asks import NO_ASKS, AskInput, Asks, asks_after
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.cluster_events import is_pending
from scheduler.state.cache.creation_failures import CreationFailure
from scheduler.state.commands import (
    Commands,
    PlannedEviction,
    UnschedulablePodGroup,
)
from scheduler.state.podgroups.node_asks import NodeAsk
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CPU, GPU, MEMORY
from trainer_kai.api.quantity import QuantityError, milli
from trainer_kai.api.reasons import SCHEDULER_REASONS, UnschedulableReason
from trainer_kai.api.resources import PODS
from trainer_kai.api.text import truncated_message
from trainer_kai.kube.events import EventObject, EventRecorder, TokenBucket
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings
from trainer_kai.policy.pods.requests import format_amounts
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics

EvictionsByPreemptor: TypeAlias = Mapping[Key, Sequence[PlannedEviction]]

_NO_EVICTIONS: Final[EvictionsByPreemptor] = MappingProxyType({})
_NO_CREATION_FAILURES: Final[Mapping[Key, CreationFailure]] = MappingProxyType({})
_NO_REQUESTS: Final[Mapping[Key, tuple[Key, ...]]] = MappingProxyType({})
_UNLIMITED: Final = -1
_REASON: Final = "FailedScheduling"
_MAX_PODS: Final = 5  # of one PodGroup
_NEGLIGIBLE_S: Final = 1e-3  # a shorter time is none
_REPEAT_S: Final = 1800.0  # half of the time for which the API server keeps an Event
_BURST: Final = 50
_PER_S: Final = 10.0
_MAX_WAITING: Final = 500  # Events that are not sent yet, about all objects together


class PodGroupReport(NamedTuple):
    reason: UnschedulableReason
    message: str
    kai_reason: str  # "": KAI has none
    kai_message: str
    has_begun: bool  # some of its pods run
    pods: tuple[Key, ...]  # pending, if an autoscaler could help them
    standalone_pod: Key | None = None  # the pod itself, if it is in no PodGroup


class QueueGaugeValues(NamedTuple):
    """Quota, use and fair share of a queue by resource: thousandths, bytes and thousandths."""

    quota: tuple[int, ...]
    allocated: tuple[int, ...]
    fair_share: tuple[float, ...]


_QueueGauges: TypeAlias = Mapping[Gauge, Callable[[QueueGaugeValues], float]]


class QueueReport(NamedTuple):
    """What a queue and all below it use and request, for its status, and as numbers."""

    allocated: Mapping[str, str]
    allocated_non_preemptible: Mapping[str, str]
    requested: Mapping[str, str]
    gauge_values: QueueGaugeValues


class PlanReport(NamedTuple):
    podgroups: Mapping[Key, PodGroupReport]
    queues: Mapping[str, QueueReport]
    without_queue: tuple[Key, ...] = ()  # PodGroups in a queue that does not exist, or has no root
    asks: Mapping[Key, NodeAsk] = NO_ASKS  # what PodGroups ask of an autoscaler
    # The pods of those that ask by a ProvisioningRequest.
    requested: Mapping[Key, tuple[Key, ...]] = _NO_REQUESTS


def plan_report(
    encoded: EncodedSnapshot,
    result: Plan,
    commands: Commands,
    in_flight_evictions: EvictionsByPreemptor = _NO_EVICTIONS,
    creation_failures: Mapping[Key, CreationFailure] = _NO_CREATION_FAILURES,
    ask_input: AskInput | None = None,
) -> PlanReport:
    """Return the report of a plan; *ask_input* is given where an autoscaler adds nodes."""
    queues = encoded.snapshot.queues
    nominated = _nominated_reports(encoded, result, commands, in_flight_evictions)
    asks = None if ask_input is None else asks_after(encoded, result.rejections, ask_input)
    waiting = {it.group: _podgroup_report(encoded, it, asks) for it in commands.unschedulable}
    return PlanReport(
        podgroups=nominated | waiting | dict(_creation_failure_reports(waiting, creation_failures)),
        queues={
            name: QueueReport(
                _amounts(queues.allocated[row]),
                _amounts(queues.non_preemptible[row]),
                _amounts(queues.requested[row]),
                QueueGaugeValues(
                    tuple(queues.quota[row].tolist()),
                    tuple(queues.allocated[row].tolist()),
                    tuple(result.fair_share[row].tolist()),
                ),
            )
            for row, name in enumerate(queues.names)
        },
        without_queue=tuple(
            encoded.podgroup_keys[row]
            for row, podgroup in enumerate(encoded.snapshot.podgroups)
            if podgroup.queue == NONE
        ),
        asks=NO_ASKS if asks is None else asks.by_podgroup,
        requested=_NO_REQUESTS if asks is None else _requested(encoded, asks),
    )


def _requested(encoded: EncodedSnapshot, asks: Asks) -> Mapping[Key, tuple[Key, ...]]:
    rows = ((encoded.podgroup_keys[row], row) for row in asks.requests)
    found = ((key, asks.requested_pods(key, row)) for key, row in rows)
    return {key: tuple(encoded.pod_keys[it] for it in pods) for key, pods in found if pods}


def missing_queue_use(podgroups: Iterable[PodGroup]) -> dict[str, tuple[int, ...]]:
    """Return what PodGroups use, by the name of their queue: thousandths, bytes, thousandths.

    It is read from their status, which is written a second after a change.
    """
    use: dict[str, tuple[int, ...]] = {}
    for podgroup in podgroups:
        amounts = podgroup.status.resources_status.allocated
        try:
            row = [milli(amounts.get(name, 0)) for name in (CPU, MEMORY, GPU)]
        except QuantityError:
            continue  # another process wrote it
        row[ResourceKind.MEMORY] //= 1000
        name = podgroup.spec.queue
        use[name] = tuple(map(add, use.get(name, (0, 0, 0)), row))
    return use


def _nominated_reports(
    encoded: EncodedSnapshot,
    result: Plan,
    commands: Commands,
    in_flight_evictions: EvictionsByPreemptor,
) -> dict[Key, PodGroupReport]:
    nodes: dict[int, list[int]] = {}
    for it in result.allocations:
        nodes.setdefault(it.podgroup, []).extend([one.node for one in it.nominations])
    evictions: dict[Key, list[PlannedEviction]] = {
        key: [*them] for key, them in in_flight_evictions.items()
    }
    for one in commands.evictions:
        if one.preemptor is not None:
            evictions.setdefault(one.preemptor, []).append(one)
    reports = {}
    for row, nominated in nodes.items():
        if nominated:
            key, podgroup = encoded.podgroup_keys[row], encoded.snapshot.podgroups[row]
            titles = [one.title for one in evictions.get(key, ())]
            text = nominated_message(len(nominated), len({*nominated}), titles)
            has_begun = any(podset.running for podset in podsets_of(podgroup.tree))
            message = truncated_message(text)
            reports[key] = PodGroupReport(
                reason=UnschedulableReason.WAITING_FOR_VICTIMS,
                message=message,
                kai_reason="",
                kai_message="",
                has_begun=has_begun,
                pods=(),
                standalone_pod=_standalone_pod(encoded, podgroup),
            )
    return reports


def _creation_failure_reports(
    waiting: Mapping[Key, PodGroupReport], creation_failures: Mapping[Key, CreationFailure]
) -> Iterator[tuple[Key, PodGroupReport]]:
    """Yield PodGroups with pods that cannot be created; no plan reports one without any pod."""
    for group, creation_failure in creation_failures.items():
        report = waiting.get(group)
        if report is not None and report.reason == UnschedulableReason.PODS_MISSING:
            message = truncated_message(f"{report.message}. {creation_failure.reason}")
            yield group, report._replace(message=message, kai_message=message)
        elif report is None and not creation_failure.existing and creation_failure.required:
            missing = no_pods_message(creation_failure.required)
            message = truncated_message(f"{missing}. {creation_failure.reason}")
            reason = UnschedulableReason.PODS_MISSING
            yield (
                group,
                PodGroupReport(reason, message, reason.value, message, has_begun=False, pods=()),
            )


def _podgroup_report(
    encoded: EncodedSnapshot, unschedulable: UnschedulablePodGroup, asks: Asks | None
) -> PodGroupReport:
    rejection = unschedulable.rejection
    kai_reason, kai_text = kai_condition(encoded.snapshot, rejection)
    kai_message = truncated_message(kai_text)
    sentences = [rejection_message(encoded.snapshot, rejection)]
    if rejection.podgroup == NONE:
        message = truncated_message(sentences[0])
        return PodGroupReport(
            unschedulable.reason, message, kai_reason, kai_message, has_begun=False, pods=()
        )
    if asks is not None:
        sentences += asks.sentences(encoded, unschedulable.group, rejection.podgroup)
    podgroup = encoded.snapshot.podgroups[rejection.podgroup]
    return PodGroupReport(
        reason=unschedulable.reason,
        message=truncated_message(". ".join(sentences)),
        kai_reason=kai_reason,
        kai_message=kai_message,
        has_begun=any(podset.running for podset in podsets_of(podgroup.tree)),
        pods=tuple(encoded.pod_keys[row] for row in _marked_pods(encoded, unschedulable, asks)),
        standalone_pod=_standalone_pod(encoded, podgroup),
    )


def _marked_pods(
    encoded: EncodedSnapshot, unschedulable: UnschedulablePodGroup, asks: Asks | None
) -> Iterable[int]:
    """Return the pods that another node would help, and for which one may be asked for."""
    rejection = unschedulable.rejection
    if asks is not None:
        return asks.marked_pods(unschedulable.group, rejection.podgroup)
    if rejection.reason == UnschedulableReason.TOPOLOGY_UNFIT or not waits_for_capacity(rejection):
        return ()
    podsets = podsets_of(encoded.snapshot.podgroups[rejection.podgroup].tree)
    return (row for podset in podsets for row in podset.pending)


def _standalone_pod(encoded: EncodedSnapshot, podgroup: PodGroupInfo) -> Key | None:
    podsets = podsets_of(podgroup.tree)
    if podgroup.can_reserve or len(podsets) != 1 or len(podsets[0].pending) != 1:
        return None
    return encoded.pod_keys[podsets[0].pending[0]]


def _amounts(row: Ints) -> dict[str, str]:
    cpu, memory, gpu = row.tolist()
    return format_amounts({CPU: cpu, MEMORY: memory * 1000, GPU: gpu})


class Gauges:
    """Gauges of queues and waiting PodGroups.

    A deleted queue has none, except for what its PodGroups still use.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: set[str] = set()
        self._missing: set[str] = set()
        self._usage: _QueueGauges = _usage_gauges(metrics)
        self._queues: _QueueGauges = {**_queue_gauges(metrics), **self._usage}

    def update(self, report: PlanReport, missing_use: Mapping[str, tuple[int, ...]]) -> None:
        """Set the gauges to the report of a plan, and to the use of queues that do not exist."""
        missing = {
            name: it
            for name, it in missing_use.items()
            if name and any(it) and name not in report.queues
        }
        _remove(self._queues, self._known - report.queues.keys())
        _remove(self._usage, self._missing - missing.keys() - report.queues.keys())
        self._known, self._missing = set(report.queues), {*missing}
        for name, use in missing.items():
            for gauge, read in self._usage.items():
                gauge.labels(name).set(read(QueueGaugeValues((), use, ())))
        for name, queue_report in report.queues.items():
            for gauge, read in self._queues.items():
                gauge.labels(name).set(read(queue_report.gauge_values))
        waiting = Counter(podgroup_report.reason for podgroup_report in report.podgroups.values())
        for reason in UnschedulableReason:
            if reason in SCHEDULER_REASONS:
                self._metrics.podgroups_waiting.labels(reason.value).set(waiting[reason])


def _remove(gauges: _QueueGauges, names: Iterable[str]) -> None:
    for name in names:
        for gauge in gauges:
            gauge.remove(name)


def _usage_gauges(metrics: Metrics) -> _QueueGauges:
    return {
        metrics.queue_allocated_gpus: lambda it: it.allocated[ResourceKind.GPU] / 1000,
        metrics.queue_allocated_cpu_cores: lambda it: it.allocated[ResourceKind.CPU] / 1000,
        metrics.queue_allocated_memory_bytes: lambda it: it.allocated[ResourceKind.MEMORY],
    }


def _queue_gauges(metrics: Metrics) -> _QueueGauges:
    def quota(kind: ResourceKind, divisor: float) -> Callable[[QueueGaugeValues], float]:
        return lambda it: (
            it.quota[kind] if it.quota[kind] == _UNLIMITED else it.quota[kind] / divisor
        )

    return {
        metrics.queue_info: lambda _: 1,
        metrics.queue_deserved_gpus: quota(ResourceKind.GPU, 1000),
        metrics.queue_quota_cpu_cores: quota(ResourceKind.CPU, 1000),
        metrics.queue_quota_memory_bytes: quota(ResourceKind.MEMORY, 1),
        metrics.queue_fair_share_gpu: lambda it: it.fair_share[ResourceKind.GPU] / 1000,
        metrics.queue_fair_share_cpu_cores: lambda it: it.fair_share[ResourceKind.CPU] / 1000,
        metrics.queue_fair_share_memory_gb: lambda it: it.fair_share[ResourceKind.MEMORY] / 1e9,
    }


class _Posted(NamedTuple):
    """What was posted last about the pods of a PodGroup."""

    reason: UnschedulableReason
    at_s: float
    pods: frozenset[EventObject]


class PodEvents:
    """Posts Events on the first waiting pods of each PodGroup; `run` is the service."""

    def __init__(
        self,
        cache: ClusterCache,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._cache = cache
        self._recorder = recorder
        self._clock = clock
        self._reports: dict[Key, PodGroupReport] = {}
        self._posted: dict[Key, _Posted] = {}
        self._rate_limit = TokenBucket(_BURST, 1 / _PER_S)
        self._queue: WorkQueue[Key] = WorkQueue(
            self._reconcile,
            WorkQueueSettings("pod events", workers=1),
            clock,
            log,
            metrics=metrics.work_queue("pod events"),
        )

    async def run(self) -> None:
        await self._queue.run()

    def update(self, group: Key, report: PodGroupReport | None) -> None:
        """Take the report of a PodGroup or of a pod without one; None if it does not wait."""
        if report is None:
            self._reports.pop(group, None)
            self._posted.pop(group, None)
        else:
            self._reports[group] = report
            self._queue.add(group)

    async def _reconcile(self, group: Key) -> Requeue | None:
        report = self._reports.get(group)
        if report is None:
            return None
        now_s, posted = self._clock.monotonic_s(), self._posted.get(group)
        if posted is None or posted.reason != report.reason or _is_due(posted, now_s):
            posted = _Posted(report.reason, now_s, frozenset())
        pods = self._first_waiting_pods(group, report)
        self._posted[group] = posted._replace(pods=frozenset(pods))
        for pod in pods:
            if pod not in posted.pods:
                await self._wait_for_turn()
                current = self._reports.get(group)
                if current is None or current.reason != report.reason:
                    return None  # `update` has queued the new reason
                self._post(pod, report)
        return Requeue.after(posted.at_s + _REPEAT_S - now_s)

    def _first_waiting_pods(self, group: Key, report: PodGroupReport) -> list[EventObject]:
        keys = [*self._cache.members.pods_of(group)]
        if not keys and report.standalone_pod is not None:
            keys = [report.standalone_pod]
        first = heapq.nsmallest(_MAX_PODS, filter(self._waits, keys))
        return [event_object(PODS, self._cache.cluster.pods[key].metadata) for key in first]

    def _waits(self, key: Key) -> bool:
        pod = self._cache.cluster.pods.get(key)
        if pod is None or not is_pending(pod) or pod.spec.scheduling_gates:
            return False
        return self._cache.members.is_ours(pod)

    async def _wait_for_turn(self) -> None:
        while (wait_s := self._rate_limit.take(self._clock.monotonic_s())) > 0:
            await self._clock.sleep(wait_s)
        while self._recorder.waiting >= _MAX_WAITING:
            await self._clock.sleep(1 / _PER_S)

    def _post(self, pod: EventObject, report: PodGroupReport) -> None:
        key = Key(pod.namespace, pod.name)
        current = self._cache.cluster.pods.get(key)
        if current is not None and current.metadata.uid == pod.uid and self._waits(key):
            self._recorder.post(pod, _REASON, f"{report.reason}: {report.message}", "Warning")


def _is_due(posted: _Posted, now_s: float) -> bool:
    return posted.at_s + _REPEAT_S - now_s < _NEGLIGIBLE_S
