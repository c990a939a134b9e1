"""Gauges of the longest waits, by the GPUs that a PodGroup needs to start.

They are computed when a reader of the metrics asks: on a quiet cluster no plan is made, and the
waits grow.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from scheduler.core.model.podgroup import PodSet, SubGroupTree, podsets_of
from scheduler.core.model.resources import NONE, ResourceKind
from scheduler.core.model.snapshot import Snapshot
from scheduler.shell.report.plan_report import PlanReport
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import epoch_s
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client import Gauge

_WHOLE_GPU: Final = 1000
_SIZES: Final = ((1, "1"), (7, "2-7"), (15, "8-15"), (31, "16-31"))  # the most GPUs of each
_LARGEST: Final = "32+"


class WaitGauges:
    def __init__(self, cache: ClusterCache, clock: Clock, metrics: Metrics) -> None:
        self._cache: Final = cache
        self._clock: Final = clock
        self._longest: Final[Gauge] = metrics.longest_wait_seconds
        self._last: tuple[EncodedSnapshot, PlanReport] | None = None  # until it is read
        self._since: Mapping[str, int] = {}  # by size, in seconds since 1970
        metrics.call_before_reads(self._refresh)

    def planned(self, encoded: EncodedSnapshot, report: PlanReport) -> None:
        self._last = encoded, report

    def _refresh(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            since: dict[str, int] = {}
            for size, at in self._waits(*last):
                since[size] = min(since.get(size, at), at)
            self._since = since
        now = int(self._clock.now().timestamp())
        waits = self._since if self._cache.is_leading else {}
        for size in (*(name for _, name in _SIZES), _LARGEST):
            self._longest.labels(size).set(max(now - waits.get(size, now), 0))

    def _waits(self, encoded: EncodedSnapshot, report: PlanReport) -> Iterator[tuple[str, int]]:
        """Yield the size of each PodGroup that is to start, and since when its pods wait.

        A PodGroup is older: its pods may be of a later stage, or recreated after an eviction.
        """
        pods = self._cache.cluster.pods  # one look-up at a time: it changes meanwhile
        for row, key in enumerate(encoded.podgroup_keys):
            waiting = report.podgroups.get(key)
            if waiting is None or waiting.has_begun:
                continue
            tree = encoded.snapshot.podgroups[row].tree
            gpus = _least_gpus(encoded.snapshot, tree)
            first = [encoded.pod_keys[it.pending[0]] for it in podsets_of(tree) if it.pending]
            known = [pod for it in first if (pod := pods.get(it)) is not None]
            times = [epoch_s(it.metadata.creation_timestamp) for it in known]
            created = [it for it in times if it is not None]
            if gpus and created:
                yield _size(gpus), min(created)


def _least_gpus(snapshot: Snapshot, tree: SubGroupTree) -> int:
    """Return the thousandths of GPUs of a minimum."""
    if not isinstance(tree, PodSet):
        return sum(sorted(_least_gpus(snapshot, it) for it in tree.children)[: tree.minimum])
    rows = snapshot.pods.signature[list(tree.pending[: tree.minimum])].tolist()
    later = tree.expected_signature  # of the pods that do not exist yet
    if later == NONE and rows:
        later = rows[0]
    if later != NONE:
        rows += [later] * (tree.minimum - len(rows))
    return sum(snapshot.signatures[row].queue_request[ResourceKind.GPU] for row in rows)


def _size(gpus: int) -> str:
    whole = -(-gpus // _WHOLE_GPU)
    return next((name for most, name in _SIZES if whole <= most), _LARGEST)
