"""Sends writes: not more at once than the API server can take, and again when it throttles."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from scheduler.shell.bind.concurrency import AdaptiveConcurrency
from trainer_kai.kube.rest.response import Throttled, Unavailable
from trainer_kai.kube.workqueue import RecentWrites
from trainer_kai.service.clock import Clock

T = TypeVar("T")

FIELD_MANAGER: Final = "trainer-kai-scheduler"
_THROTTLED_S: Final = 0.2  # where the API server does not say how long


class LimitedWrites:
    """The writes of binds; the client that is used must not wait by itself after a 429."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._concurrency: Final = AdaptiveConcurrency(clock)
        self._recent: Final = RecentWrites()

    @property
    def is_busy(self) -> bool:
        """Say whether many pods are bound at the moment, so that other writes had better wait."""
        return self._recent.are_many(self._clock.monotonic_s())

    async def send(self, write: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                async with self._concurrency.acquire():
                    self._recent.note(self._clock.monotonic_s())
                    return await write()
            except Throttled as error:
                self._concurrency.throttled()
                await self._clock.sleep(error.retry_after_s or _THROTTLED_S)
            except Unavailable:  # an answer that is too late costs the API server as much
                self._concurrency.throttled()
                raise
