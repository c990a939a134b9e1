"""The text of all metrics, for any number of readers: encoded once a second in each format.

Encoding thousands of series takes processor time that a plan would need, so readers within a second
get the same text. It happens in one thread of its own: in the threads of the event loop it would
queue up before the plans.
"""

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

from trainer_kai.service.clock import Clock

_KEPT_S: Final = 1.0
_OPENMETRICS: Final = "application/openmetrics-text"
_GZIP_LEVEL: Final = 1  # a level that readers in the cluster notice, at a tenth of the time of 9


class MetricsText(NamedTuple):
    """All metrics in one format, at one time."""

    content_type: str
    plain: bytes
    compressed: bytes


class Exposition:
    """Encodes the metrics of a registry, and keeps the text for a second."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._registry: Final = registry
        self._clock: Final = clock
        self._lock: Final = asyncio.Lock()
        # By format, of which there are two: the text, and until when it may be served.
        self._kept: Final[dict[str, tuple[MetricsText, float]]] = {}
        self._threads: Final = ThreadPoolExecutor(1, "metrics")

    async def text(self, accept: str) -> MetricsText:
        """Return all metrics in the format that a client accepts: OpenMetrics, or Prometheus's."""
        kind = _OPENMETRICS if _OPENMETRICS in accept else ""
        async with self._lock:
            kept = self._kept.get(kind)
            if kept is None or kept[1] <= self._clock.monotonic_s():
                loop = asyncio.get_running_loop()
                text = await loop.run_in_executor(self._threads, self._encoded, kind)
                kept = self._kept[kind] = text, self._clock.monotonic_s() + _KEPT_S
        return kept[0]

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _encoded(self, kind: str) -> MetricsText:
        if kind == _OPENMETRICS:
            content_type = openmetrics.CONTENT_TYPE_LATEST
            plain = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        else:
            content_type = exposition.CONTENT_TYPE_PLAIN_0_0_4
            plain = exposition.generate_latest(self._registry)
        return MetricsText(content_type, plain, gzip.compress(plain, _GZIP_LEVEL, mtime=0))
