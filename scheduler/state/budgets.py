"""Budgets of disruption: which pods they cover, and how many of those may go."""

from collections.abc import Mapping

import numpy as np

from scheduler.core.model import NO_BUDGETS, NONE, Budgets, Ints
from scheduler.state.roll import THERE, Roll
from scheduler.state.selectors import Selectors, of_budget
from trainer_kai.api.disruption import PodDisruptionBudget
from trainer_kai.api.meta import Key

__all__ = ["BudgetRows", "speaks"]


class BudgetRows:
    """The budgets by name; what covers which kin is worked out once, as long as they mean that."""

    def __init__(self) -> None:
        self._budgets: dict[Key, PodDisruptionBudget] = {}
        self._selectors = Selectors()
        self._rows: dict[int, list[int]] = {}  # of budgets, by row of their selector
        self._sets: dict[tuple[int, ...], int] = {}
        self._set_of: Ints = np.zeros(0, dtype=np.int64)  # [kin] row of its set, or NONE
        self._serial: Ints = np.zeros(0, dtype=np.int64)  # [kin] whose that is

    def read(self, budgets: Mapping[Key, PodDisruptionBudget]) -> None:
        """Take all budgets, when any of them has changed."""
        before, self._budgets = self._budgets, {key: budgets[key] for key in sorted(budgets)}
        if [*map(_means, before.items())] == [*map(_means, self._budgets.items())]:
            return
        self._selectors, self._rows, self._sets = Selectors(), {}, {}
        for row, (key, one) in enumerate(self._budgets.items()):
            selector = of_budget(one.spec.selector, key.namespace)
            self._rows.setdefault(self._selectors.row(selector), []).append(row)
        self._serial = np.zeros(0, dtype=np.int64)

    def table(self, roll: Roll, heads: Ints) -> Budgets:
        """Return what may go now; pods that are on their way may be more than a status says."""
        if not self._budgets:
            return NO_BUDGETS
        self._cover(roll)
        there = heads[:, THERE] if len(heads) else np.zeros(0, dtype=np.int64)
        allowed = []
        for row, one in enumerate(self._budgets.values()):
            sets = [number for of, number in self._sets.items() if row in of]
            has = int(there[np.isin(self._set_of[: len(there)], sets)].sum())
            allowed.append(_allowed(one, has))
        of = np.where(roll.state == THERE, self._set_of[roll.kin], NONE)
        names = tuple(map(str, self._budgets))
        return Budgets(names, tuple(allowed), tuple(self._sets), tuple(of.tolist()))

    def _cover(self, roll: Roll) -> None:
        """Find out what covers the kin that are new."""
        kins = roll.kins
        size = len(kins.rows)
        serial = kins.serial[:size]
        known = np.full(size, NONE, dtype=np.int64)
        known[: len(self._serial)] = self._serial[:size]
        of = np.full(size, NONE, dtype=np.int64)
        of[: len(self._set_of)] = self._set_of[:size]
        for number in np.flatnonzero(known != serial).tolist():
            kin = kins.rows[number]
            found = self._selectors.matching(kin.namespace, kin.labels) if kin else ()
            rows = tuple(sorted(row for one in found for row in self._rows[one]))
            of[number] = self._sets.setdefault(rows, len(self._sets)) if rows else NONE
        self._serial, self._set_of = serial.copy(), of


def speaks(one: PodDisruptionBudget) -> object:
    """Return what of a budget makes a difference to who may go."""
    return one.spec.selector, one.metadata.uid, _allowed(one, one.status.current_healthy)


def _means(item: tuple[Key, PodDisruptionBudget]) -> object:
    key, one = item
    return key, one.spec.selector


def _allowed(one: PodDisruptionBudget, has: int) -> int:
    """Return how many may go of so many that are there: none, if the status is of another time.

    Those that were told to go since are gone from the number that is there before they are gone
    from the status.
    """
    status = one.status
    if status.observed_generation < one.metadata.generation:
        return 0
    return max(min(status.disruptions_allowed, has - status.desired_healthy), 0)
