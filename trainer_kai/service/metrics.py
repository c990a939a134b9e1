"""All metrics of the project, in one list (the body of `Metrics`), and their text for readers.

A process builds one `Metrics` and passes it to all modules that measure. There is no global
registry, so two instances in one process, as in a test, count separately. A metric name contains
its unit, as Prometheus recommends. Names that begin with kai_ are KAI's, for existing dashboards. A
label must have few values: pods, namespaces and uids belong in logs.

Encoding thousands of series takes processor time that a plan would need, so readers within a second
get the same text, whatever their number. It is encoded in a thread of its own: in the threads of
the event loop it would queue up before the plans.
"""

import asyncio
import gzip
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar, overload

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, exposition
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from trainer_kai.service.clock import Clock

M = TypeVar("M", bound=MetricWrapperBase)

_KAI: Final = "kai_"  # the prefix of KAI's names, which dashboards and its usage database read

_KEPT_S: Final = 1.0
_OPENMETRICS: Final = "application/openmetrics-text"
_GZIP_LEVEL: Final = 1  # a level that readers in the cluster notice, at a tenth of the time of 9

# For calls, waits and reconciles: between a millisecond and half a minute.
_DURATIONS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
# For responses to clients that send thousands of requests a minute.
_ANSWERS_S: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2, 5)
# For delays that should be close to zero.
_LAGS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


class Metric(Generic[M]):
    """A metric of the list; as an attribute of a `Metrics` it is the live metric."""

    def __init__(self, kind: type[M], name: str, doc: str, *labels: str, **options: Any) -> None:
        self.kind = kind
        self.name = name if name.startswith(_KAI) else f"trainer_kai_{name}"
        self.doc = doc
        self.labels = labels
        self._options = options
        self._attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    @overload
    def __get__(self, metrics: None, owner: type) -> Self: ...

    @overload
    def __get__(self, metrics: "Metrics", owner: type) -> M: ...

    def __get__(self, metrics: "Metrics | None", owner: type) -> Self | M:
        if metrics is None:
            return self
        live = self.kind(
            self.name, self.doc, self.labels, registry=metrics.registry, **self._options
        )
        vars(metrics)[self._attribute] = live  # later accesses find it there first
        return live


class WorkQueueMeter:
    def __init__(self, metrics: "Metrics", name: str) -> None:
        self._depth = metrics.work_queue_depth.labels(name)
        self._wait = metrics.work_queue_wait_seconds.labels(name)
        self._work = metrics.work_queue_work_seconds.labels(name)
        self._retries = metrics.work_queue_retries.labels(name)

    def set_depth(self, keys: int) -> None:
        self._depth.set(keys)

    def waited(self, seconds: float) -> None:
        self._wait.observe(seconds)

    def worked(self, seconds: float) -> None:
        self._work.observe(seconds)

    def retried(self) -> None:
        self._retries.inc()


class _BeforeReads(Collector):
    def __init__(self) -> None:
        self.calls: Final[list[Callable[[], None]]] = []

    def collect(self) -> Iterable[PrometheusMetric]:
        for call in self.calls:
            call()
        return ()


