"""What is wrong with a TrainJob before it is made: a front door to the rules."""

from trainer_kai.policy.lint.bounds import NOTHING_KNOWN, KnownCluster
from trainer_kai.policy.lint.jobsets import lint_jobset
from trainer_kai.policy.lint.nodes import NodeIndex
from trainer_kai.policy.lint.trainjobs import is_refusable, lint_trainjob

__all__ = [
    "NOTHING_KNOWN",
    "KnownCluster",
    "NodeIndex",
    "is_refusable",
    "lint_jobset",
    "lint_trainjob",
]
