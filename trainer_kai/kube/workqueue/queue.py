"""The work queue: calls a reconciler with the keys of objects that changed, until it is content.

What it promises, besides what `trainer_kai.kube.workqueue.state` promises about keys:

1. The reconciler is called for one key at a time, and for at most `workers` keys at once. It must
   be safe to repeat: it is called again after every failure.
2. It returns None when the key is in order, `Requeue.after(…)` to be called again at that time, or
   `Requeue.SOON` to be called again with the key's back-off, as after a `Conflict`.
3. An `ApiError`, or a group of nothing else, is followed by the key's back-off, whatever it says; a
   wish of the API server is kept. `Unauthorized` and everything that is no `ApiError` ends the
   queue, and so the process.
4. A call that ended without SOON and without an error forgets the key's failures.
5. When the queue is stopped, calls that are on may finish within the grace; then they are
   cancelled. Nothing new is begun. Keys that wait are dropped: a queue runs once, and the next one
   begins with a list of everything.

It knows nothing about what keys mean, and reads no clock but the one it is given.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.errors import InvariantError
from trainer_kai.kube.process.tasks import cancel_all, errors_if_all_are, finish_within
from trainer_kai.kube.rest.errors import ApiError, Conflict, Unauthorized, is_retryable
from trainer_kai.kube.workqueue.backoff import Backoff
from trainer_kai.kube.workqueue.state import WorkQueueState
from trainer_kai.service.clock import Clock

__all__ = ["Reconcile", "Requeue", "WorkQueue", "WorkQueueMetrics", "WorkQueueSettings"]

K = TypeVar("K", bound=Hashable)

_WARN_FROM_TRY: Final = 3  # an outage of seconds is no reason for a warning


@dataclass(frozen=True)
class Requeue:
    """When to call again although nothing failed."""

    after_s: float | None
    """None: soon, and later each time."""

    SOON: ClassVar["Requeue"]

    @classmethod
    def after(cls, seconds: float) -> "Requeue":
        """Call again after this time, or as soon as the key is added."""
        return cls(seconds)


Requeue.SOON = Requeue(None)

Reconcile = Callable[[K], Awaitable[Requeue | None]]


@dataclass(frozen=True)
class WorkQueueSettings:
    """How a queue works."""

    name: str
    """What the log and the metrics call it."""
    workers: int = 4
    """How many keys are worked on at once."""
    grace_s: float = 0.5
    """How long calls that are on may take to finish when the queue is stopped. A leader's work has
    to end while its Lease would last, and the shortest one lasts for a second."""
    retry_first_s: float = 0.1
    """The first step of a key's back-off."""
    retry_cap_s: float = 60.0
    """The longest step of a key's back-off."""


class WorkQueueMetrics(Protocol):
    """The metrics of one queue; each queue has its own."""

    def set_depth(self, keys: int) -> None:
        """Note how many keys are ready and wait for a worker."""
        ...

    def waited(self, seconds: float) -> None:
        """Note how long a key was ready before it was worked on."""
        ...

    def worked(self, seconds: float) -> None:
        """Note how long a call took."""
        ...

    def retried(self) -> None:
        """Count a call that must be repeated."""
        ...


class _NoMetrics:
    def set_depth(self, keys: int) -> None:
        pass

    def waited(self, seconds: float) -> None:
        pass

    def worked(self, seconds: float) -> None:
        pass

    def retried(self) -> None:
        pass


def _error_of_group(group: ExceptionGroup[Exception]) -> ApiError:
    """Return the error that a group of refusals stands for; raise the group if it is no such."""
    errors = errors_if_all_are(ApiError, group)
    if errors is None or any(isinstance(it, Unauthorized) for it in errors):
        raise group
    return max(errors, key=lambda it: it.retry_after_s or 0)


