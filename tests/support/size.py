"""How many clusters, inputs and rounds the tests try that draw them by lot.

`make unit` draws half the examples and clusters that the tests name, but never less than one whole
block of seeds. `make soak` sets SOAK_TIMES to say how many times as much as they name is tried, and
SOAK_SEED to say from which seed on. Their names do not begin with
TRAINER_KAI_: our processes take such names for settings, and refuse those they do not know.
"""

import os
from typing import Final

_SOAK_TIMES: Final = int(os.environ.get("SOAK_TIMES", "0"))
_TIMES: Final = _SOAK_TIMES or 1
_PART: Final = _SOAK_TIMES or 0.5
_BASE: Final = int(os.environ.get("SOAK_SEED", "0"))


def examples(count: int) -> int:
    """Return how many examples hypothesis draws, or how many rounds a test goes."""
    return max(int(count * _PART), 1)


def seeds(count: int) -> range:
    """Return the seeds that one test tries."""
    return range(_BASE, _BASE + count * _TIMES)


def blocks(count: int, size: int = 50) -> list[range]:
    """Return the seeds of a parametrized test, at most *size* for each of its runs.

    The first run of `make unit` begins at seed 0. What must be frequent is asserted of that run
    only: the seeds of the others are not known when the test is written.
    """
    whole = seeds(count)[: max(int(count * _PART), min(size, count))]
    return [whole[i : i + size] for i in range(0, len(whole), size)]


def by_first_seed(block: range) -> str:
    """Name a run after its first seed."""
    return str(block.start)
