"""How many more pods may go in one plan, as budgets of disruption say it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from scheduler.core.model import NONE, Budgets

__all__ = ["Disruptions"]

Members: TypeAlias = Iterable[tuple[int, int, int]]  # pods first; below zero: slots


class Disruptions:
    """What is left of each budget, jointly for all claims of a plan."""

    def __init__(self, budgets: Budgets) -> None:
        self._left: Final = [*budgets.allowed]
        self._sets: Final = budgets.sets
        self._of: Final = budgets.of
        self._barred: dict[int, list[int]] | None = None

    def counts(self, members: Members) -> Counter[int]:
        """Return how many of some pods each budget covers; a slot is no pod."""
        found: Counter[int] = Counter()
        for pod, _, _ in members if self._sets else ():
            row = self._of[pod] if pod >= 0 else NONE
            if row != NONE:
                found.update(self._sets[row])
        return found

    def passed(self, counts: Counter[int]) -> list[int]:
        """Return the budgets that let fewer go."""
        return [budget for budget, number in counts.items() if number > self._left[budget]]

    def lose(self, members: Members) -> None:
        """Let some pods go for good."""
        for budget, number in self.counts(members).items():
            self._left[budget] -= number
            self._barred = None

    def barred(self, blocks: Sequence[Members]) -> dict[int, list[int]]:
        """Return the blocks that cannot go at all any more, and the budgets that forbid it."""
        if self._barred is None:
            counts = map(self.counts, blocks if self._sets else ())
            passed = enumerate(map(self.passed, counts))
            self._barred = {block: budgets for block, budgets in passed if budgets}
        return self._barred
