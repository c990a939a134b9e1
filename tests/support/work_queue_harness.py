"""A running work queue with the reconciler of a test, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from structlog.testing import CapturingLogger

from tests.support.clock import VirtualClock
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings

Outcome = Requeue | Exception | None
Work = Callable[[str], Awaitable[Outcome]]


class QueueHarness:
    """A queue at work, and a record of when its reconciler was called with what."""

    def __init__(self, work: Work, workers: int = 2, grace_s: float = 5) -> None:
        self.clock = VirtualClock()
        self.calls: list[tuple[float, str]] = []
        self.log = CapturingLogger()
        self._work = work
        self.queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            WorkQueueSettings("jobsets", workers, grace_s, retry_first_s=1, retry_cap_s=8),
            self.clock,
            structlog.wrap_logger(self.log, processors=[]),
            jitter=lambda: 1.0,
            metrics=(seen := RecordedQueueMetrics()),
        )
        self.metrics = seen
        self.running = asyncio.create_task(self.queue.run())

    async def _reconcile(self, key: str) -> Requeue | None:
        self.calls.append((self.clock.monotonic_s(), key))
        outcome = await self._work(key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def stop(self) -> None:
        """Stop the queue and let its grace pass."""
        self.running.cancel()
        await self.clock.advance(60)
        await asyncio.wait([self.running])


class RecordedQueueMetrics:
    """Metrics that remember."""

    def __init__(self) -> None:
        self.depths: list[int] = []
        self.waits_s: list[float] = []
        self.works_s: list[float] = []
        self.retries = 0

    def set_depth(self, keys: int) -> None:
        """Remember a depth."""
        self.depths.append(keys)

    def waited(self, seconds: float) -> None:
        """Remember a wait."""
        self.waits_s.append(seconds)

    def worked(self, seconds: float) -> None:
        """Remember a call."""
        self.works_s.append(seconds)

    def retried(self) -> None:
        """Count a repetition."""
        self.retries += 1
