"""What time it is, for shells, which are passed a `Clock`; pure code knows no time.

Durations are measured on the monotonic clock only. The wall clock goes into what people read and
into API objects; nothing is ever decided by comparing it with another machine's.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol

__all__ = ["Clock", "SystemClock"]

_LEAST_S: Final = 0.001

# On Linux this one counts the time that the machine is suspended as well: other machines go on
# meanwhile.
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Time, as a shell may use it; a test passes one that runs when told to."""

    def monotonic_s(self) -> float:
        """Return seconds since some moment, never going back, whatever happens to the date."""
        ...

    def now(self) -> datetime:
        """Return the date and time, in UTC, to show or to write down."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait this long on the monotonic clock."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic_s(self) -> float:
        """Return the monotonic clock's seconds."""
        return time.clock_gettime(_MONOTONIC)

    def now(self) -> datetime:
        """Return the wall clock's time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the clock that all code is passed

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop, which counts monotonic seconds.

        That of the processes counts milliseconds: to it less than half of one is no time at all.
        """
        await asyncio.sleep(max(seconds, _LEAST_S) if seconds > 0 else 0)
