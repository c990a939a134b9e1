"""A pytest plugin that ends a mutant whose test uses too many seconds of CPU.

mutmut itself looks at the clock, and on a busy machine would take a slow test for an endless one.
"""

import math
import os
import resource
import time
from typing import Final

from tests.support.machine_speed import MachineSpeed

SECONDS: Final = 30  # the slowest test takes a third of it, where this was set
_SECONDS: Final = math.ceil(SECONDS * MachineSpeed().slowdown)


def pytest_runtest_setup() -> None:
    """Give each test its seconds anew; without a mutant there is no limit."""
    if "__mutmut_" in os.environ.get("MUTANT_UNDER_TEST", ""):
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + _SECONDS, most))
