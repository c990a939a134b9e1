"""Every metric of the project, in one list: the body of `Metrics`.

A process builds one `Metrics` and passes it to all that measures. There is no global registry, so
two in one process, in a test, count apart. A name says the unit, as Prometheus asks for; those
that begin with kai_ are KAI's, for dashboards that are there. A label has few values: what there
can be thousands of (pods, namespaces, uids) belongs into logs.
"""

from typing import Any, Final, Generic, Self, TypeVar, overload

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

__all__ = ["Metric", "Metrics", "WorkQueueMeter", "all_metrics"]

M = TypeVar("M", bound=MetricWrapperBase)

_KAI: Final = "kai_"  # under KAI's names: what dashboards and its usage database ask for

# What takes between a millisecond and half a minute: calls, waits, reconciles.
_DURATIONS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
# What clients wait for that make thousands of requests a minute.
_ANSWERS_S: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2, 5)
# What should take no time at all.
_LAGS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


class Metric(Generic[M]):
    """One row of the list; seen through a `Metrics`, the live metric."""

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
        vars(metrics)[self._attribute] = live  # found there first from now on
        return live


class WorkQueueMeter:
    """The metrics of one work queue."""

    def __init__(self, metrics: "Metrics", name: str) -> None:
        self._depth = metrics.work_queue_depth.labels(name)
        self._wait = metrics.work_queue_wait_seconds.labels(name)
        self._work = metrics.work_queue_work_seconds.labels(name)
        self._retries = metrics.work_queue_retries.labels(name)

    def set_depth(self, keys: int) -> None:
        """Note how many keys are ready and wait for a worker."""
        self._depth.set(keys)

    def waited(self, seconds: float) -> None:
        """Note how long a key was ready before it was worked on."""
        self._wait.observe(seconds)

    def worked(self, seconds: float) -> None:
        """Note how long a call took."""
        self._work.observe(seconds)

    def retried(self) -> None:
        """Count a call that must be repeated."""
        self._retries.inc()


