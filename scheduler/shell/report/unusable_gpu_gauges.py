"""Gauges of idle GPUs that no pod that waits can use.

They are computed when a reader of the metrics asks, from the last plan, and not with each plan.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.strategies.idle_gpus import IdleCause, UnusableGpus, unusable_gpus
from trainer_kai.service.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client import Gauge

_MAX_NODES: Final = 100  # those with the most; each cause on a node is a series
_WHOLE_GPU: Final = 1000


class UnusableGpuGauges:
    def __init__(self, metrics: Metrics) -> None:
        self._in_all: Final[Gauge] = metrics.unusable_gpus
        self._on_nodes: Final[Gauge] = metrics.node_unusable_gpus
        self._last: tuple[Snapshot, Plan] | None = None  # until it is counted
        self._known: set[tuple[str, str]] = set()  # nodes and causes
        metrics.call_before_reads(self._refresh)

    def planned(self, snapshot: Snapshot, result: Plan) -> None:
        self._last = snapshot, result

    def _refresh(self) -> None:
        last, self._last = self._last, None
        if last is None:
            return
        snapshot, result = last
        found = unusable_gpus(snapshot, result.allocations)
        for cause, amount in found.by_cause.items():
            self._in_all.labels(cause.name.lower()).set(amount / _WHOLE_GPU)
        amounts = {
            (snapshot.nodes.names[node], cause.name.lower()): amount / _WHOLE_GPU
            for node, causes in _most(found)
            for cause, amount in causes
        }
        for labels in self._known - amounts.keys():
            self._on_nodes.remove(*labels)
        for labels, gpus in amounts.items():
            self._on_nodes.labels(*labels).set(gpus)
        self._known = {*amounts}


def _most(found: UnusableGpus) -> Iterable[tuple[int, Iterable[tuple[IdleCause, int]]]]:
    by_node = {node: causes.items() for node, causes in found.by_node.items()}
    return sorted(by_node.items(), key=lambda it: (-sum([n for _, n in it[1]]), it[0]))[:_MAX_NODES]