class Metrics:
    api_requests = Metric(
        Counter,
        "api_requests_total",
        "Requests to the API server, by status: 2xx to 5xx, or none if no response arrived.",
        *("verb", "resource", "status"),
    )
    api_request_seconds = Metric(
        Histogram,
        "api_request_seconds",
        "Duration in seconds of requests to the API server, until the end of the response.",
        *("verb", "resource"),
        buckets=_DURATIONS_S,
    )
    api_retries = Metric(
        Counter,
        "api_retries_total",
        "Requests to the API server that were sent again after a failure.",
        *("verb", "resource"),
    )
    watch_events = Metric(
        Counter,
        "watch_events_total",
        "Events that watches received, by type: the type of the API server, or PAGE for a page "
        "of a list.",
        *("resource", "type"),
    )
    watch_restarts = Metric(
        Counter,
        "watch_restarts_total",
        "Watches that ended and were restarted, by cause; the cause time is the normal end of a "
        "watch.",
        *("resource", "cause"),
    )
    watch_relists = Metric(
        Counter,
        "watch_relists_total",
        "Lists that were read again because a watch could not continue.",
        "resource",
    )
    watch_unreadable = Metric(
        Counter,
        "watch_unreadable_total",
        "Objects that were ignored because they could not be decoded.",
        "resource",
    )
    work_queue_depth = Metric(
        Gauge,
        "work_queue_depth",
        "Keys in a work queue that wait for a worker.",
        "name",
    )
    work_queue_wait_seconds = Metric(
        Histogram,
        "work_queue_wait_seconds",
        "Time in seconds that keys of a work queue waited for a worker.",
        "name",
        buckets=_DURATIONS_S,
    )
    work_queue_work_seconds = Metric(
        Histogram,
        "work_queue_work_seconds",
        "Time in seconds that a worker of a work queue needed for a key.",
        "name",
        buckets=_DURATIONS_S,
    )
    work_queue_retries = Metric(
        Counter,
        "work_queue_retries_total",
        "Keys of a work queue that were processed again after a failure.",
        "name",
    )
    leader = Metric(Gauge, "leader", "1 if this process is the leader, else 0.", "lease")
    events = Metric(
        Counter,
        "events_total",
        "Kubernetes Events, by outcome: posted, dropped (too many) or failed.",
        "outcome",
    )
    podgroups_applied = Metric(
        Counter, "podgroups_applied_total", "PodGroups that the podgrouper created or updated."
    )
    pods_assigned = Metric(
        Counter,
        "pods_assigned_total",
        "Pods that the podgrouper assigned to a PodGroup because admission had not done so.",
    )
    admission_reviews = Metric(
        Counter,
        "admission_reviews_total",
        "Admission reviews that were answered, by outcome: allowed (unchanged), patched, "
        "denied, malformed (not a valid review) or failed (internal error).",
        *("kind", "outcome"),
    )
    admission_review_seconds = Metric(
        Histogram,
        "admission_review_seconds",
        "Duration in seconds of admission reviews, from their arrival to the response.",
        "kind",
        buckets=_ANSWERS_S,
    )
    admission_live_reads = Metric(
        Counter,
        "admission_live_reads_total",
        "TrainJobs, runtimes, queues and PodGroups that were read during a review, by outcome: "
        "found, gone or failed.",
        "outcome",
    )
    admission_kept_bytes = Metric(
        Gauge,
        "admission_kept_bytes",
        "Memory in bytes of the objects in the admission cache, by kind: trainjobs, runtimes, "
        "texts (the texts of runtimes for lint), and resourceclaimtemplates.",
        "kind",
    )
    admission_left_out = Metric(
        Gauge,
        "admission_left_out",
        "Objects that are not in the admission cache, because they are too large or their "
        "namespace has too many; reviews read TrainJobs and runtimes from the API server instead.",
        "kind",
    )
    admission_permissions = Metric(
        Counter,
        "admission_permissions_total",
        "Access reviews for closed queues, by outcome: allowed, refused, or failed (the API "
        "server did not answer).",
        "outcome",
    )
    admission_certificate_expires_timestamp_seconds = Metric(
        Gauge,
        "admission_certificate_expires_timestamp_seconds",
        "Expiry time, in seconds since 1970, of the webhook's certificate or of the CA that "
        "signed it (0 while API servers do not trust the CA), by part.",
        "part",
    )
    admission_certificate_trusted = Metric(
        Gauge,
        "admission_certificate_trusted",
        "1 if all webhooks of a configuration trust the webhook's certificate, else 0, also if "
        "the configuration was deleted.",
        "configuration",
    )
    snapshot_seconds = Metric(
        Histogram,
        "snapshot_seconds",
        "Time in seconds that the scheduler needed to build a snapshot of the cluster.",
        buckets=_DURATIONS_S,
    )
    plan_seconds = Metric(
        Histogram,
        "plan_seconds",
        "Time in seconds that the scheduler needed to plan a snapshot.",
        buckets=_DURATIONS_S,
    )
    binds = Metric(
        Counter,
        "binds_total",
        "Pods that the scheduler bound to a node, by outcome: bound, refused (the pod was "
        "deleted and recreated meanwhile) or failed.",
        "outcome",
    )
    evictions = Metric(
        Counter,
        "evictions_total",
        "Evictions of TrainJobs and of other PodGroups, by action (KAI's name) and outcome: "
        "evicted or refused, and by queue of the victim.",
        *("action", "outcome", "queue_name"),
    )
    kept_gpus = Metric(
        Gauge,
        "kept_gpus",
        "GPUs that are kept for the PodGroup that is next in the line.",
    )
    kept_gpu_seconds = Metric(
        Counter,
        "kept_gpu_seconds_total",
        "GPUs that were kept for PodGroups that were next in the line, times seconds.",
    )
    claims_withheld = Metric(
        Gauge,
        "claims_withheld",
        "PodGroups with a reclaim or preemption request that wait because the limit of "
        "evictions is reached for now.",
    )
    gpu_reservation_pods = Metric(
        Gauge,
        "gpu_reservation_pods",
        "Reservation pods that exist and have not ended: each holds a GPU that pods share.",
    )
    gpu_reservations = Metric(
        Counter,
        "gpu_reservations_total",
        "Reservation pods that the scheduler created, by outcome: reserved (its device is known), "
        "timeout (no device in time), failed (not created, or ended without a device) or lost "
        "(gone, or with another device, while pods share its GPU).",
        "outcome",
    )
    gpu_reservation_seconds = Metric(
        Histogram,
        "gpu_reservation_seconds",
        "Time in seconds from the creation of a reservation pod until its device is known.",
        buckets=_DURATIONS_S,
    )
    cycle_milliseconds = Metric(
        Gauge,
        "kai_e2e_scheduling_latency_milliseconds",
        "Duration in milliseconds of the last scheduling cycle.",
    )
    queue_info = Metric(Gauge, "kai_queue_info", "1 for each queue.", "queue_name")
    queue_deserved_gpus = Metric(
        Gauge,
        "kai_queue_deserved_gpus",
        "GPU quota of a queue, in GPUs; -1 means unlimited.",
        "queue_name",
    )
    queue_quota_cpu_cores = Metric(
        Gauge,
        "kai_queue_quota_cpu_cores",
        "CPU quota of a queue, in cores; -1 means unlimited.",
        "queue_name",
    )
    queue_quota_memory_bytes = Metric(
        Gauge,
        "kai_queue_quota_memory_bytes",
        "Memory quota of a queue, in bytes; -1 means unlimited.",
        "queue_name",
    )
    queue_allocated_gpus = Metric(
        Gauge,
        "kai_queue_allocated_gpus",
        "GPUs that a queue and the queues below it use.",
        "queue_name",
    )
    queue_allocated_cpu_cores = Metric(
        Gauge,
        "kai_queue_allocated_cpu_cores",
        "CPU cores that a queue and the queues below it use.",
        "queue_name",
    )
    queue_allocated_memory_bytes = Metric(
        Gauge,
        "kai_queue_allocated_memory_bytes",
        "Memory in bytes that a queue and the queues below it use.",
        "queue_name",
    )
    queue_fair_share_gpu = Metric(
        Gauge, "kai_queue_fair_share_gpu", "Fair share of a queue, in GPUs.", "queue_name"
    )
    queue_fair_share_cpu_cores = Metric(
        Gauge,
        "kai_queue_fair_share_cpu_cores",
        "Fair share of a queue, in CPU cores.",
        "queue_name",
    )
    queue_fair_share_memory_gb = Metric(
        Gauge,
        "kai_queue_fair_share_memory_gb",
        "Fair share of a queue, in gigabytes (10^9 bytes).",
        "queue_name",
    )
    podgroups_waiting = Metric(
        Gauge, "podgroups_waiting", "PodGroups that wait, by reason.", "reason"
    )
    longest_wait_seconds = Metric(
        Gauge,
        "longest_wait_seconds",
        "For how many seconds the pods of a PodGroup of which none runs have waited, of the one "
        "that has waited longest; by the GPUs of its minimum, rounded up: 1, 2-7, 8-15, 16-31 or "
        "32+.",
        "gpus",
    )
    unusable_gpus = Metric(
        Gauge,
        "unusable_gpus",
        "Idle GPUs that no pod that waits can use, by cause: cpu, memory, part_of_gpu (too little "
        "is left of shared GPUs), node_too_small (fewer are idle than a pod needs) or other.",
        "cause",
    )
    node_unusable_gpus = Metric(
        Gauge,
        "node_unusable_gpus",
        "The same by node, of the 100 nodes with the most.",
        *("node", "cause"),
    )
    loop_lag_seconds = Metric(
        Histogram,
        "loop_lag_seconds",
        "Delay in seconds of the event loop: how much later than planned a sleeping task woke up.",
        buckets=_LAGS_S,
    )

    def __init__(self) -> None:
        # Otherwise each counter has a second series, which no dashboard reads.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._before_reads: Final = _BeforeReads()
        self.registry.register(self._before_reads)  # the first one, as they are read in this order
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.PlatformCollector(registry=self.registry)
        prometheus_client.GCCollector(registry=self.registry)
        for attribute in all_metrics():  # so that a metric without events is zero, not missing
            getattr(self, attribute)

    def call_before_reads(self, call: Callable[[], None]) -> None:
        """Let gauges be set when they are read; the call is not made in the event loop."""
        self._before_reads.calls.append(call)

    def work_queue(self, name: str) -> WorkQueueMeter:
        return WorkQueueMeter(self, name)


