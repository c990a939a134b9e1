"""A clock that runs when told to: hours pass in no time, and in the same order every time.

What waits through `sleep` waits for `advance`. What waits on the event loop itself (a socket, a
thread, `asyncio.timeout`) does not know this clock, and `advance` does not wait for it.
"""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, cast

_BUSY_ROUNDS: Final = 10_000  # no task needs as many turns without ever waiting


class VirtualClock:
    """A `trainer_kai.service.clock.Clock` for tests."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._began = now
        self._passed_ns = 0  # whole numbers, so that ten steps of 0.1 s are one of 1 s
        self._order = count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def monotonic_s(self) -> float:
        """Return the seconds that passed so far."""
        return self._passed_ns / 1e9

    def now(self) -> datetime:
        """Return the moment of the start and what passed since, to the microsecond."""
        return self._began + timedelta(microseconds=self._passed_ns // 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced this far; for nothing, only let others run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._wake_due(seconds), next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let time pass: wake each task that is due, and let it do all it can before the next."""
        if seconds < 0:
            message = "time does not run backwards"
            raise ValueError(message)
        until = self._wake_due(seconds)
        await _quiet()
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, woken = heapq.heappop(self._sleepers)
            if woken.done():  # the waiting task was cancelled meanwhile
                continue
            self._passed_ns = due
            woken.set_result(None)
            await _quiet()
        self._passed_ns = until

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does; no time passes."""
        self._began += timedelta(seconds=seconds)

    @property
    def waits_s(self) -> list[float]:
        """Return how long each sleeper has still to wait, the next one first."""
        dues = sorted(due for due, _, woken in self._sleepers if not woken.done())
        return [(due - self._passed_ns) / 1e9 for due in dues]

    def _wake_due(self, seconds: float) -> int:
        return self._passed_ns + round(seconds * 1e9)


async def _quiet() -> None:
    """Give way until nothing else on the event loop can run."""
    ready = cast("Any", asyncio.get_running_loop())._ready
    for _ in range(_BUSY_ROUNDS):
        await asyncio.sleep(0)
        if not ready:
            return
    message = "some task runs again and again without waiting for anything"
    raise RuntimeError(message)
