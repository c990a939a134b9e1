"""The CPU time of a call in units of another one: a slow machine is slow for both."""

import math
import time
from collections.abc import Callable

from trainer_kai.service.garbage_collection import without_collection

_TRIES = 4


def cpu_s(call: Callable[[], object]) -> float:
    """Return the CPU seconds of this process in a call."""
    with without_collection():  # what others left to be cleared away is not the work of this call
        began_s = time.process_time()
        call()
        return time.process_time() - began_s


def assert_cpu_ratio(
    most: float, measure: Callable[[], float], measure_plain: Callable[[], float]
) -> None:
    """Assert that what is measured takes at most so many times the CPU time of the plain one.

    Both are measured in turns, and the best of each counts: another process on the same core makes
    a measurement longer, and none shorter.
    """
    best_s = plain_s = math.inf
    for _ in range(_TRIES):
        plain_s = min(plain_s, measure_plain())
        best_s = min(best_s, measure())
        if best_s <= most * plain_s:
            return
    raise AssertionError(
        f"it took {best_s / plain_s:.1f} times the CPU time of the plain one "
        f"({best_s:.3f} s instead of {plain_s:.3f} s), more than {most:g} times"
    )
