"""Which queue may reclaim from which: rules 28 to 32."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from tests.reference.scheduler.resources import Amount

Requested: TypeAlias = tuple[Amount, Amount, Amount]
_RESOURCES = range(3)


@dataclass(eq=False)
class QueueShares:
    """A queue: numbers for CPU, memory and GPU; -1 is no bound."""

    parent: "QueueShares | None"
    quota: Requested
    limit: Requested
    fair_share: Requested
    allocated: list[Amount] = field(default_factory=lambda: [0, 0, 0])
    non_preemptible: list[Amount] = field(default_factory=lambda: [0, 0, 0])
    reclaim_goal: str = "fair-share"  # of reclaim among those below it

    def with_ancestors(self) -> list["QueueShares"]:
        """Return it and all above it."""
        return [self, *(self.parent.with_ancestors() if self.parent else [])]

    def is_over_quota(self, has: Sequence[Amount]) -> bool:
        """Say whether so much is more than its quota, of anything."""
        return any(self.quota[k] != -1 and has[k] > self.quota[k] for k in _RESOURCES)

    def is_over_fair_share(self, has: Sequence[Amount]) -> bool:
        """Say whether so much is more than it may fill, of anything."""
        for kind in _RESOURCES:
            share = max(self.quota[kind], self.fair_share[kind])
            if self.quota[kind] == -1:
                share = self.limit[kind]
            elif self.limit[kind] != -1:
                share = min(share, self.limit[kind])
            if share != -1 and has[kind] > share:
                return True
        return False


def _add(has: Sequence[Amount], asked: Requested) -> list[Amount]:
    return [has[kind] + asked[kind] for kind in _RESOURCES]


def may_reclaim(mine: QueueShares, asked: Requested, *, is_fixed: bool) -> bool:
    """Rule 28."""
    if any(mine.allocated[kind] + asked[kind] > mine.fair_share[kind] for kind in _RESOURCES):
        return False
    return not is_fixed or not any(
        queue.is_over_quota(_add(queue.non_preemptible, asked)) for queue in mine.with_ancestors()
    )


def _compared_siblings(mine: QueueShares, theirs: QueueShares) -> tuple[QueueShares, QueueShares]:
    """Rule 29."""
    for one in mine.with_ancestors():
        for other in theirs.with_ancestors():
            if one.parent is other.parent:
                return one, other
    raise AssertionError


def may_reclaim_from(mine: QueueShares, asked: Requested, theirs: QueueShares) -> bool:
    """Rules 30 and 30a."""
    mine, theirs = _compared_siblings(mine, theirs)
    if mine.is_over_quota(_add(mine.allocated, asked)):
        if mine.parent is not None and mine.parent.reclaim_goal == "quota-only":
            return False
        return theirs.is_over_fair_share(theirs.allocated)
    kinds = [kind for kind in _RESOURCES if asked[kind] > 0 and theirs.quota[kind] != -1]
    if any(theirs.allocated[kind] > theirs.quota[kind] for kind in kinds):
        return True
    return all(theirs.allocated[kind] == theirs.quota[kind] for kind in kinds)


def check_victims(
    mine: QueueShares,
    asked: Requested,
    units: Sequence[tuple[QueueShares, Requested]],
) -> tuple[list[bool], bool]:
    """Rules 31 and 32: return whether each eviction unit may be taken, and whether all is fair."""
    left = {queue: list(queue.allocated) for unit, _ in units for queue in unit.with_ancestors()}
    lost: dict[QueueShares, set[int]] = {queue: set() for queue in left}
    may = []
    for theirs, amounts in units:
        one, other = _compared_siblings(mine, theirs)
        is_owed = not one.is_over_quota(_add(one.allocated, asked))
        may.append(
            other.is_over_fair_share(left[other]) or (is_owed and other.is_over_quota(left[other]))
        )
        for queue in theirs.with_ancestors():
            lost[queue] |= {kind for kind in _RESOURCES if amounts[kind]}
            left[queue] = [left[queue][kind] - amounts[kind] for kind in _RESOURCES]
    is_fair = True
    for one in mine.with_ancestors():
        would_have = _add(left.get(one, one.allocated), asked)
        for other, has in left.items():
            if other is one or other.parent is not one.parent or not lost[other]:
                continue
            for kind in {kind for kind in _RESOURCES if asked[kind] > 0} | lost[other]:
                due = one.fair_share[kind]
                part = Fraction(would_have[kind], due) if due else Fraction(10**30)
                if not due and would_have[kind] <= 0:
                    part = Fraction(0)
                theirs_due = other.fair_share[kind]
                if part > 1 and theirs_due and part >= Fraction(has[kind], theirs_due):
                    is_fair = False
    return may, is_fair