def all_metrics() -> dict[str, Metric[Any]]:
    return {name: it for name, it in vars(Metrics).items() if isinstance(it, Metric)}


class MetricsText(NamedTuple):
    content_type: str
    plain: bytes
    compressed: bytes


class Exposition:
    """The text is kept for a second."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._registry: Final = registry
        self._clock: Final = clock
        self._lock: Final = asyncio.Lock()
        # By format, of which there are two: the text, and until when it may be served.
        self._kept: Final[dict[str, tuple[MetricsText, float]]] = {}
        self._threads: Final = ThreadPoolExecutor(1, "metrics")

    async def text(self, accept: str) -> MetricsText:
        """In the format that a client accepts: OpenMetrics, or Prometheus's."""
        kind = _OPENMETRICS if _OPENMETRICS in accept else ""
        async with self._lock:
            kept = self._kept.get(kind)
            if kept is None or kept[1] <= self._clock.monotonic_s():
                loop = asyncio.get_running_loop()
                text = await loop.run_in_executor(self._threads, self._encoded, kind)
                kept = self._kept[kind] = text, self._clock.monotonic_s() + _KEPT_S
        return kept[0]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _encoded(self, kind: str) -> MetricsText:
        if kind == _OPENMETRICS:
            content_type = openmetrics.CONTENT_TYPE_LATEST
            plain = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        else:
            content_type = exposition.CONTENT_TYPE_PLAIN_0_0_4
            plain = exposition.generate_latest(self._registry)
        return MetricsText(content_type, plain, gzip.compress(plain, _GZIP_LEVEL, mtime=0))
