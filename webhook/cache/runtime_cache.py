"""All runtimes of the cluster, by key: their summaries, the queues they name, and their texts.

One watch fills all three. A summary is decoded at once, since any TrainJob may need it. A text is
decoded when lint checks a TrainJob that names the runtime, so a large runtime does not slow other
reviews down. Summaries and texts have limits of memory of their own; what does not fit is left out.
The queue that a runtime names by its own field is always known.
"""

from collections.abc import Mapping
from typing import Any, Final

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.runtime import Runtime, RuntimeSpec
from webhook.cache.bounded_store import BoundedStore
from webhook.cache.runtimes import RuntimeSummary, WatchedRuntime, runtime_bytes

MAX_TEXT_BYTES: Final = 256 * 1024  # the largest runtime or TrainJob that lint checks
_MAX_TEXTS_BYTES: Final = 64 << 20  # thousands like those that Trainer ships, of 5 to 20 KB
_ENTRY_BYTES: Final = 500
_MAX_SUMMARIES_BYTES: Final = 32 << 20  # hundreds with 64 replicatedJobs, or thousands with two
_MAX_SUMMARY_BYTES: Final = 128 << 10
_MAX_QUEUE_CHARACTERS: Final = 64  # no label value has so many: a longer name is denied as well


class RuntimeCache:
    """Runtimes as last watched or listed."""

    def __init__(self) -> None:
        self._summaries: Final = BoundedStore[RuntimeSummary](
            _MAX_SUMMARIES_BYTES, _MAX_SUMMARY_BYTES
        )
        self._texts: Final = BoundedStore[bytes](_MAX_TEXTS_BYTES, MAX_TEXT_BYTES + _ENTRY_BYTES)
        self._queues: Final[dict[Key, str]] = {}
        self._watched_since_list: Final[set[Key]] = set()  # runtimes with an event since then

    def put(self, runtime: WatchedRuntime) -> None:
        """Put a runtime from the watch."""
        self._watched_since_list.add(runtime.metadata.key)
        self._put(runtime)

    def drop(self, key: Key) -> None:
        """Forget a deleted runtime."""
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
        """Return the stores, for the metrics of their size."""
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
