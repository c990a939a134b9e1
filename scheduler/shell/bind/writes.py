"""Sends writes: not more at once than the API server can take, and again when it throttles."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from scheduler.shell.bind.concurrency import AdaptiveConcurrency
from trainer_kai.kube.rest.response import Throttled, Unavailable
from trainer_kai.service.clock import Clock

T = TypeVar("T")

FIELD_MANAGER: Final = "trainer-kai-scheduler"
_THROTTLED_S: Final = 0.2  # where the API server does not say how long
_BUSY_WRITES: Final = 10
_BUSY_S: Final = 2.0


class LimitedWrites:
    """The writes of binds; the client that is used must not wait by itself after a 429."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._concurrency: Final = AdaptiveConcurrency(clock)
        self._sent_s: Final[deque[float]] = deque(maxlen=_BUSY_WRITES)

    @property
    def is_busy(self) -> bool:
        """Say whether many pods are bound at the moment, so that other writes had better wait."""
        is_many = len(self._sent_s) == _BUSY_WRITES
        return is_many and self._clock.monotonic_s() - self._sent_s[0] < _BUSY_S

    async def send(self, write: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                async with self._concurrency.acquire():
                    self._sent_s.append(self._clock.monotonic_s())
                    return await write()
            except Throttled as error:
                self._concurrency.throttled()
                await self._clock.sleep(error.retry_after_s or _THROTTLED_S)
            except Unavailable:  # an answer that is too late costs the API server as much
                self._concurrency.throttled()
                raise
