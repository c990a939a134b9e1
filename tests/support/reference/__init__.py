"""A second scheduler, written from the rules in scheduler/core/README.md and from nothing else.

It is slow and plain on purpose: lists, loops, exact fractions, everything looked at anew each time.
Where it and the product differ, one of them or the rules are wrong. It must never import the
scheduler, nor anything of the product that decides.
"""

from tests.support.reference.chance import random_cluster
from tests.support.reference.chance_going import going_cluster
from tests.support.reference.chance_kept import kept_cluster
from tests.support.reference.chance_lent import lent_cluster
from tests.support.reference.chance_promised import promised_cluster
from tests.support.reference.evicting import TooMany
from tests.support.reference.play import Outcome, allocate

__all__ = [
    "Outcome",
    "TooMany",
    "allocate",
    "going_cluster",
    "kept_cluster",
    "lent_cluster",
    "promised_cluster",
    "random_cluster",
]
