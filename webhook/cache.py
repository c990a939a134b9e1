"""What admission remembers of the cluster, kept by watches: never asked while somebody waits.

Of each object only what a rule reads is kept, and of all of them as much as fits into a process of
512 MiB beside everything else. What is left out counts as not known, and is read when a review
needs it; only the queue that a runtime names is always known. A cache may be behind; a rule that
must know for sure compares the uid, or has the object read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import QUEUE, TRAINER
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import NAMESPACES
from trainer_kai.api.runtime import PodGroupPolicy
from trainer_kai.api.trainjob import RuntimeRef
from trainer_kai.policy.carried import CARRIED_ANNOTATIONS, CARRIED_LABELS
from webhook.bounds import ClusterObjects
from webhook.kept import BoundedStore, text_bytes
from webhook.queuetree import QueueTree
from webhook.shape import RuntimeSummary, SlimTemplate, runtime_summary

__all__ = [
    "CARRIED_ANNOTATIONS",
    "CARRIED_LABELS",
    "CLUSTER_RUNTIMES",
    "NAMESPACES",
    "RUNTIMES",
    "TRAINJOBS",
    "AdmissionCache",
    "SlimRuntime",
    "SlimTrainJob",
    "TrainJobSummary",
    "runtime_key",
    "summarize_runtime",
    "summarize_trainjob",
]


_TRAINJOBS_BYTES: Final = 48 << 20  # room for 30,000 and more
_RUNTIMES_BYTES: Final = 32 << 20  # some hundred with 64 replicatedJobs each, or thousands with two
_TRAINJOB_BYTES: Final = 16 << 10  # of one: names, and durations
_RUNTIME_BYTES: Final = 128 << 10
OBJECT_BYTES: Final = 1_200  # of an entry without its texts, measured; of a replicatedJob, too
_QUEUE_CHARACTERS: Final = 64  # of which no label value has so many: a longer name is refused alike


class SlimTrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Which runtime."""

    runtime_ref: RuntimeRef = RuntimeRef()


class SlimTrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What we read of a TrainJob."""

    metadata: Meta
    spec: SlimTrainJobSpec = SlimTrainJobSpec()


class SlimRuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Who schedules, and labels and annotations on the way down."""

    pod_group_policy: PodGroupPolicy | None = None
    template: SlimTemplate = SlimTemplate()


class SlimRuntime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What we read of a runtime."""

    metadata: Meta
    spec: SlimRuntimeSpec = SlimRuntimeSpec()


TRAINJOBS: Final = Resource(
    TRAINER, "v1alpha1", "trainjobs", "TrainJob", namespaced=True, struct=SlimTrainJob
)
RUNTIMES: Final = Resource(
    TRAINER, "v1alpha1", "trainingruntimes", "TrainingRuntime", namespaced=True, struct=SlimRuntime
)
CLUSTER_RUNTIMES: Final = Resource(
    TRAINER,
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
    struct=SlimRuntime,
)


class TrainJobSummary(NamedTuple):
    """What is kept of a TrainJob."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: Key  # without a namespace it is one of the cluster


