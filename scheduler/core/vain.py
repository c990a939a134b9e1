"""Why units that may claim something take nothing, and what that makes of their verdicts."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Final

from scheduler.core.allocate import Allocation
from scheduler.core.decision import (
    NOTHING,
    UNDUE,
    Futile,
    Kept,
    Rejection,
    Unmoved,
)
from scheduler.core.keepers import both, staying
from scheduler.core.model import Verdict
from scheduler.core.tenants import could_lose

__all__ = ["Vain"]


class Vain:
    """By unit, as far as anybody claimed in vain."""

    def __init__(self, allocation: Allocation) -> None:
        self.refused_by: Final[set[int]] = set()  # budgets, in the last search,
        self.goals: Final[set[int]] = set()  # and the queues whose goals forbade something,
        self.is_cut = False  # and whether that ended at a limit
        self._allocation: Final = allocation
        self._kept: Final[dict[int, Kept]] = {}

    @cached_property
    def staying(self) -> dict[int, Counter[tuple[int, str]]]:
        """Count the units that nobody may take from, by queue, priority and why."""
        return staying(self._allocation.snapshot.units)

    @cached_property
    def may_last(self) -> bool:
        """Say whether a minimum run time may keep a unit."""
        chosen, queues = self._allocation.policies.min_runtime, self._allocation.snapshot.queues
        said = (*queues.preempt_min_s, *queues.reclaim_min_s)
        return chosen is not None and any(it > 0 for it in (*said, *chosen[:2]))

    def why(self, ask: Callable[[], Kept]) -> Kept:
        """Return why nobody loses anything for a unit, asked for if there can be a reason."""
        if not (self.staying or self.may_last or self._allocation.snapshot.budgets.names):
            return Kept(goals=tuple(sorted(self.goals)), is_cut=self.is_cut)
        kept = ask()
        budgets = tuple(sorted({*kept.budgets, *self.refused_by}))
        return kept._replace(budgets=budgets, goals=tuple(sorted(self.goals)), is_cut=self.is_cut)

    def search(self) -> None:
        """Begin to look for somebody who could lose something."""
        self.refused_by.clear()
        self.goals.clear()
        self.is_cut = False

    def keep(self, row: int, kept: Kept) -> None:
        """Take note of why a unit takes nothing."""
        if kept != NOTHING:
            self._kept[row] = both(self._kept.get(row, NOTHING), kept)

    def forget(self, row: int) -> None:
        """Take note that a unit was given something."""
        self._kept.pop(row, None)

    def told(self, rejection: Rejection) -> Rejection:
        """Return why a unit waits, and why it takes nothing."""
        kept = self._kept.get(rejection.unit, NOTHING)
        if kept == UNDUE:  # that tells only those behind something
            kept = NOTHING
        if rejection.verdict == Verdict.FRAGMENTED and not kept.is_patient:
            kept = kept._replace(unmoved=self._unmoved(rejection.unit))
        if kept == NOTHING:
            return rejection
        if kept.held_up is not None:
            held_up = kept.held_up._replace(in_vain=self._futile(kept.held_up.by))
            kept = kept._replace(held_up=held_up)
        verdict = Verdict.PREEMPTION_DELAY if kept.is_patient else rejection.verdict
        words = {"time": kept.is_patient or kept.protected, "budgets": kept.budgets}
        wakes_on = rejection.wakes_on | {word for word, is_meant in words.items() if is_meant}
        return replace(rejection, verdict=verdict, wakes_on=wakes_on, kept=kept)

    def _unmoved(self, row: int) -> Unmoved:
        """Return why nobody is moved for a unit."""
        if not self._allocation.snapshot.units[row].is_preemptible:
            return Unmoved.CLAIM
        policies = self._allocation.policies
        if not policies.most_moved or "consolidation" not in policies.actions:
            return Unmoved.ACTION
        return Unmoved.WAY if self.is_offered else Unmoved.OFFER

    @cached_property
    def is_offered(self) -> bool:
        """Say whether anybody is there whose place may become another."""
        units = self._allocation.snapshot.units
        kept = (it for it in units if it.may_move and it.is_kept and not it.is_partly_done)
        return any(map(could_lose, kept))

    def _futile(self, row: int) -> Futile | None:
        """Return why a unit takes nothing itself, where that is known."""
        rejection = self._allocation.rejections.get(row)
        if rejection is not None and rejection.verdict == Verdict.NON_PREEMPTIBLE_OVER_QUOTA:
            return Futile.QUOTA
        return Futile.SHARE if self._kept.get(row, NOTHING).is_undue else None
