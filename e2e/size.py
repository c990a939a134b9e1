"""How much a test on the chain does: a part of it in every run, all of it in `make soak-e2e`.

A test whose size depends on this carries the mark `sized`.
"""

import os
from typing import Final

_IS_SOAK: Final = os.environ.get("SOAK_TIMES", "1") != "1"
SEED: Final = int(os.environ.get("SOAK_SEED", "7"))


def size(usual: int, full: int) -> int:
    """Return how often, how many: the usual number, or the full one in a soak."""
    return full if _IS_SOAK else usual
