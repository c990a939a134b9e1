"""How often something is measured: a machine that is slower for seconds must not decide."""

import time
from collections.abc import Callable, Iterator
from typing import Final

_EXTRA_FACTOR: Final = 6


def rounds(least: int, least_s: float, is_met: Callable[[], bool]) -> Iterator[int]:
    """Count rounds until there were enough of them, and they took long enough together.

    While a bound is not met they go on, for six times as long: what is too slow never meets it.
    """
    began, done = time.perf_counter(), 0
    while done < least or time.perf_counter() - began < least_s * (
        1 if is_met() else _EXTRA_FACTOR
    ):
        yield done
        done += 1
