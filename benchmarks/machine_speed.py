"""How many times slower this machine is than the one on which the bounds in seconds were set.

Machines of one kind differ by a factor of two, and one machine does from hour to hour. So a
benchmark with a bound in seconds also measures, in the same run, the official package, whose
version is locked, making a pod out of its JSON. By the factor that this is slower the bound is
longer. Where it is faster the bound stays.
"""

import math
import time
from typing import Final

from kubernetes.client import ApiClient

from tests.support.workloads import recorded_pods

__all__ = ["MachineSpeed"]

_REFERENCE_S: Final = 153e-6  # of one pod, where the bounds were set
_PODS: Final = 16
_TIMES: Final = 5


class MachineSpeed:
    """The best of several measurements, like the benchmark beside it."""

    def __init__(self) -> None:
        self._best_s = math.inf
        self._read: Final = ApiClient().deserialize
        self._texts: Final = [
            recorded_pods.similar_pod(recorded_pods.PENDING, 0, i) for i in range(_PODS)
        ]
        self.measure()

    @property
    def slowdown(self) -> float:
        """Return the factor, which is never below one."""
        return max(1.0, self._best_s / _REFERENCE_S)

    def measure(self) -> None:
        """Measure once more."""
        for _ in range(_TIMES):
            began = time.perf_counter()
            for text in self._texts:
                self._read(text, "V1Pod", "application/json")
            self._best_s = min(self._best_s, (time.perf_counter() - began) / _PODS)
