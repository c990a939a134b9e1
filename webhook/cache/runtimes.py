"""All runtimes of the cluster, by key: their summaries, the queues they name, and their texts.

One watch fills all three. A summary has the labels that name a queue or mark a group of another
scheduler, the annotations that place pods, and the scheduler names; it is decoded at once, since
any TrainJob may need it. It has no containers, so its size does not depend on theirs, and at most
as many replicatedJobs as are planned: a JobSet with more is denied. A text is decoded when lint
checks a TrainJob that names the runtime, so a large runtime does not slow other reviews down.

Summaries and texts have limits of memory of their own; what does not fit is left out. The queue
that a runtime names by its own field is always known.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from trainer_kai.api.bounds import MOST_JOBS
from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.jobset import JobSpec, JobTemplate, ReplicatedJob
from trainer_kai.api.meta import Key, Meta, TemplateMeta
from trainer_kai.api.names import (
    COSCHEDULING_GROUP,
    EXCLUSIVE_TOPOLOGY,
    NODE_SELECTOR_STRATEGY,
    QUEUE,
    TRAINER,
    VOLCANO_GROUP,
)
from trainer_kai.api.pod import PodSpec, PodTemplate
from trainer_kai.api.resources import Resource
from trainer_kai.api.trainjob import PodGroupPolicy, Runtime, RuntimeRef, RuntimeSpec
from trainer_kai.owner_budget import OwnerBudget

V = TypeVar("V")
OBJECT_BYTES: Final = 1_200  # measured: an entry, or a replicatedJob, without its texts
MAX_TEXT_BYTES: Final = 256 * 1024  # the largest runtime or TrainJob that lint checks
_MAX_TEXTS_BYTES: Final = 64 << 20  # thousands like those that Trainer ships, of 5 to 20 KB
_ENTRY_BYTES: Final = 500
_MAX_SUMMARIES_BYTES: Final = 32 << 20  # hundreds with 64 replicatedJobs, or thousands with two
_MAX_SUMMARY_BYTES: Final = 128 << 10
_MAX_QUEUE_CHARACTERS: Final = 64  # no label value has so many: a longer name is denied as well
_LABELS: Final = (QUEUE, COSCHEDULING_GROUP)
_ANNOTATIONS: Final = (EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY, VOLCANO_GROUP)


class _SlimPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    scheduler_name: str = ""


class _SlimPodTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimPodSpec = _SlimPodSpec()


class _SlimJobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: _SlimPodTemplate = _SlimPodTemplate()


class SlimJobTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The Job template of a replicatedJob, or the overlay of a runtime patch."""

    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSpec = _SlimJobSpec()


class _SlimReplicatedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str = ""
    template: SlimJobTemplate = SlimJobTemplate()


class _SlimJobSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    replicated_jobs: tuple[_SlimReplicatedJob, ...] = ()


class SlimJobSetTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The JobSet template of a runtime, or the overlay of a runtime patch."""

    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSetSpec = _SlimJobSetSpec()


class _SlimMPIPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    run_launcher_as_node: bool = False


class _SlimMLPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    mpi: _SlimMPIPolicy | None = None


class SlimRuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    ml_policy: _SlimMLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: SlimJobSetTemplate = SlimJobSetTemplate()


class RuntimeSummary(NamedTuple):
    queue: str = ""  # of podGroupPolicy.kaiScheduler
    other_schedulers: tuple[str, ...] = ()  # schedulers that its policies choose
    jobset_metadata: TemplateMeta = TemplateMeta()
    jobs: tuple[ReplicatedJob, ...] = ()
    left_out_jobs: int = 0  # replicatedJobs that are not planned
    launcher_trains: bool = True  # the launcher of MPI is one of the nodes


class WatchedRuntime(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A runtime as it is watched: its summary, and its spec as text."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        """Raise ValueError for a spec that cannot be read: the watch reports such a runtime."""
        try:
            _ = self.summary
        except DecodeError as error:
            raise ValueError(f"spec: {error}") from error

    @cached_property
    def summary(self) -> RuntimeSummary:
        if bytes(self.spec) == b"null":
            return RuntimeSummary()
        return summarize_runtime(decode(SlimRuntimeSpec, self.spec))


RUNTIMES: Final = Resource(
    TRAINER,
    "v1alpha1",
    "trainingruntimes",
    "TrainingRuntime",
    namespaced=True,
    struct=WatchedRuntime,
)
CLUSTER_RUNTIMES: Final = Resource(
    TRAINER,
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
    struct=WatchedRuntime,
)


def summarize_runtime(spec: SlimRuntimeSpec) -> RuntimeSummary:
    policy = spec.pod_group_policy or PodGroupPolicy()
    template = spec.template
    mpi = spec.ml_policy.mpi if spec.ml_policy else None
    policies = {"coscheduling": policy.coscheduling, "volcano": policy.volcano}
    jobs = template.spec.replicated_jobs
    return RuntimeSummary(
        queue=policy.kai_scheduler.queue if policy.kai_scheduler else "",
        other_schedulers=tuple(
            name for name, policy_options in policies.items() if policy_options is not None
        ),
        jobset_metadata=_metadata_summary(template.metadata),
        jobs=tuple(map(_job_summary, jobs[:MOST_JOBS])),
        left_out_jobs=max(0, len(jobs) - MOST_JOBS),
        launcher_trains=mpi is None or mpi.run_launcher_as_node,
    )


def overlaid_metadata(base: TemplateMeta, overlays: Iterable[TemplateMeta]) -> TemplateMeta:
    """Return labels and annotations with overlays; the last overlay has precedence."""
    labels, annotations = dict(base.labels), dict(base.annotations)
    for overlay in overlays:
        labels |= selected(overlay.labels, _LABELS)
        annotations |= selected(overlay.annotations, _ANNOTATIONS)
    return TemplateMeta(labels=labels, annotations=annotations)


def replicated_job(name: str, metadata: TemplateMeta, pods: PodTemplate) -> ReplicatedJob:
    return ReplicatedJob(
        name=name, template=JobTemplate(metadata=metadata, spec=JobSpec(template=pods))
    )


def runtime_key(ref: RuntimeRef, namespace: str) -> Key:
    return Key(namespace if ref.kind == RUNTIMES.kind else "", ref.name)


def runtime_bytes(runtime: RuntimeSummary) -> int:
    """Return how many bytes a summary takes; names of labels and annotations are shared."""
    metadatas = [runtime.jobset_metadata]
    for job in runtime.jobs:
        metadatas += job.template.metadata, job.template.spec.template.metadata
    texts = [text for it in metadatas for text in (*it.labels.values(), *it.annotations.values())]
    for job in runtime.jobs:
        texts += job.name, job.template.spec.template.spec.scheduler_name
    return OBJECT_BYTES * (1 + len(runtime.jobs)) + text_bytes((runtime.queue, *texts))


def text_bytes(texts: Iterable[str]) -> int:
    """Return how many bytes texts take at most: Python has up to four for a character."""
    return sum(len(it) * (1 if it.isascii() else 4) for it in texts)


def _job_summary(job: _SlimReplicatedJob) -> ReplicatedJob:
    pods = job.template.spec.template
    spec = PodSpec(scheduler_name=pods.spec.scheduler_name)
    return replicated_job(
        job.name,
        _metadata_summary(job.template.metadata),
        PodTemplate(metadata=_metadata_summary(pods.metadata), spec=spec),
    )


def _metadata_summary(metadata: TemplateMeta) -> TemplateMeta:
    return overlaid_metadata(TemplateMeta(), [metadata])


def selected(given: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: given[name] for name in names if name in given}


class BoundedStore(Generic[V]):
    """Objects by key, as many as fit into a limit of bytes, which also each of them has.

    An object that does not fit is left out, and is read from the API server when a review needs it.
    A full store leaves out objects of the namespace that uses most; never cluster-scoped objects,
    since only administrators write those. So no namespace loses objects because of another one.
    """

    def __init__(self, max_bytes: int, max_value_bytes: int) -> None:
        self._max_value_bytes: Final = max_value_bytes
        self._values: Final[dict[Key, V]] = {}
        self._budget: Final = OwnerBudget[Key](max_bytes)
        self._left_out: Final[set[Key]] = set()

    def put(self, key: Key, value: V, size: int) -> None:
        self.drop(key)
        if size <= self._max_value_bytes and self._make_room(key.namespace, size):
            self._values[key] = value
            self._budget.put(key.namespace, key, size)
        else:
            self._left_out.add(key)

    def drop(self, key: Key) -> None:
        self._left_out.discard(key)
        if self._values.pop(key, None) is not None:
            self._budget.drop(key.namespace, key)

    def get(self, key: Key) -> V | None:
        """Return a value; None if the key is unknown or left out."""
        return self._values.get(key)

    def is_left_out(self, key: Key) -> bool:
        return key in self._left_out

    @property
    def held_bytes(self) -> int:
        return self._budget.total

    @property
    def left_out(self) -> int:
        return len(self._left_out)

    def __len__(self) -> int:
        return len(self._values)

    def _make_room(self, namespace: str, size: int) -> bool:
        while not self._budget.has_room(size):
            needed = self._budget.used_by(namespace) + size
            evicted = self._budget.next_to_evict(needed, lambda key: bool(key.namespace))
            if evicted is None:
                return False
            self.drop(evicted[1])
            self._left_out.add(evicted[1])
        return True


class RuntimeCache:
    def __init__(self) -> None:
        self._summaries: Final = BoundedStore[RuntimeSummary](
            _MAX_SUMMARIES_BYTES, _MAX_SUMMARY_BYTES
        )
        self._texts: Final = BoundedStore[bytes](_MAX_TEXTS_BYTES, MAX_TEXT_BYTES + _ENTRY_BYTES)
        self._queues: Final[dict[Key, str]] = {}
        self._watched_since_list: Final[set[Key]] = set()  # runtimes with an event since then

    def put(self, runtime: WatchedRuntime) -> None:
        self._watched_since_list.add(runtime.metadata.key)
        self._put(runtime)

    def drop(self, key: Key) -> None:
        self._watched_since_list.add(key)
        self._summaries.drop(key)
        self._texts.drop(key)
        self._queues.pop(key, None)

    def begin_list(self) -> None:
        """Note that a list begins: an event from now on is newer than the list."""
        self._watched_since_list.clear()

    def put_listed(self, runtime: WatchedRuntime) -> None:
        """Put a runtime from a list, unless it changed or was deleted since the list began."""
        if runtime.metadata.key not in self._watched_since_list:
            self._put(runtime)

    def summary(self, key: Key) -> RuntimeSummary | None:
        """Return the summary of a runtime; None if the runtime is unknown or left out."""
        return self._summaries.get(key)

    def queue(self, key: Key) -> str:
        """Return the queue that a runtime names by its own field; "" if it names none."""
        return self._queues.get(key, "")

    def whole(self, key: Key) -> Runtime | None:
        """Return a runtime as lint reads it; None if it is unknown, left out or unreadable."""
        text = self._texts.get(key)
        if text is None:
            return None
        try:
            spec = decode(RuntimeSpec, text)
        except DecodeError:
            return None
        return Runtime(metadata=Meta(namespace=key.namespace, name=key.name), spec=spec)

    @property
    def stores(self) -> Mapping[str, BoundedStore[Any]]:
        return {"runtimes": self._summaries, "texts": self._texts}

    def _put(self, runtime: WatchedRuntime) -> None:
        key, summary = runtime.metadata.key, runtime.summary
        text = bytes(runtime.spec)
        self._summaries.put(key, summary, runtime_bytes(summary))
        self._texts.put(key, text, len(text) + _ENTRY_BYTES)
        if summary.queue:
            self._queues[key] = summary.queue[:_MAX_QUEUE_CHARACTERS]
        else:
            self._queues.pop(key, None)
