"""The work queue: it calls a reconciler with the keys of changed objects until it succeeds.

The contract of `WorkQueue`:

1. The reconciler is called with one key at a time, and with at most `workers` keys at once. It must
   be repeatable: it is called again after every failure.
2. It returns None if the key is done, `Requeue.after(…)` to be called again at that time, or
   `Requeue.SOON` to be called again after the key's back-off, as after a `Conflict`.
3. After an `ApiError`, or a group of only such errors, the key is retried after its back-off, or
   after the wait that the API server asks for. `Unauthorized` and every other error ends the queue,
   and so the process.
4. A call that returned neither SOON nor an error resets the key's back-off.
5. When the queue is stopped, running calls may finish within the grace period; then they are
   cancelled. No new calls begin. Waiting keys are dropped: a queue runs once, and the next one
   begins with a list of everything.

It does not interpret keys, and reads no clock but its own. `WorkQueueState` knows which keys are
ready, and `Backoff` how long each waits; both are pure, and everything here that waits uses the
latter. `RecentWrites` knows whether writes that can wait had better do so.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from trainer_kai.errors import InvariantError
from trainer_kai.kube.process.tasks import cancel_all, errors_if_all_are, finish_within
from trainer_kai.kube.rest.response import ApiError, Conflict, Unauthorized, is_retryable
from trainer_kai.service.clock import Clock

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger  # too slow for commands, which use Backoff

K = TypeVar("K", bound=Hashable)
_MANY_WRITES: Final = 10
_RECENTLY_S: Final = 2.0
_EARLY_S: Final = 1e-6  # timers have another resolution than clocks
_STALE: Final = 64  # outdated entries of the heap before it is rebuilt
_WARN_FROM_TRY: Final = 3  # an outage of seconds is no reason for a warning


@dataclass(frozen=True)
class Requeue:
    """When to call again without a failure."""

    after_s: float | None  # None: soon, and later each time

    SOON: ClassVar["Requeue"]

    @classmethod
    def after(cls, seconds: float) -> "Requeue":
        """Call again after this time, or as soon as the key is added."""
        return cls(seconds)


Requeue.SOON = Requeue(None)
Reconcile = Callable[[K], Awaitable[Requeue | None]]


@dataclass(frozen=True)
class WorkQueueSettings:
    name: str  # in logs and metrics
    workers: int = 4  # the number of keys that are processed at once
    # For running calls when the queue is stopped. A leader's work has to end before its Lease
    # expires, and the shortest Lease is one second.
    grace_s: float = 0.5
    retry_first_s: float = 0.1  # the first step of a key's back-off
    retry_cap_s: float = 60.0  # the longest one


class WorkQueueMetrics(Protocol):
    def set_depth(self, keys: int) -> None: ...

    def waited(self, seconds: float) -> None:
        """Record how long a key waited for a worker."""
        ...

    def worked(self, seconds: float) -> None: ...

    def retried(self) -> None: ...


class _NoMetrics:
    def set_depth(self, keys: int) -> None:
        pass

    def waited(self, seconds: float) -> None:
        pass

    def worked(self, seconds: float) -> None:
        pass

    def retried(self) -> None:
        pass


class RecentWrites:
    """Whether many writes were sent lately, so that less urgent ones had better wait.

    A monotonic clock gives the times.
    """

    def __init__(self) -> None:
        self._sent_s: Final[deque[float]] = deque(maxlen=_MANY_WRITES)

    def note(self, now_s: float) -> None:
        self._sent_s.append(now_s)

    def are_many(self, now_s: float) -> bool:
        return len(self._sent_s) == _MANY_WRITES and now_s - self._sent_s[0] < _RECENTLY_S


class Backoff:
    """The waits of one thing that fails repeatedly: it does not wait, and decides no retry.

    Each wait is between half of a step and the whole step ("equal jitter"), and the step doubles
    from *first_s* up to *cap_s*. The lower half prevents a busy loop.
    """

    def __init__(self, first_s: float, cap_s: float, jitter: Callable[[], float]) -> None:
        """Take the first step, the longest one, and a source of numbers from 0 to 1."""
        assert 0 < first_s <= cap_s, (first_s, cap_s)
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self._step_s = first_s
        self._tries = 0

    @property
    def tries(self) -> int:
        return self._tries

    def next_s(self, floor_s: float | None = None) -> float:
        """Return the next wait, and double the step.

        *floor_s* is the wait that the API server asks for: it is kept even above the cap, and
        clients with the same answer do not return at the same moment.
        """
        share = self._jitter()
        step_s = self._step_s
        self._step_s = min(step_s * 2, self._cap_s)
        self._tries += 1
        wait_s = step_s * (1 + share) / 2
        if floor_s is None:
            return wait_s
        return max(wait_s, floor_s + self._first_s * share)

    def reset(self) -> None:
        self._step_s = self._first_s
        self._tries = 0


class WorkQueue(Generic[K]):
    def __init__(
        self,
        reconcile: Reconcile[K],
        settings: WorkQueueSettings,
        clock: Clock,
        log: "FilteringBoundLogger",
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
        self._backoffs: dict[K, Backoff] = {}  # of the keys that failed in their last call
        self._ready = asyncio.Semaphore(0)  # as many permits as there are ready keys
        self._permits = 0
        self._due_earlier = asyncio.Event()  # a key is due earlier than the alarm knew
        self._busy: set[asyncio.Task[None]] = set()
        self._stopping = False

    def add(self, key: K) -> None:
        """Add a key: the reconciler is called with it after this moment."""
        self._state.add(key, self._clock.monotonic_s())
        self._release_workers()

    def add_after(self, key: K, seconds: float) -> None:
        before_s = self._state.next_due_s
        self._state.add_at(key, self._clock.monotonic_s() + seconds)
        self._wake_if_earlier(before_s)

    async def run(self) -> None:
        """Work until cancelled; raise errors that end the process, also at the end."""
        if self._stopping:
            message = f"the queue {self._settings.name} has already run: create one per term"
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
        """Raise the error of one worker, and log the errors of the others."""
        ended = (task for task in tasks if task.done() and not task.cancelled())
        errors = [error for task in ended if (error := task.exception()) is not None]
        for error in errors[1:]:
            self._log.error("another call failed", exc_info=error)
        if errors:
            raise errors[0]

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> None:
        """Cancel idle workers at once, the others after their call or the grace period."""
        self._stopping = True
        try:
            await cancel_all(task for task in tasks if task not in self._busy)
            left = await finish_within(self._clock, self._settings.grace_s, tasks)
            if left:
                self._log.warning("calls cancelled after the grace period", calls=len(left))
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
            await asyncio.sleep(0)  # a call that never waits must not block others

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
        if requeue == Requeue.SOON:
            self._metrics.retried()
            return self._backoff_of_key(key).next_s()
        self._backoffs.pop(key, None)
        return None if requeue is None else requeue.after_s

    def _delay_after_error(self, key: K, error: ApiError) -> float:
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
        """Release one worker for each key that became ready."""
        self._metrics.set_depth(self._state.depth)
        while self._permits < self._state.depth:
            self._permits += 1
            self._ready.release()


def _error_of_group(group: ExceptionGroup[Exception]) -> ApiError:
    """Return the error that a group of API errors stands for; raise any other group."""
    errors = errors_if_all_are(ApiError, group)
    if errors is None or any(isinstance(it, Unauthorized) for it in errors):
        raise group
    return max(errors, key=lambda it: it.retry_after_s or 0)


class ReadyKey(NamedTuple, Generic[K]):
    key: K
    waited_s: float


class WorkQueueState(Generic[K]):
    """Which keys are ready, processed or delayed, without time or tasks.

    A key is in at most one of these states, and may be *delayed* as well:

        add ──▶ ready ──get──▶ processing ──done──▶ nowhere
                  ▲                │ add              │
                  └──── dirty ◀────┘                  │
        delayed ──promote_due──▶ (as add)  ◀──── retry, add_at ┘

    1. A key in processing is not returned again before `done`.
    2. An `add` is followed by a call that begins after it.
    3. Several adds before a call lead to one call. Keys are processed in the order in which they
       became ready.
    4. A `retry` of a call is dropped when the next call of its key begins; that call retries again
       if needed. A delayed `add_at` is kept.
    5. Nothing is stored about a key that is in no state.
    """

    def __init__(self) -> None:
        self._ready: deque[tuple[K, float]] = deque()
        self._ready_keys: set[K] = set()
        self._processing: set[K] = set()
        self._dirty: set[K] = set()
        self._delayed: dict[tuple[K, bool], float] = {}  # (key, whether it is a retry) -> when
        # may hold entries that are no longer in _delayed
        self._heap: list[tuple[float, int, K, bool]] = []
        self._order = count()

    @property
    def depth(self) -> int:
        return len(self._ready)

    @property
    def next_due_s(self) -> float | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def add(self, key: K, now_s: float) -> None:
        """Request a call now, or after the running one."""
        if key in self._processing:
            self._dirty.add(key)
        elif key not in self._ready_keys:
            self._ready_keys.add(key)
            self._ready.append((key, now_s))

    def add_at(self, key: K, due_s: float) -> None:
        """Request a call at a later moment; the earliest of several moments counts."""
        self._delay(key, due_s, is_retry=False)

    def retry(self, key: K, due_s: float) -> None:
        """Request another call after the one that just ended."""
        self._delay(key, due_s, is_retry=True)

    def promote_due(self, now_s: float) -> None:
        while (due_s := self.next_due_s) is not None and due_s <= now_s + _EARLY_S:
            _, _, key, is_retry = heapq.heappop(self._heap)
            del self._delayed[key, is_retry]
            self.add(key, now_s)

    def get(self, now_s: float) -> ReadyKey[K]:
        """Begin the next call; only if `depth` is not 0."""
        key, since_s = self._ready.popleft()
        self._ready_keys.remove(key)
        self._delayed.pop((key, True), None)
        self._processing.add(key)
        return ReadyKey(key, now_s - since_s)

    def done(self, key: K, now_s: float) -> None:
        """End a call; the key is ready again if it was added meanwhile."""
        self._processing.remove(key)
        if key in self._dirty:
            self._dirty.remove(key)
            self.add(key, now_s)

    def _delay(self, key: K, due_s: float, *, is_retry: bool) -> None:
        known_s = self._delayed.get((key, is_retry))
        if known_s is not None and known_s <= due_s:
            return
        self._delayed[key, is_retry] = due_s
        heapq.heappush(self._heap, (due_s, next(self._order), key, is_retry))
        if len(self._heap) > 2 * len(self._delayed) + _STALE:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def _drop_stale(self) -> None:
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_current(self, entry: tuple[float, int, K, bool]) -> bool:
        due_s, _, key, is_retry = entry
        return self._delayed.get((key, is_retry)) == due_s