class AdmissionCache:
    """TrainJobs, runtimes, the queues that namespaces name; what there is in the cluster."""

    def __init__(self) -> None:
        self.queues = QueueTree()
        self.cluster = ClusterObjects()
        self._trainjobs: Final = BoundedStore[TrainJobSummary](_TRAINJOBS_BYTES, _TRAINJOB_BYTES)
        self._runtimes: Final = BoundedStore[RuntimeSummary](_RUNTIMES_BYTES, _RUNTIME_BYTES)
        self._runtime_queues: dict[Key, str] = {}
        self._watched_since_list: set[Key] = (
            set()
        )  # runtimes that were followed since a list was begun
        self._namespaces: dict[str, str] = {}

    def put_trainjob(self, found: SlimTrainJob) -> None:
        """Take a TrainJob as it is now."""
        job = summarize_trainjob(found)
        self._trainjobs.put(found.metadata.key, job, trainjob_bytes(job))

    def drop_trainjob(self, key: Key) -> None:
        """Forget a TrainJob."""
        self._trainjobs.drop(key)

    def put_runtime(self, found: SlimRuntime) -> None:
        """Take a runtime as it is now."""
        self._watched_since_list.add(found.metadata.key)
        self._put_runtime(found)

    def drop_runtime(self, key: Key) -> None:
        """Forget a runtime."""
        self._watched_since_list.add(key)
        self._runtimes.drop(key)
        self._runtime_queues.pop(key, None)

    def begin_runtime_list(self) -> None:
        """Begin to note which runtimes are followed: of those a list knows nothing newer."""
        self._watched_since_list.clear()

    def put_listed_runtime(self, found: SlimRuntime) -> None:
        """Take a runtime from a list, unless it changed or went since that was begun."""
        if found.metadata.key not in self._watched_since_list:
            self._put_runtime(found)

    def put_namespace(self, meta: Meta) -> None:
        """Take a namespace as it is now."""
        if meta.labels.get(QUEUE):
            self._namespaces[meta.name] = meta.labels[QUEUE]
        else:
            self.drop_namespace(meta.name)

    def drop_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._namespaces.pop(name, None)

    def trainjob(self, key: Key) -> TrainJobSummary | None:
        """Return what is known of a TrainJob; None also for one that is left out."""
        return self._trainjobs.get(key)

    def runtime(self, key: Key) -> RuntimeSummary | None:
        """Return what is known of a runtime; None also for one that is left out."""
        return self._runtimes.get(key)

    def runtime_queue(self, key: Key) -> str:
        """Return the queue that a runtime names by its own field; "" for none."""
        return self._runtime_queues.get(key, "")

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace that a rule reads."""
        queue = self._namespaces.get(name)
        return {QUEUE: queue} if queue else {}

    @property
    def stores(self) -> Mapping[str, BoundedStore[Any]]:
        """Return what is kept of each kind, and how much that takes."""
        return {
            "trainjobs": self._trainjobs,
            "runtimes": self._runtimes,
            "texts": self.cluster.runtime_texts,
        }

    def _put_runtime(self, found: SlimRuntime) -> None:
        key, runtime = found.metadata.key, summarize_runtime(found)
        self._runtimes.put(key, runtime, runtime_bytes(runtime))
        if runtime.queue:
            self._runtime_queues[key] = runtime.queue[:_QUEUE_CHARACTERS]
        else:
            self._runtime_queues.pop(key, None)


def summarize_runtime(found: SlimRuntime) -> RuntimeSummary:
    """Return what is kept of a runtime."""
    return runtime_summary(found.spec.pod_group_policy, found.spec.template)


def runtime_key(ref: RuntimeRef, namespace: str) -> Key:
    """Return which runtime a TrainJob of a namespace names."""
    return Key(namespace if ref.kind == RUNTIMES.kind else "", ref.name)


def summarize_trainjob(found: SlimTrainJob) -> TrainJobSummary:
    """Return what is kept of a TrainJob."""
    meta = found.metadata
    return TrainJobSummary(
        uid=meta.uid,
        labels=_select(meta.labels, (QUEUE, *CARRIED_LABELS)),
        annotations=_select(meta.annotations, CARRIED_ANNOTATIONS),
        runtime=runtime_key(found.spec.runtime_ref, meta.namespace),
    )


def trainjob_bytes(job: TrainJobSummary) -> int:
    texts = (*job.labels.values(), *job.annotations.values(), *job.runtime, job.uid)
    return OBJECT_BYTES + text_bytes(texts)


def runtime_bytes(runtime: RuntimeSummary) -> int:
    """Return how much a runtime takes, of which names of labels and annotations are ours."""
    metas = [runtime.jobset]
    for job in runtime.jobs:
        metas += job.template.metadata, job.template.spec.template.metadata
    texts = [text for it in metas for text in (*it.labels.values(), *it.annotations.values())]
    for job in runtime.jobs:
        texts += job.name, job.template.spec.template.spec.scheduler_name
    return OBJECT_BYTES * (1 + len(runtime.jobs)) + text_bytes((runtime.queue, *texts))


def _select(given: Mapping[str, str], names: Iterable[str]) -> Mapping[str, str]:
    return {name: given[name] for name in names if name in given}
