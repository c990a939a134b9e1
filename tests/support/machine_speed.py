"""How many times slower this machine is than the one on which the bounds in seconds were set.

Machines of one kind differ by a factor of two, and one machine does from hour to hour. The measure
is the official package, whose version is locked, making a pod out of its JSON. Where this is slower
than the reference, a benchmark's bound in seconds, the end of a wait and a time limit are as many
times longer. Where it is faster they stay.
"""

import functools
import math
import time
from collections.abc import Callable
from typing import Final

from kubernetes.client import ApiClient

from tests.support.workloads import recorded_pods

__all__ = ["MachineSpeed", "slowdown_now"]

_REFERENCE_S: Final = 153e-6  # of one pod, where the bounds were set
_PODS: Final = 16
_TIMES: Final = 5
_LONG_ENOUGH_S: Final = 0.25  # to include several turns of other processes on this core


class MachineSpeed:
    """The best of several measurements, like the benchmark beside it."""

    def __init__(self) -> None:
        self._best_s = math.inf
        self._read: Final = _reader()
        self.measure()

    @property
    def slowdown(self) -> float:
        """Return the factor, which is never below one."""
        return max(1.0, self._best_s / _REFERENCE_S)

    def measure(self) -> None:
        """Measure once more."""
        for _ in range(_TIMES):
            began = time.perf_counter()
            self._read()
            self._best_s = min(self._best_s, (time.perf_counter() - began) / _PODS)


def slowdown_now() -> float:
    """Return the factor of this moment, never below one: the load beside this process counts.

    It takes a quarter of a second by the wall clock, or a little more.
    """
    read = _reader()
    read()  # what the first call alone must do is not the machine's speed
    pods, took_s, began_s = 0, 0.0, time.perf_counter()
    while took_s < _LONG_ENOUGH_S:
        read()
        pods += _PODS
        took_s = time.perf_counter() - began_s
    return max(1.0, took_s / pods / _REFERENCE_S)


@functools.cache
def _reader() -> Callable[[], None]:
    """Return a call that makes pods out of their JSON."""
    read = ApiClient().deserialize
    texts = [recorded_pods.similar_pod(recorded_pods.PENDING, 0, i) for i in range(_PODS)]

    def read_all() -> None:
        for text in texts:
            read(text, "V1Pod", "application/json")

    return read_all
