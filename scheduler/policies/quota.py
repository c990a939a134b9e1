"""What a unit may have of its queue and of all queues above.

Limits and quotas are asked from the queue up, and every bound that would be passed is told. A
resource that is not asked for is not looked at, so that a queue above its limit can still start
what needs others.
"""

from typing import Final

from scheduler.core.decision import QuotaNumbers
from scheduler.core.model import KINDS, UNBOUND, Unit, Verdict
from scheduler.core.policy import Refusal
from scheduler.core.usage import Amounts, Usage

__all__ = ["may_borrow", "within_limit", "within_quota"]

_UNBOUND: Final = [UNBOUND] * len(KINDS)


def within_limit(usage: Usage, unit: Unit, asked: Amounts) -> Refusal | None:
    """Refuse what would pass a limit."""
    path = usage.paths[unit.queue]
    numbers = _passed(path, usage.limit, usage.allocated, asked)
    return Refusal(Verdict.EXCEEDS_LIMIT, numbers) if numbers else None


def within_quota(usage: Usage, unit: Unit, asked: Amounts) -> Refusal | None:
    """Refuse a unit that nobody may preempt what would pass a quota."""
    if unit.is_preemptible:
        return None
    numbers = _passed(usage.paths[unit.queue], usage.quota, usage.fixed, asked)
    return Refusal(Verdict.NON_PREEMPTIBLE_OVER_QUOTA, numbers) if numbers else None


def may_borrow(usage: Usage, unit: Unit, asked: Amounts) -> Refusal | None:
    """Refuse more of what a queue has more of than its quota, and cannot give back.

    Who has units that cannot be evicted could otherwise borrow everything, unit by unit.
    """
    queue = unit.queue
    kept = usage.unevictable.get(queue)
    if kept is None:
        return None
    columns = zip(KINDS, usage.quota[queue], usage.fixed[queue], asked, kept.amounts, strict=True)
    numbers = [
        QuotaNumbers(queue, kind, quota, fixed, more, unevictable=kept.units)
        for kind, quota, fixed, more, lasting in columns
        if quota != UNBOUND and more > 0 and lasting and fixed > quota
    ]
    if not numbers:
        return None
    first = numbers[0]._replace(others=tuple(numbers[1:]))
    return Refusal(Verdict.NON_PREEMPTIBLE_OVER_QUOTA, first)


def _passed(
    path: tuple[int, ...], bounds: list[list[int]], has: list[list[int]], asked: Amounts
) -> QuotaNumbers | None:
    """Return the first bound that would be passed, from the queue up, and with it the others."""
    passed: list[QuotaNumbers] = []
    for q in path:
        if bounds[q] == _UNBOUND:
            continue  # asked of every unit, and most queues have no bound
        for kind, bound, before, more in zip(KINDS, bounds[q], has[q], asked, strict=True):
            if bound != UNBOUND and more > 0 and before + more > bound:
                passed.append(QuotaNumbers(q, kind, bound, before, more))
    return passed[0]._replace(others=tuple(passed[1:])) if passed else None
