"""Who may take from whom: rules 28 to 32, queue by queue."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

__all__ = ["Asked", "Queue", "comes_into_question", "has_claim", "take_all"]

Asked: TypeAlias = tuple[int, int, int]
_KINDS = range(3)


@dataclass(eq=False)
class Queue:
    """A queue: numbers for CPU, memory and GPU; -1 is no bound."""

    above: "Queue | None"
    quota: Asked
    limit: Asked
    due: Asked
    has: list[int] = field(default_factory=lambda: [0, 0, 0])
    fixed: list[int] = field(default_factory=lambda: [0, 0, 0])
    goal: str = "fair-share"  # of reclaim among those below it

    def way_up(self) -> list["Queue"]:
        """Return it and all above it."""
        return [self, *(self.above.way_up() if self.above else [])]

    def is_over_quota(self, has: Sequence[int]) -> bool:
        """Say whether so much is more than its quota, of anything."""
        return any(self.quota[k] != -1 and has[k] > self.quota[k] for k in _KINDS)

    def is_over_share(self, has: Sequence[int]) -> bool:
        """Say whether so much is more than it may fill, of anything."""
        for kind in _KINDS:
            share = max(self.quota[kind], self.due[kind])
            if self.quota[kind] == -1:
                share = self.limit[kind]
            elif self.limit[kind] != -1:
                share = min(share, self.limit[kind])
            if share != -1 and has[kind] > share:
                return True
        return False


def _plus(has: Sequence[int], asked: Asked) -> list[int]:
    return [has[kind] + asked[kind] for kind in _KINDS]


def has_claim(mine: Queue, asked: Asked, *, is_fixed: bool) -> bool:
    """Rule 28."""
    if any(mine.has[kind] + asked[kind] > mine.due[kind] for kind in _KINDS):
        return False
    return not is_fixed or not any(
        queue.is_over_quota(_plus(queue.fixed, asked)) for queue in mine.way_up()
    )


def _compared(mine: Queue, theirs: Queue) -> tuple[Queue, Queue]:
    """Rule 29."""
    for one in mine.way_up():
        for other in theirs.way_up():
            if one.above is other.above:
                return one, other
    raise AssertionError


def comes_into_question(mine: Queue, asked: Asked, theirs: Queue) -> bool:
    """Rules 30 and 30a."""
    mine, theirs = _compared(mine, theirs)
    if mine.is_over_quota(_plus(mine.has, asked)):
        if mine.above is not None and mine.above.goal == "quota-only":
            return False
        return theirs.is_over_share(theirs.has)
    kinds = [kind for kind in _KINDS if asked[kind] > 0 and theirs.quota[kind] != -1]
    if any(theirs.has[kind] > theirs.quota[kind] for kind in kinds):
        return True
    return all(theirs.has[kind] == theirs.quota[kind] for kind in kinds)


def take_all(
    mine: Queue, asked: Asked, blocks: Sequence[tuple[Queue, Asked]], patience: Fraction
) -> tuple[list[bool], bool]:
    """Rules 31 and 32: return for each block whether it may be taken, and whether all is fair."""
    left = {queue: list(queue.has) for block, _ in blocks for queue in block.way_up()}
    lost: dict[Queue, set[int]] = {queue: set() for queue in left}
    may = []
    for theirs, amounts in blocks:
        one, other = _compared(mine, theirs)
        is_owed = not one.is_over_quota(_plus(one.has, asked))
        may.append(
            other.is_over_share(left[other]) or (is_owed and other.is_over_quota(left[other]))
        )
        for queue in theirs.way_up():
            lost[queue] |= {kind for kind in _KINDS if amounts[kind]}
            left[queue] = [left[queue][kind] - amounts[kind] for kind in _KINDS]
    is_fair = True
    for one in mine.way_up():
        would_have = _plus(left.get(one, one.has), asked)
        for other, has in left.items():
            if other is one or other.above is not one.above or not lost[other]:
                continue
            for kind in {kind for kind in _KINDS if asked[kind] > 0} | lost[other]:
                due = one.due[kind]
                part = Fraction(would_have[kind], due) if due else Fraction(10**30)
                if not due and would_have[kind] <= 0:
                    part = Fraction(0)
                theirs_due = other.due[kind]
                if part > 1 and theirs_due and part * patience >= Fraction(has[kind], theirs_due):
                    is_fair = False
    return may, is_fair