class WorkQueue(Generic[K]):
    """Keys in, calls of one reconciler out; `run` is the service."""

    def __init__(
        self,
        reconcile: Reconcile[K],
        settings: WorkQueueSettings,
        clock: Clock,
        log: FilteringBoundLogger,
        *,
        metrics: WorkQueueMetrics | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._reconcile = reconcile
        self._settings = settings
        self._clock = clock
        self._log = log.bind(queue=settings.name)
        self._metrics = metrics or _NoMetrics()
        self._jitter = jitter
        self._state: WorkQueueState[K] = WorkQueueState()
        self._backoffs: dict[K, Backoff] = {}  # of the keys that failed last time
        self._ready = asyncio.Semaphore(0)  # as many permits as keys are ready
        self._permits = 0
        self._due_earlier = asyncio.Event()  # something is due earlier than was known
        self._busy: set[asyncio.Task[None]] = set()
        self._stopping = False

    def add(self, key: K) -> None:
        """Have the reconciler called for a key, beginning after now."""
        self._state.add(key, self._clock.monotonic_s())
        self._release_workers()

    def add_after(self, key: K, seconds: float) -> None:
        """Have the reconciler called for a key after some time."""
        before_s = self._state.next_due_s
        self._state.add_at(key, self._clock.monotonic_s() + seconds)
        self._wake_if_earlier(before_s)

    async def run(self) -> None:
        """Work until cancelled; raise what ends the process, also when that happens at the end."""
        if self._stopping:
            message = f"the queue {self._settings.name} has run: make one for each term of leading"
            raise InvariantError(message)
        tasks = [asyncio.create_task(self._wake_delayed(), name=f"{self._settings.name} alarm")]
        for number in range(self._settings.workers):
            name = f"{self._settings.name} {number}"
            tasks.append(asyncio.create_task(self._worker(), name=name))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await self._drain(tasks)
            finally:
                self._raise_first(tasks)

    def _raise_first(self, tasks: list[asyncio.Task[None]]) -> None:
        """Raise what a worker raised, and log what others did: nothing of it may be lost."""
        ended = (task for task in tasks if task.done() and not task.cancelled())
        errors = [error for task in ended if (error := task.exception()) is not None]
        for error in errors[1:]:
            self._log.error("another call failed", exc_info=error)
        if errors:
            raise errors[0]

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> None:
        """End idle workers at once, the others when their call is over or the grace is."""
        self._stopping = True
        try:
            await cancel_all(task for task in tasks if task not in self._busy)
            left = await finish_within(self._clock, self._settings.grace_s, tasks)
            if left:
                self._log.warning("calls cancelled at the end of the grace", calls=len(left))
        finally:
            await cancel_all(tasks)

    async def _worker(self) -> None:
        this = asyncio.current_task()
        assert this is not None
        while not self._stopping:
            await self._ready.acquire()
            self._permits -= 1
            ready = self._state.get(self._clock.monotonic_s())
            self._metrics.set_depth(self._state.depth)
            self._metrics.waited(ready.waited_s)
            self._busy.add(this)
            try:
                await self._process(ready.key)
            finally:
                self._busy.discard(this)
            await asyncio.sleep(0)  # a call that waits for nothing lets others run all the same

    async def _process(self, key: K) -> None:
        began_s = self._clock.monotonic_s()
        retry_s: float | None = None
        try:
            retry_s = self._delay_after_success(key, await self._reconcile(key))
        except Unauthorized:
            raise
        except ApiError as error:
            retry_s = self._delay_after_error(key, error)
        except ExceptionGroup as group:
            retry_s = self._delay_after_error(key, _error_of_group(group))
        finally:
            now_s = self._clock.monotonic_s()
            self._metrics.worked(now_s - began_s)
            self._state.done(key, now_s)
            self._release_workers()
        if retry_s is not None:
            before_s = self._state.next_due_s
            self._state.retry(key, now_s + retry_s)
            self._wake_if_earlier(before_s)

    def _delay_after_success(self, key: K, requeue: Requeue | None) -> float | None:
        """Return after how long a call that did not fail wants to be repeated."""
        if requeue == Requeue.SOON:
            self._metrics.retried()
            return self._backoff_of_key(key).next_s()
        self._backoffs.pop(key, None)
        return None if requeue is None else requeue.after_s

    def _delay_after_error(self, key: K, error: ApiError) -> float:
        """Return after how long a failed call is repeated, and say so."""
        backoff = self._backoff_of_key(key)
        retry_s = backoff.next_s(error.retry_after_s)
        is_transient = is_retryable(error) or isinstance(error, Conflict)
        is_quiet = is_transient and backoff.tries < _WARN_FROM_TRY
        log_method = self._log.debug if is_quiet else self._log.warning
        fields = {"key": str(key), "error": str(error), "tries": backoff.tries}
        log_method("reconcile failed", **fields, retry_in_s=round(retry_s, 3))
        self._metrics.retried()
        return retry_s

    def _backoff_of_key(self, key: K) -> Backoff:
        settings = self._settings
        if key not in self._backoffs:
            first_s, cap_s = settings.retry_first_s, settings.retry_cap_s
            self._backoffs[key] = Backoff(first_s, cap_s, self._jitter)
        return self._backoffs[key]

    async def _wake_delayed(self) -> None:
        """Make keys ready when they are due."""
        while True:
            self._due_earlier.clear()
            self._state.promote_due(self._clock.monotonic_s())
            self._release_workers()
            waits: set[asyncio.Task[Any]] = {asyncio.create_task(self._due_earlier.wait())}
            due_s = self._state.next_due_s
            if due_s is not None:
                nap_s = max(due_s - self._clock.monotonic_s(), 0)
                waits.add(asyncio.create_task(self._clock.sleep(nap_s)))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def _wake_if_earlier(self, before_s: float | None) -> None:
        if before_s != self._state.next_due_s:
            self._due_earlier.set()

    def _release_workers(self) -> None:
        """Let one worker in for each key that became ready."""
        self._metrics.set_depth(self._state.depth)
        while self._permits < self._state.depth:
            self._permits += 1
            self._ready.release()
