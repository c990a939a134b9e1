"""The objects that admission has cached, kept up to date by watches: no review waits for them.

Each object is reduced to the fields that a rule reads. All objects together fit into a process of
512 MiB; an object that does not fit is left out, counts as unknown, and is read from the API server
when a review needs it. The cache may be behind the cluster. A rule that must know the current state
compares the uid, or reads the object.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import QUEUE
from webhook.cache.bounded_store import BoundedStore
from webhook.cache.cluster import ClusterObjects
from webhook.cache.queues import QueueTree
from webhook.cache.runtime_cache import RuntimeCache
from webhook.cache.trainjobs import (
    SlimTrainJob,
    TrainJobSummary,
    summarize_trainjob,
    trainjob_bytes,
)

_MAX_TRAINJOBS_BYTES: Final = 48 << 20  # room for 30,000 and more
_MAX_TRAINJOB_BYTES: Final = 16 << 10  # one TrainJob: names and durations


class AdmissionCache:
    """TrainJobs, runtimes, queues, the queue labels of namespaces, and the objects for lint."""

    def __init__(self) -> None:
        self.queues = QueueTree()
        self.cluster = ClusterObjects()
        self.runtimes = RuntimeCache()
        self._trainjobs: Final = BoundedStore[TrainJobSummary](
            _MAX_TRAINJOBS_BYTES, _MAX_TRAINJOB_BYTES
        )
        self._namespaces: dict[str, str] = {}

    def put_trainjob(self, trainjob: SlimTrainJob) -> None:
        """Put a TrainJob as it is now."""
        summary = summarize_trainjob(trainjob)
        self._trainjobs.put(trainjob.metadata.key, summary, trainjob_bytes(summary))

    def drop_trainjob(self, key: Key) -> None:
        """Forget a TrainJob."""
        self._trainjobs.drop(key)

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
        """Return the summary of a TrainJob; None if the TrainJob is unknown or left out."""
        return self._trainjobs.get(key)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace that a rule reads."""
        queue = self._namespaces.get(name)
        return {QUEUE: queue} if queue else {}

    def namespaces_with_queue(self, queue: str) -> Sequence[str]:
        """Return the namespaces with a label that names a queue."""
        return sorted(name for name, it in self._namespaces.items() if it == queue)

    @property
    def stores(self) -> Mapping[str, BoundedStore[Any]]:
        """Return the stores, for the metrics of their size."""
        return {"trainjobs": self._trainjobs, **self.runtimes.stores}
