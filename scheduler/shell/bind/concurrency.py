"""Limits the writes in flight: more while the API server is quick, fewer when it is slow.

The limit grows by one for each full set of quick answers, and shrinks by a tenth when answers take
several times as long as the quickest did, by half when the API server throttles.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from trainer_kai.service.clock import Clock

_INITIAL: Final = 64
_MIN: Final = 2
_MAX: Final = 128
_SLOW_FACTOR: Final = 6.0  # times the quickest answer
_QUICK_S: Final = 0.1  # an answer within this is never slow: others ask the API server as well
_QUICKEST_DECAY: Final = 1.002  # the quickest answer counts for less with each one that follows


class AdaptiveConcurrency:
    """Each write goes through `acquire`, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit: float = _INITIAL
        self._in_flight = 0
        self._quickest_s = float("inf")
        self._shrunk_s = 0.0
        self._waiting: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    @property
    def limit(self) -> int:
        return int(self._limit)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Wait until a write may start, and adjust the limit to how long it takes."""
        await self._acquire()
        began_s = self._clock.monotonic_s()
        try:
            yield
            self._adjust(self._clock.monotonic_s() - began_s)
        finally:
            self._in_flight -= 1
            self._wake_waiters()

    def throttled(self) -> None:
        self._shrink(0.5)

    async def _acquire(self) -> None:
        if self._in_flight < self.limit and self._waiting.empty():
            self._in_flight += 1
            return
        waiter = asyncio.Event()
        self._waiting.put_nowait(waiter)
        try:
            await waiter.wait()
        except asyncio.CancelledError:
            if waiter.is_set():  # it was admitted, and leaves at once
                self._in_flight -= 1
                self._wake_waiters()
            waiter.set()  # so `_wake_waiters` skips this one
            raise

    def _wake_waiters(self) -> None:
        while self._in_flight < self.limit and not self._waiting.empty():
            waiter = self._waiting.get_nowait()
            if not waiter.is_set():
                self._in_flight += 1
                waiter.set()

    @property
    def _slow_threshold_s(self) -> float:
        quickest_s = self._quickest_s if self._quickest_s != float("inf") else 0.0
        return max(quickest_s * _SLOW_FACTOR, _QUICK_S)

    def _adjust(self, took_s: float) -> None:
        self._quickest_s = min(self._quickest_s * _QUICKEST_DECAY, took_s)
        if took_s > self._slow_threshold_s:
            self._shrink(0.9)
        else:
            self._limit = min(self._limit + 1 / self._limit, _MAX)

    def _shrink(self, factor: float) -> None:
        """Shrink the limit, once only for writes that were sent under the same limit."""
        now_s = self._clock.monotonic_s()
        if now_s - self._shrunk_s > self._slow_threshold_s:
            self._shrunk_s = now_s
            self._limit = max(self._limit * factor, _MIN)
