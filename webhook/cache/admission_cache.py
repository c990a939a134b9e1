"""What admission knows of the cluster, kept by watches: no review waits for it.

Of each object only what a rule reads is kept, and of all of them as much as fits into a process of
512 MiB. What is left out counts as unknown, and is read when a review needs it; only the queue that
a runtime names is always known. The cache may be behind; a rule that must be sure compares the uid,
or has the object read.
"""

from collections.abc import Mapping
from typing import Any, Final

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import QUEUE
from webhook.cache.bounded_store import BoundedStore
from webhook.cache.cluster import ClusterObjects
from webhook.cache.queues import QueueTree
from webhook.cache.runtimes import RuntimeSummary, SlimRuntime, runtime_bytes, summarize_runtime
from webhook.cache.trainjobs import (
    SlimTrainJob,
    TrainJobSummary,
    summarize_trainjob,
    trainjob_bytes,
)

__all__ = ["AdmissionCache"]

_MAX_TRAINJOBS_BYTES: Final = 48 << 20  # room for 30,000 and more
_MAX_RUNTIMES_BYTES: Final = 32 << 20  # hundreds with 64 replicatedJobs each, or thousands with two
_MAX_TRAINJOB_BYTES: Final = 16 << 10  # of one: names, and durations
_MAX_RUNTIME_BYTES: Final = 128 << 10
_MAX_QUEUE_CHARACTERS: Final = 64  # no label value has so many: a longer name is denied as well


class AdmissionCache:
    """TrainJobs, runtimes, queues, the queues that namespaces name, and the objects for lint."""

    def __init__(self) -> None:
        self.queues = QueueTree()
        self.cluster = ClusterObjects()
        self._trainjobs: Final = BoundedStore[TrainJobSummary](
            _MAX_TRAINJOBS_BYTES, _MAX_TRAINJOB_BYTES
        )
        self._runtimes: Final = BoundedStore[RuntimeSummary](
            _MAX_RUNTIMES_BYTES, _MAX_RUNTIME_BYTES
        )
        self._runtime_queues: dict[Key, str] = {}
        self._watched_since_list: set[Key] = set()  # runtimes with an event since a list began
        self._namespaces: dict[str, str] = {}

    def put_trainjob(self, trainjob: SlimTrainJob) -> None:
        """Put a TrainJob as it is now."""
        summary = summarize_trainjob(trainjob)
        self._trainjobs.put(trainjob.metadata.key, summary, trainjob_bytes(summary))

    def drop_trainjob(self, key: Key) -> None:
        """Forget a TrainJob."""
        self._trainjobs.drop(key)

    def put_runtime(self, runtime: SlimRuntime) -> None:
        """Put a runtime as it is now."""
        self._watched_since_list.add(runtime.metadata.key)
        self._put_runtime(runtime)

    def drop_runtime(self, key: Key) -> None:
        """Forget a runtime."""
        self._watched_since_list.add(key)
        self._runtimes.drop(key)
        self._runtime_queues.pop(key, None)

    def begin_runtime_list(self) -> None:
        """Begin to note which runtimes have events: the list is not newer than those."""
        self._watched_since_list.clear()

    def put_listed_runtime(self, runtime: SlimRuntime) -> None:
        """Put a runtime from a list, unless it changed or was deleted since the list began."""
        if runtime.metadata.key not in self._watched_since_list:
            self._put_runtime(runtime)

    def put_namespace(self, meta: Meta) -> None:
        """Put a namespace as it is now."""
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

    def _put_runtime(self, runtime: SlimRuntime) -> None:
        key, summary = runtime.metadata.key, summarize_runtime(runtime)
        self._runtimes.put(key, summary, runtime_bytes(summary))
        if summary.queue:
            self._runtime_queues[key] = summary.queue[:_MAX_QUEUE_CHARACTERS]
        else:
            self._runtime_queues.pop(key, None)
