"""The state of a work queue: which keys are ready, processed or delayed, without time or tasks.

A key is in at most one of these states, and may be *delayed* as well:

    add ──▶ ready ──get──▶ processing ──done──▶ nowhere
              ▲                │ add              │
              └──── dirty ◀────┘                  │
    delayed ──promote_due──▶ (as add)  ◀──── retry, add_at ┘

1. A key in processing is not returned again before `done`.
2. An `add` is followed by a call that begins after it.
3. Several adds before a call lead to one call. Keys are processed in the order in which they became
   ready.
4. A `retry` of a call is dropped when the next call of its key begins; that call retries again if
   needed. A delayed `add_at` is kept.
5. Nothing is stored about a key that is in no state.
"""

import heapq
from collections import deque
from collections.abc import Hashable
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

_EARLY_S: Final = 1e-6  # timers have another resolution than clocks
_STALE: Final = 64  # outdated entries of the heap before it is rebuilt


class ReadyKey(NamedTuple, Generic[K]):
    """A key to process, and how long it was ready."""

    key: K
    waited_s: float


class WorkQueueState(Generic[K]):
    """The keys of a work queue."""

    def __init__(self) -> None:
        self._ready: deque[tuple[K, float]] = deque()
        self._ready_keys: set[K] = set()
        self._processing: set[K] = set()
        self._dirty: set[K] = set()
        self._delayed: dict[tuple[K, bool], float] = {}  # (key, whether it is a retry) -> when
        self._heap: list[
            tuple[float, int, K, bool]
        ] = []  # may hold entries that are no longer in _delayed
        self._order = count()

    @property
    def depth(self) -> int:
        """Return how many keys are ready and not processed yet."""
        return len(self._ready)

    @property
    def next_due_s(self) -> float | None:
        """Return when the first delayed key is due."""
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
        """Make due keys ready."""
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
