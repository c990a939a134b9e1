"""How long to wait at most for what may never come: generous, and longer on a slower machine.

A wait ends with what it waits for. Its end in seconds is for a fault only, so it is several times
what an idle machine needs, times how much slower this machine is. That is measured once for a run,
and all processes of the run go by it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

from tests.support.machine_speed import slowdown_now

_GENEROUS: Final = 2.5
_MOST: Final = 10.0  # a machine that is slower for a moment is not so for a whole run
_MEASURED: Final = "E2E_SLOWDOWN"
_AGAIN_S: Final = 0.05


def slowdown() -> float:
    """Return how many times slower this machine is than usual, as the run begins."""
    if _MEASURED not in os.environ:
        os.environ[_MEASURED] = f"{min(slowdown_now(), _MOST):.2f}"
    return float(os.environ[_MEASURED])


def patience_s(seconds: float) -> float:
    """Return how long to wait at most for what should take much less than so many seconds."""
    return seconds * _GENEROUS * slowdown()


def patience(seconds: float) -> asyncio.Timeout:
    """Return what bounds a block that waits, to be used with `async with`."""
    return asyncio.timeout(patience_s(seconds))


async def until(
    is_so: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 30.0
) -> None:
    """Ask again and again whether something is so; fail with *what* was waited for."""
    wait = patience(seconds)
    try:
        async with wait:
            while True:
                answer = is_so()
                if answer if isinstance(answer, bool) else await answer:
                    return
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError:
        if not wait.expired():
            raise
        message = f"waited {patience_s(seconds):g} s in vain until {what}"
        raise AssertionError(message) from None
