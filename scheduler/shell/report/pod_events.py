"""Events on pods that wait, so that `kubectl describe pod` shows why.

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
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from scheduler.shell.report.plan_report import PodGroupReport
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.queueing_hints import is_pending
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import PODS
from trainer_kai.kube.events.correlator import EventObject, TokenBucket
from trainer_kai.kube.events.recorder import EventRecorder
from trainer_kai.kube.workqueue.queue import Requeue, WorkQueue, WorkQueueSettings
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics

_REASON: Final = "FailedScheduling"
_MAX_PODS: Final = 5  # of one PodGroup
_NEGLIGIBLE_S: Final = 1e-3  # a shorter time is none
_REPEAT_S: Final = 1800.0  # half of the time for which the API server keeps an Event
_BURST: Final = 50
_PER_S: Final = 10.0
_MAX_WAITING: Final = 500  # Events that are not sent yet, about all objects together


class _Posted(NamedTuple):
    """What was posted last about the pods of a PodGroup."""

    title: str
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
        """Post Events as long as this process leads."""
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
        if posted is None or posted.title != report.title or _is_due(posted, now_s):
            posted = _Posted(report.title, now_s, frozenset())
        pods = self._first_waiting_pods(group, report)
        self._posted[group] = posted._replace(pods=frozenset(pods))
        for pod in pods:
            if pod not in posted.pods:
                await self._wait_for_turn()
                current = self._reports.get(group)
                if current is None or current.title != report.title:
                    return None  # `update` has queued the new reason
                self._post(pod, report)
        return Requeue.after(posted.at_s + _REPEAT_S - now_s)

    def _first_waiting_pods(self, group: Key, report: PodGroupReport) -> list[EventObject]:
        keys = [*self._cache.members.pods_of(group)]
        if not keys and report.standalone_pod is not None:
            keys = [report.standalone_pod]
        return [
            EventObject(
                PODS.api_version, PODS.kind, *key, self._cache.cluster.pods[key].metadata.uid
            )
            for key in heapq.nsmallest(_MAX_PODS, filter(self._waits, keys))
        ]

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
            self._recorder.post(pod, _REASON, f"{report.title}: {report.message}", "Warning")


def _is_due(posted: _Posted, now_s: float) -> bool:
    return posted.at_s + _REPEAT_S - now_s < _NEGLIGIBLE_S
