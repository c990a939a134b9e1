"""How many more pods may go in one plan, as budgets of disruption say it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from scheduler.core.model import NONE, DisruptionBudgets

__all__ = ["DisruptionAllowance"]


class DisruptionAllowance:
    """What is left of each budget, jointly for all claims of a plan."""

    def __init__(self, budgets: DisruptionBudgets) -> None:
        self._left: Final = [*budgets.allowed]
        self._sets: Final = budgets.sets
        self._set_of_pod: Final = budgets.set_of_pod
        self.has_budgets: Final = bool(budgets.names)
        self.evicted = 0  # how many of theirs have gone

    def counts(self, pods: Iterable[int]) -> Counter[int]:
        """Return how many of some pods each budget covers; a slot, below zero, is no pod."""
        found: Counter[int] = Counter()
        for pod in pods if self._sets else ():
            row = self._set_of_pod[pod] if pod >= 0 else NONE
            if row != NONE:
                found.update(self._sets[row])
        return found

    def violated(self, counts: Counter[int]) -> list[int]:
        """Return the budgets that let fewer go."""
        return [budget for budget, number in counts.items() if number > self._left[budget]]

    def evict(self, pods: Iterable[int]) -> tuple[int, ...]:
        """Let some pods go for good; return the budgets that let fewer go."""
        counts = self.counts(pods)
        passed = tuple(sorted(self.violated(counts)))
        for budget, number in counts.items():
            self._left[budget] -= number
            self.evicted += number
        return passed

    def blocked(self, eviction_units: Iterable[Iterable[int]]) -> dict[int, list[int]]:
        """Return the blocks that cannot go at all any more, and the budgets that forbid it."""
        counts = map(self.counts, eviction_units if self._sets else ())
        passed = enumerate(map(self.violated, counts))
        return {eviction_unit: budgets for eviction_unit, budgets in passed if budgets}
