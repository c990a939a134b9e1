"""Whose turn it is: the bookkeeping of a work queue, without time, tasks or waiting of its own.

A key is in at most one of these places, and in *later* besides:

    add ──▶ ready ──take──▶ running ──done──▶ nowhere
              ▲                │ add              │
              └──── again ◀────┘                  │
    later ──wake──▶ (as add)  ◀──── retry, add_at ┘

1. A key that runs is not given out again before `done`.
2. An `add` is followed by a turn that begins after it.
3. Several adds before a turn are one turn. Keys have their turns in the order in which they got
   ready.
4. What a turn asked for by `retry` is forgotten when the next turn of its key begins: that turn
   asks again if it must. What others asked for by `add_at` is kept.
5. It remembers nothing about a key that is nowhere.
"""

import heapq
from collections import deque
from collections.abc import Hashable
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Turn", "Turns"]

K = TypeVar("K", bound=Hashable)

_EARLY_S: Final = 1e-6  # timers count in other steps than clocks do
_STALE: Final = 64  # entries of the heap that may be out of date before it is built anew


class Turn(NamedTuple, Generic[K]):
    """A key to work on, and how long it was ready."""

    key: K
    waited_s: float


class Turns(Generic[K]):
    """The keys of a work queue."""

    def __init__(self) -> None:
        self._ready: deque[tuple[K, float]] = deque()
        self._is_ready: set[K] = set()
        self._running: set[K] = set()
        self._again: set[K] = set()
        self._later: dict[tuple[K, bool], float] = {}  # (key, whether a turn asked) -> when
        self._heap: list[tuple[float, int, K, bool]] = []  # may hold what is no longer in later
        self._order = count()

    @property
    def depth(self) -> int:
        """Return how many keys are ready and not yet worked on."""
        return len(self._ready)

    @property
    def next_due_s(self) -> float | None:
        """Return when the first key of those for later is due."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def add(self, key: K, now_s: float) -> None:
        """Ask for a turn now, or after the one that is on."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._is_ready:
            self._is_ready.add(key)
            self._ready.append((key, now_s))

    def add_at(self, key: K, due_s: float) -> None:
        """Ask for a turn at a later moment; of several moments the first one counts."""
        self._put_off(key, due_s, by_turn=False)

    def retry(self, key: K, due_s: float) -> None:
        """Ask on behalf of the turn that just ended for the next one."""
        self._put_off(key, due_s, by_turn=True)

    def wake(self, now_s: float) -> None:
        """Make ready what is due."""
        while (due_s := self.next_due_s) is not None and due_s <= now_s + _EARLY_S:
            _, _, key, by_turn = heapq.heappop(self._heap)
            del self._later[key, by_turn]
            self.add(key, now_s)

    def take(self, now_s: float) -> Turn[K]:
        """Begin the next turn; ask only when `depth` is not 0."""
        key, since_s = self._ready.popleft()
        self._is_ready.remove(key)
        self._later.pop((key, True), None)
        self._running.add(key)
        return Turn(key, now_s - since_s)

    def done(self, key: K, now_s: float) -> None:
        """End a turn; when it was asked for meanwhile, the key is ready again."""
        self._running.remove(key)
        if key in self._again:
            self._again.remove(key)
            self.add(key, now_s)

    def _put_off(self, key: K, due_s: float, *, by_turn: bool) -> None:
        known_s = self._later.get((key, by_turn))
        if known_s is not None and known_s <= due_s:
            return
        self._later[key, by_turn] = due_s
        heapq.heappush(self._heap, (due_s, next(self._order), key, by_turn))
        if len(self._heap) > 2 * len(self._later) + _STALE:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def _drop_stale(self) -> None:
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_current(self, entry: tuple[float, int, K, bool]) -> bool:
        due_s, _, key, by_turn = entry
        return self._later.get((key, by_turn)) == due_s
