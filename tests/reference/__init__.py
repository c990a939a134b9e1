"""A second scheduler, written from docs/rules.md and nothing else.

It is slow and plain on purpose: lists, loops, exact fractions, everything computed anew each time.
Where it and the product differ, one of them or the rules are wrong. It must never import the
scheduler, nor anything of the product that decides.
"""

from tests.reference.random_clusters.borrowed import borrowed_cluster
from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.random_clusters.nominated import nominated_cluster
from tests.reference.random_clusters.non_evictable import non_evictable_cluster
from tests.reference.random_clusters.shared_gpus import shared_gpu_cluster
from tests.reference.random_clusters.terminating import terminating_cluster
from tests.reference.scheduler.cycle import CycleResult, run_cycle
from tests.reference.scheduler.eviction import DependsOnOrder, TooManyCandidates

__all__ = [
    "CycleResult",
    "DependsOnOrder",
    "TooManyCandidates",
    "borrowed_cluster",
    "nominated_cluster",
    "non_evictable_cluster",
    "random_cluster",
    "run_cycle",
    "shared_gpu_cluster",
    "terminating_cluster",
]
