"""Who comes into question for a claim that is in vain, and keeps what it has."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from scheduler.core.decision import NOTHING, Action, Kept
from scheduler.core.model import NONE, Unit, leaves_of
from scheduler.core.tenants import Tenants
from scheduler.core.tenure import Tenure

__all__ = ["Keepers", "both", "staying"]

_FIXED: Final = "priority or preemptibility forbids it"
_Ground: TypeAlias = tuple[int, str]  # a priority, and why those of it stay


class Keepers:
    """Units that stay, have not run for long, or are covered by a budget."""

    def __init__(
        self,
        units: Sequence[Unit],
        staying: Mapping[int, Mapping[_Ground, int]],
        tenants: Tenants,
        tenure: Tenure,
    ) -> None:
        self._units: Final = units
        self._staying: Final = staying
        self._tenants: Final = tenants
        self._tenure: Final = tenure

    def why(
        self, row: int, action: Action, queues: Collection[int], over: Callable[[int], bool]
    ) -> Kept:
        """Return who of some queues keeps what it has; who is *over* has lost or got something."""
        claimant = self._units[row]

        def asks(priority: int) -> bool:
            return action != Action.PREEMPT or priority < claimant.priority

        reasons = Counter[str]()
        for queue in queues:
            for (priority, reason), count in self._staying.get(queue, {}).items():
                reasons[reason] += count * asks(priority)
        ends = {}
        for block, end in self._tenure.kept(action, claimant.queue, queues).items():
            one = self._tenants.units[block][0]
            if asks(self._units[one].priority) and not over(one):
                ends[one] = end
        first = min(ends, key=lambda one: (ends[one], one), default=NONE)
        return Kept(
            staying=tuple(sorted((+reasons).items())),
            protected=len(ends),
            first=first,
            until=ends.get(first, 0),
            budgets=tuple(sorted({*self._barring(asks, queues)})),
        )

    def _barring(self, asks: Callable[[int], bool], queues: Collection[int]) -> Iterator[int]:
        for block, budgets in self._tenants.barred.items():
            unit = self._units[self._tenants.units[block][0]]
            if unit.queue in queues and asks(unit.priority):
                yield from budgets


def staying(units: Iterable[Unit]) -> dict[int, Counter[_Ground]]:
    """Count the units that have something, and that nobody may take from, by queue and why."""
    found: dict[int, Counter[_Ground]] = {}
    for unit in units:
        why = unit.stays if unit.is_preemptible else _FIXED
        if why and unit.queue != NONE and _has_places(unit):
            found.setdefault(unit.queue, Counter())[unit.priority, why] += 1
    return found


def both(one: Kept, other: Kept) -> Kept:
    """Return what keeps others from two actions: no unit comes into question for both."""
    if NOTHING in (one, other):
        return one if other == NOTHING else other
    earlier, later = sorted((one, other), key=lambda it: (not it.protected, it.until))
    reasons = Counter(dict(one.staying)) + Counter(dict(other.staying))
    return Kept(
        is_patient=one.is_patient or other.is_patient,
        staying=tuple(sorted(reasons.items())),
        protected=one.protected + other.protected,
        first=earlier.first,
        until=earlier.until,
        budgets=tuple(sorted({*earlier.budgets, *later.budgets})),
        goals=tuple(sorted({*one.goals, *other.goals})),
        unbounded=tuple(sorted({*one.unbounded, *other.unbounded})),
        held_up=one.held_up or other.held_up,
        regain=one.regain or other.regain,
        is_cut=one.is_cut or other.is_cut,
        is_withheld=one.is_withheld or other.is_withheld,
        is_undue=one.is_undue or other.is_undue,
        lack=other.lack if one.lack is None else one.lack,
        over=tuple(sorted({*one.over, *other.over})),
    )


def _has_places(unit: Unit) -> bool:
    return any(leaf.there or leaf.slots for leaf in leaves_of(unit.tree))
