"""A second scheduler, written from the rules in scheduler/core/README.md and from nothing else.

It is slow and plain on purpose: lists, loops, exact fractions, everything looked at anew each time.
Where it and the product differ, one of them or the rules are wrong. It must never import the
scheduler, nor anything of the product that decides.
"""

from tests.support.reference.chance import random_cluster
from tests.support.reference.chance_going import terminating_cluster
from tests.support.reference.chance_kept import non_evictable_cluster
from tests.support.reference.chance_lent import borrowed_cluster
from tests.support.reference.chance_promised import nominated_cluster
from tests.support.reference.evicting import TooManyCandidates
from tests.support.reference.play import CycleResult, run_cycle

__all__ = [
    "CycleResult",
    "TooManyCandidates",
    "borrowed_cluster",
    "nominated_cluster",
    "non_evictable_cluster",
    "random_cluster",
    "run_cycle",
    "terminating_cluster",
]
