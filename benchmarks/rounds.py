"""How often something is measured: a machine that is slower for seconds must not decide."""

import time
from collections.abc import Iterator

__all__ = ["rounds"]


def rounds(least: int, least_s: float) -> Iterator[int]:
    """Count rounds until there were enough of them, and they took long enough together."""
    began, done = time.perf_counter(), 0
    while done < least or time.perf_counter() - began < least_s:
        yield done
        done += 1
