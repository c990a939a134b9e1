"""The event loop of processes."""

import math

from trainer_kai.kube.process.runner import run_loop
from trainer_kai.service.clock import SystemClock

_NAPS = 50


def test_a_short_wait_is_a_wait() -> None:
    """The loop counts milliseconds: a task that sleeps for less would only spin."""

    async def nap() -> float:
        clock = SystemClock()
        began_s = clock.monotonic_s()
        for _ in range(_NAPS):
            await clock.sleep(0.0004)
        return clock.monotonic_s() - began_s

    assert run_loop(nap()) >= _NAPS * 0.0004


def test_what_is_long_past_is_not_waited_for() -> None:
    """A fence without a write has rested for ever."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    run_loop(clock.sleep(-math.inf))
    assert clock.monotonic_s() - began_s < 1
