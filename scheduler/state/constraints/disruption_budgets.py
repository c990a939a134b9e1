"""Disruption budgets: which pods they cover, and how many of those may be evicted."""

from collections.abc import Mapping

import numpy as np

from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.snapshot import NO_BUDGETS, DisruptionBudgets
from scheduler.state.constraints.selectors import SelectorTable, budget_selector
from scheduler.state.pods.class_table import grown
from scheduler.state.pods.pod_table import RUNNING, PodTable
from trainer_kai.api.cluster_kinds import PodDisruptionBudget
from trainer_kai.api.meta import Key


class BudgetTable:
    """The budgets by name; which ones cover a pod class is computed again only if one changes."""

    def __init__(self) -> None:
        self._budgets: dict[Key, PodDisruptionBudget] = {}
        self._selectors = SelectorTable()
        self._rows: dict[int, list[int]] = {}  # of budgets, by row of their selector
        self._sets: dict[tuple[int, ...], int] = {}
        self._set_of: Ints = np.zeros(0, dtype=np.int64)  # [class] row of its set, or NONE
        self._serial: Ints = np.zeros(0, dtype=np.int64)  # [class] the serial at that time

    def read(self, budgets: Mapping[Key, PodDisruptionBudget]) -> None:
        before, self._budgets = self._budgets, {key: budgets[key] for key in sorted(budgets)}
        if [*map(_coverage, before.items())] == [*map(_coverage, self._budgets.items())]:
            return
        self._selectors, self._rows, self._sets = SelectorTable(), {}, {}
        for row, (key, one) in enumerate(self._budgets.items()):
            selector = budget_selector(one.spec.selector, key.namespace)
            self._rows.setdefault(self._selectors.row(selector), []).append(row)
        self._serial = np.zeros(0, dtype=np.int64)

    def table(self, pod_table: PodTable, pod_counts: Ints) -> DisruptionBudgets:
        """Return the budgets with the disruptions allowed now: perhaps fewer than in the status."""
        if not self._budgets:
            return NO_BUDGETS
        self._cover(pod_table)
        running = pod_counts[:, RUNNING] if len(pod_counts) else np.zeros(0, dtype=np.int64)
        allowed = []
        for row, one in enumerate(self._budgets.values()):
            sets = [number for set_rows, number in self._sets.items() if row in set_rows]
            count = int(running[np.isin(self._set_of[: len(running)], sets)].sum())
            allowed.append(_allowed(one, count))
        set_rows = np.where(pod_table.state == RUNNING, self._set_of[pod_table.class_number], NONE)
        names = tuple(map(str, self._budgets))
        return DisruptionBudgets(names, tuple(allowed), tuple(self._sets), tuple(set_rows.tolist()))

    def _cover(self, pod_table: PodTable) -> None:
        class_table = pod_table.class_table
        size = len(class_table.rows)
        serial = class_table.serial[:size]
        known = grown(self._serial[:size], size, NONE)
        set_rows = grown(self._set_of[:size], size, NONE)
        for number in np.flatnonzero(known != serial).tolist():
            pod_class = class_table.rows[number]
            selectors = (
                self._selectors.matching(pod_class.namespace, pod_class.labels) if pod_class else ()
            )
            rows = tuple(sorted(row for one in selectors for row in self._rows[one]))
            set_rows[number] = self._sets.setdefault(rows, len(self._sets)) if rows else NONE
        self._serial, self._set_of = serial.copy(), set_rows


def budget_fingerprint(one: PodDisruptionBudget) -> object:
    return one.spec.selector, one.metadata.uid, _allowed(one, one.status.current_healthy)


def _coverage(item: tuple[Key, PodDisruptionBudget]) -> object:
    key, one = item
    return key, one.spec.selector


def _allowed(one: PodDisruptionBudget, count: int) -> int:
    """Return how many of *count* running pods may be evicted: none if the status is outdated.

    Pods that were evicted since leave *count* before the status says so.
    """
    status = one.status
    if status.observed_generation < one.metadata.generation:
        return 0
    return max(min(status.disruptions_allowed, count - status.desired_healthy), 0)