class Metrics:
    """The metrics of one process, and the registry that holds them."""

    api_requests = Metric(
        Counter,
        "api_requests_total",
        "Requests to the API server. The status is 2xx to 5xx, or none when there was no answer.",
        *("verb", "resource", "status"),
    )
    api_request_seconds = Metric(
        Histogram,
        "api_request_seconds",
        "From sending a request to the end of its answer.",
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
        "What watches read, by the type that the API server gives it; PAGE is a page of a list.",
        *("resource", "type"),
    )
    watch_restarts = Metric(
        Counter,
        "watch_restarts_total",
        "Watches that ended and began anew. The cause is time when they merely had their time.",
        *("resource", "cause"),
    )
    watch_relists = Metric(
        Counter,
        "watch_relists_total",
        "Lists that a watch had to read again because it could not go on where it was.",
        "resource",
    )
    watch_unreadable = Metric(
        Counter,
        "watch_unreadable_total",
        "Objects that were left out because they could not be read.",
        "resource",
    )
    work_queue_depth = Metric(
        Gauge,
        "work_queue_depth",
        "Keys of a work queue that are ready and wait for a worker.",
        "name",
    )
    work_queue_wait_seconds = Metric(
        Histogram,
        "work_queue_wait_seconds",
        "How long keys of a work queue were ready before they were worked on.",
        "name",
        buckets=_DURATIONS_S,
    )
    work_queue_work_seconds = Metric(
        Histogram,
        "work_queue_work_seconds",
        "How long a worker of a work queue took for a key.",
        "name",
        buckets=_DURATIONS_S,
    )
    work_queue_retries = Metric(
        Counter,
        "work_queue_retries_total",
        "Keys of a work queue that had to be worked on again.",
        "name",
    )
    leader = Metric(Gauge, "leader", "1 while this process leads, 0 while another may.", "lease")
    events = Metric(
        Counter,
        "events_total",
        "Events about objects. The outcome is posted, dropped (there were too many) or failed.",
        "outcome",
    )
    podgroups_applied = Metric(
        Counter, "podgroups_applied_total", "PodGroups that were made or brought in line."
    )
    pods_assigned = Metric(
        Counter,
        "pods_assigned_total",
        "Pods that were told their group because admission had not done so.",
    )
    admission_reviews = Metric(
        Counter,
        "admission_reviews_total",
        "Reviews that were answered. The outcome is allowed (left as it is), patched, denied, "
        "malformed (no review at all) or failed (a mistake of ours).",
        *("kind", "outcome"),
    )
    admission_review_seconds = Metric(
        Histogram,
        "admission_review_seconds",
        "From a review that has arrived to its answer.",
        "kind",
        buckets=_ANSWERS_S,
    )
    admission_live_reads = Metric(
        Counter,
        "admission_live_reads_total",
        "TrainJobs and runtimes that were read while a review waited. The outcome is found, gone "
        "or failed.",
        "outcome",
    )
    admission_kept_bytes = Metric(
        Gauge,
        "admission_kept_bytes",
        "Memory for what admission keeps of objects, by kind: trainjobs, runtimes, and texts (of "
        "runtimes, which only lint reads).",
        "kind",
    )
    admission_left_out = Metric(
        Gauge,
        "admission_left_out",
        "Objects that are not kept, because they are too large or their namespace has too many: "
        "TrainJobs and runtimes are read when a review needs them.",
        "kind",
    )
    admission_permissions = Metric(
        Counter,
        "admission_permissions_total",
        "Questions whether a user or a namespace may use a closed queue: allowed, refused, or "
        "failed (it could not be asked).",
        "outcome",
    )
    admission_certificate_expires_timestamp_seconds = Metric(
        Gauge,
        "admission_certificate_expires_timestamp_seconds",
        "When what the webhook shows ends, in seconds since 1970: the certificate, or the "
        "authority by which API servers trust it (0 while they do not).",
        "part",
    )
    admission_certificate_trusted = Metric(
        Gauge,
        "admission_certificate_trusted",
        "1 while every webhook of a configuration trusts what the webhook shows, and 0 otherwise: "
        "also once it was deleted.",
        "configuration",
    )
    snapshot_seconds = Metric(
        Histogram,
        "snapshot_seconds",
        "How long the scheduler took to put a snapshot of the cluster together.",
        buckets=_DURATIONS_S,
    )
    plan_seconds = Metric(
        Histogram,
        "plan_seconds",
        "How long the scheduler took to decide about a snapshot.",
        buckets=_DURATIONS_S,
    )
    binds = Metric(
        Counter,
        "binds_total",
        "Pods that the scheduler put on a node. The outcome is bound, refused (the pod was another "
        "one by then) or failed.",
        "outcome",
    )
    evictions = Metric(
        Counter,
        "evictions_total",
        "TrainJobs, and units of other kinds, that had to make room, or could not. The action is "
        "KAI's name for it; the outcome is evicted or refused; the queue is that of the victim.",
        *("action", "outcome", "queue_name"),
    )
    claims_withheld = Metric(
        Gauge,
        "claims_withheld",
        "Units that might get room from others, and wait because enough was taken for now.",
    )
    cycle_milliseconds = Metric(
        Gauge, "kai_e2e_scheduling_latency_milliseconds", "How long the last turn took."
    )
    queue_info = Metric(Gauge, "kai_queue_info", "1 for each queue.", "queue_name")
    queue_deserved_gpus = Metric(
        Gauge, "kai_queue_deserved_gpus", "The quota of a queue; -1 is no bound.", "queue_name"
    )
    queue_quota_cpu_cores = Metric(
        Gauge, "kai_queue_quota_cpu_cores", "The quota of a queue; -1 is no bound.", "queue_name"
    )
    queue_quota_memory_bytes = Metric(
        Gauge, "kai_queue_quota_memory_bytes", "The quota of a queue; -1 is no bound.", "queue_name"
    )
    queue_allocated_gpus = Metric(
        Gauge, "kai_queue_allocated_gpus", "What a queue and all below it have.", "queue_name"
    )
    queue_allocated_cpu_cores = Metric(
        Gauge, "kai_queue_allocated_cpu_cores", "What a queue and all below it have.", "queue_name"
    )
    queue_allocated_memory_bytes = Metric(
        Gauge,
        "kai_queue_allocated_memory_bytes",
        "What a queue and all below it have.",
        "queue_name",
    )
    queue_fair_share_gpu = Metric(
        Gauge, "kai_queue_fair_share_gpu", "What a queue is due.", "queue_name"
    )
    queue_fair_share_cpu_cores = Metric(
        Gauge, "kai_queue_fair_share_cpu_cores", "What a queue is due.", "queue_name"
    )
    queue_fair_share_memory_gb = Metric(
        Gauge, "kai_queue_fair_share_memory_gb", "What a queue is due, in 10^9 bytes.", "queue_name"
    )
    units_waiting = Metric(Gauge, "units_waiting", "Units that wait, by their verdict.", "verdict")
    loop_lag_seconds = Metric(
        Histogram,
        "loop_lag_seconds",
        "How much later than asked for the event loop woke a task that had slept.",
        buckets=_LAGS_S,
    )

    def __init__(self) -> None:
        # Otherwise there is a second series beside each one, which no dashboard reads.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.PlatformCollector(registry=self.registry)
        prometheus_client.GCCollector(registry=self.registry)
        for attribute in all_metrics():  # so that what never happened is a zero, not a gap
            getattr(self, attribute)

    def work_queue(self, name: str) -> WorkQueueMeter:
        """Return the meter of the work queue of this name."""
        return WorkQueueMeter(self, name)


def all_metrics() -> dict[str, Metric[Any]]:
    """Return the whole list, by attribute of `Metrics`."""
    return {name: it for name, it in vars(Metrics).items() if isinstance(it, Metric)}
