"""How many times slower this machine is than the one on which the bounds in seconds were set.

Machines of one kind differ by a factor of three, and one machine does from hour to hour. The probe
copies recorded pods with the standard library: plain Python, like most of what it is compared with.
By the factor that this is slower, a bound is longer. Where it is faster the bound stays.
"""

import copy
import json
import math
import time
from typing import Final

from tests.support.workloads import recorded_pods

_REFERENCE_S: Final = 128e-6  # of one pod, where the bounds were set
_PODS: Final = 16
_TIMES: Final = 5
_LONG_S: Final = 0.25  # long enough to be interrupted by whatever else runs


class MachineSpeed:
    """The best of several measurements, like the benchmark beside it."""

    def __init__(self) -> None:
        self._best_s = math.inf
        self._pods: Final = _recorded_pods()
        self.measure()

    @property
    def slowdown(self) -> float:
        """Return the factor, which is never below one."""
        return max(1.0, self._best_s / _REFERENCE_S)

    def measure(self) -> None:
        """Measure once more."""
        for _ in range(_TIMES):
            began = time.perf_counter()
            _copy(self._pods)
            self._best_s = min(self._best_s, (time.perf_counter() - began) / _PODS)


def slowdown_now() -> float:
    """Return the factor of this moment, by the clock on the wall: load beside us counts."""
    pods, copied = _recorded_pods(), 0
    began = time.perf_counter()
    while (took_s := time.perf_counter() - began) < _LONG_S:
        _copy(pods)
        copied += _PODS
    return max(1.0, took_s / copied / _REFERENCE_S)


def processor_slowdown() -> float:
    """Return the factor of this moment, by the time of the processor: load counts little."""
    pods = _recorded_pods()
    began = time.thread_time()
    for _ in range(_TIMES):
        _copy(pods)
    return (time.thread_time() - began) / _TIMES / _PODS / _REFERENCE_S


def _recorded_pods() -> list[object]:
    """Return pods that share no object, as a watch delivers them."""
    texts = (recorded_pods.similar_pod(recorded_pods.PENDING, 0, i) for i in range(_PODS))
    return [json.loads(text) for text in texts]


def _copy(pods: list[object]) -> None:
    for pod in pods:
        copy.deepcopy(pod)
