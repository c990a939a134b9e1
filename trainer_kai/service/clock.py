"""The clock that shells get as an argument; pure code reads no clock.

Durations are measured on the monotonic clock only. The wall clock is for texts and API objects. No
decision compares it with the wall clock of another machine.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol

_LEAST_S: Final = 0.001

# On Linux this clock also counts the time while the machine is suspended, because other machines
# continue meanwhile.
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The clock of a shell; a test passes one that it controls."""

    def monotonic_s(self) -> float:
        """Return the seconds since a fixed moment; the value never decreases."""
        ...

    def now(self) -> datetime:
        """UTC, for texts and objects."""
        ...

    async def sleep(self, seconds: float) -> None:
        """By the monotonic clock."""
        ...


class SystemClock:
    def monotonic_s(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - this is the clock that all code gets

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop, which uses the monotonic clock.

        The event loop of the processes rounds to milliseconds, so less than half of one would be 0.
        """
        await asyncio.sleep(max(seconds, _LEAST_S) if seconds > 0 else 0)
