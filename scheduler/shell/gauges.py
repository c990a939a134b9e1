"""What a plan says of queues, and who waits why, as gauges: those of KAI under KAI's names."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import Gauge

from scheduler.core.model import ResourceKind, UnschedulableReason
from scheduler.shell.verdicts import PlanReport, QueueGaugeValues
from trainer_kai.metrics import Metrics

__all__ = ["Gauges"]

_UNLIMITED: Final = -1


class Gauges:
    """They are set anew by each plan; a queue that is gone has none."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: set[str] = set()
        self._queues: Mapping[Gauge, Callable[[QueueGaugeValues], float]] = _queue_gauges(metrics)

    def show(self, told: PlanReport) -> None:
        """Show what a plan says."""
        for gone in self._known - told.queues.keys():
            for gauge in self._queues:
                gauge.remove(gone)
        self._known = set(told.queues)
        for name, use in told.queues.items():
            for gauge, read in self._queues.items():
                gauge.labels(name).set(read(use.gauge_values))
        waiting = Counter(said.title for said in told.podgroups.values())
        for verdict in UnschedulableReason:
            self._metrics.units_waiting.labels(verdict.title).set(waiting[verdict.title])


def _queue_gauges(metrics: Metrics) -> Mapping[Gauge, Callable[[QueueGaugeValues], float]]:
    def bound(kind: ResourceKind, podgroup: float) -> Callable[[QueueGaugeValues], float]:
        return lambda it: (
            it.quota[kind] if it.quota[kind] == _UNLIMITED else it.quota[kind] / podgroup
        )

    return {
        metrics.queue_info: lambda _: 1,
        metrics.queue_deserved_gpus: bound(ResourceKind.GPU, 1000),
        metrics.queue_quota_cpu_cores: bound(ResourceKind.CPU, 1000),
        metrics.queue_quota_memory_bytes: bound(ResourceKind.MEMORY, 1),
        metrics.queue_allocated_gpus: lambda it: it.allocated[ResourceKind.GPU] / 1000,
        metrics.queue_allocated_cpu_cores: lambda it: it.allocated[ResourceKind.CPU] / 1000,
        metrics.queue_allocated_memory_bytes: lambda it: it.allocated[ResourceKind.MEMORY],
        metrics.queue_fair_share_gpu: lambda it: it.fair_share[ResourceKind.GPU] / 1000,
        metrics.queue_fair_share_cpu_cores: lambda it: it.fair_share[ResourceKind.CPU] / 1000,
        metrics.queue_fair_share_memory_gb: lambda it: it.fair_share[ResourceKind.MEMORY] / 1e9,
    }
