"""PodDisruptionBudget: how many of some pods may go at once."""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.selector import LabelSelector

__all__ = [
    "BudgetSpec",
    "BudgetStatus",
    "PodDisruptionBudget",
]


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Whose pods may not go all at once; no selector means nobody's."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None  # 2 or "50%"
    max_unavailable: int | str | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many may go now, as of a generation; pods being evicted are counted already."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: Mapping[str, str] = {}


class PodDisruptionBudget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A disruption budget."""

    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
