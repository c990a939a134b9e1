"""Lint: what is wrong with a TrainJob before it is created; the entry points of the rules."""

from trainer_kai.policy.lint.jobset import lint_jobset
from trainer_kai.policy.lint.known_cluster import NOTHING_KNOWN, KnownCluster
from trainer_kai.policy.lint.node_index import NodeIndex
from trainer_kai.policy.lint.queue_limits import QuotaShortage, quota_shortage
from trainer_kai.policy.lint.trainjob import is_refusable, lint_trainjob

__all__ = [
    "NOTHING_KNOWN",
    "KnownCluster",
    "NodeIndex",
    "QuotaShortage",
    "is_refusable",
    "lint_jobset",
    "lint_trainjob",
    "quota_shortage",
]
