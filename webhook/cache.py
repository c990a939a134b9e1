"""What admission remembers of the cluster, kept by watches: never asked while somebody waits.

Of each object only what a rule reads is kept. A cache may be behind; who must know for sure
compares the uid, or has the object read.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    BATCH_MIN_MEMBER,
    NODE_POOL,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    SKIP_PODGROUPER,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    TRAINER,
)
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import NAMESPACES
from trainer_kai.api.runtime import PodGroupPolicy
from trainer_kai.api.trainjob import RuntimeRef

__all__ = [
    "CARRIED_ANNOTATIONS",
    "CARRIED_LABELS",
    "CLUSTER_RUNTIMES",
    "NAMESPACES",
    "RUNTIMES",
    "TRAINJOBS",
    "Cache",
    "SlimRuntime",
    "SlimTrainJob",
    "TrainJob",
    "kept",
]

CARRIED_LABELS: Final = (PRIORITY_CLASS_NAME, PREEMPTIBILITY, NODE_POOL)
CARRIED_ANNOTATIONS: Final = (
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    BATCH_MIN_MEMBER,
    PREEMPTION_DELAY,
    STALENESS_GRACE_PERIOD,
    SKIP_PODGROUPER,
)


class SlimTrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Which runtime."""

    runtime_ref: RuntimeRef = RuntimeRef()


class SlimTrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What we read of a TrainJob."""

    metadata: Meta
    spec: SlimTrainJobSpec = SlimTrainJobSpec()


class SlimRuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Who schedules."""

    pod_group_policy: PodGroupPolicy | None = None


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


class TrainJob(NamedTuple):
    """What is kept of a TrainJob."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: Key  # without a namespace it is one of the cluster


class Cache:
    """TrainJobs, the queues that runtimes name, the queues that namespaces name."""

    def __init__(self) -> None:
        self._trainjobs: dict[Key, TrainJob] = {}
        self._queues: dict[Key, str] = {}  # of runtimes
        self._namespaces: dict[str, str] = {}

    def put_trainjob(self, found: SlimTrainJob) -> None:
        """Take a TrainJob as it is now."""
        self._trainjobs[found.metadata.key] = kept(found)

    def drop_trainjob(self, key: Key) -> None:
        """Forget a TrainJob."""
        self._trainjobs.pop(key, None)

    def put_runtime(self, found: SlimRuntime) -> None:
        """Take a runtime of either kind as it is now."""
        policy = found.spec.pod_group_policy
        if policy and policy.kai_scheduler and policy.kai_scheduler.queue:
            self._queues[found.metadata.key] = policy.kai_scheduler.queue
        else:
            self.drop_runtime(found.metadata.key)

    def drop_runtime(self, key: Key) -> None:
        """Forget a runtime."""
        self._queues.pop(key, None)

    def put_namespace(self, meta: Meta) -> None:
        """Take a namespace as it is now."""
        if meta.labels.get(QUEUE):
            self._namespaces[meta.name] = meta.labels[QUEUE]
        else:
            self.drop_namespace(meta.name)

    def drop_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._namespaces.pop(name, None)

    def trainjob(self, key: Key) -> TrainJob | None:
        """Return what is known of a TrainJob."""
        return self._trainjobs.get(key)

    def runtime_queue(self, key: Key) -> str:
        """Return the queue that a runtime names by its own field; "" for none."""
        return self._queues.get(key, "")

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace that a rule reads."""
        queue = self._namespaces.get(name)
        return {QUEUE: queue} if queue else {}

    def __len__(self) -> int:
        return len(self._trainjobs)


def kept(found: SlimTrainJob) -> TrainJob:
    """Return what is kept of a TrainJob."""
    meta, ref = found.metadata, found.spec.runtime_ref
    namespace = meta.namespace if ref.kind == RUNTIMES.kind else ""
    return TrainJob(
        uid=meta.uid,
        labels=_of(meta.labels, (QUEUE, *CARRIED_LABELS)),
        annotations=_of(meta.annotations, CARRIED_ANNOTATIONS),
        runtime=Key(namespace, ref.name),
    )


def _of(given: Mapping[str, str], names: Iterable[str]) -> Mapping[str, str]:
    return {name: given[name] for name in names if name in given}
