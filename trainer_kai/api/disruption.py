"""PodDisruptionBudget: how many of some pods may go at once."""

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.selector import LabelSelector

__all__ = [
    "BudgetSpec",
    "BudgetStatus",
    "PodDisruptionBudget",
]


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Which pods may not go all at once; no selector means none."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many may go now, as of a generation; pods being evicted are counted already."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A disruption budget."""

    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
