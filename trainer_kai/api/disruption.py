"""PodDisruptionBudget: how many pods of a selection may be disrupted at a time."""

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.selector import LabelSelector


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The pods of the budget; without a selector none."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many more pods may be evicted now, as of a generation; evictions in progress count."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A disruption budget."""

    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
