"""How many writes are under way at once: more while the API server is quick, fewer when it is not.

The window grows by one for each window of quick answers, and shrinks by a tenth when answers take
several times as long as the quickest did, by half when the API server says that it is too much.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from trainer_kai.clock import Clock

__all__ = ["Window"]

_FIRST: Final = 64
_LEAST: Final = 2
_MOST: Final = 128
_SLOW: Final = 6.0  # times the quickest answer
_QUICK_S: Final = 0.1  # an answer within this is never slow: others ask the API server as well
_FORGETS: Final = 1.002  # the quickest answer counts for less with each one that follows


class Window:
    """Whoever writes goes through `room`, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._size: float = _FIRST
        self._under_way = 0
        self._quickest_s = float("inf")
        self._shrunk_s = 0.0
        self._waiting: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    @property
    def size(self) -> int:
        """Return how many may be under way now."""
        return int(self._size)

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """Wait for one's turn, and learn from how long it takes."""
        await self._enter()
        began_s = self._clock.monotonic_s()
        try:
            yield
            self._learn(self._clock.monotonic_s() - began_s)
        finally:
            self._under_way -= 1
            self._let_in()

    def throttled(self) -> None:
        """Take note that the API server has too much to do."""
        self._shrink(0.5)

    async def _enter(self) -> None:
        if self._under_way < self.size and self._waiting.empty():
            self._under_way += 1
            return
        turn = asyncio.Event()
        self._waiting.put_nowait(turn)
        try:
            await turn.wait()
        except asyncio.CancelledError:
            if turn.is_set():  # it was let in, and leaves at once
                self._under_way -= 1
                self._let_in()
            turn.set()  # whoever comes by knows that nobody waits here
            raise

    def _let_in(self) -> None:
        while self._under_way < self.size and not self._waiting.empty():
            turn = self._waiting.get_nowait()
            if not turn.is_set():
                self._under_way += 1
                turn.set()

    @property
    def _slow_s(self) -> float:
        known_s = self._quickest_s if self._quickest_s != float("inf") else 0.0
        return max(known_s * _SLOW, _QUICK_S)

    def _learn(self, took_s: float) -> None:
        self._quickest_s = min(self._quickest_s * _FORGETS, took_s)
        if took_s > self._slow_s:
            self._shrink(0.9)
        else:
            self._size = min(self._size + 1 / self._size, _MOST)

    def _shrink(self, factor: float) -> None:
        """Shrink, but once only for what was sent under one and the same window."""
        now_s = self._clock.monotonic_s()
        if now_s - self._shrunk_s > self._slow_s:
            self._shrunk_s = now_s
            self._size = max(self._size * factor, _LEAST)
