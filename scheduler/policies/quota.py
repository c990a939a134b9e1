"""What a unit may have of its queue and of all queues above.

Both rules walk from the queue up, and tell the first bound that would be passed. A resource that is
not asked for is not looked at, so that a queue above its limit can still start what needs others.
"""

from scheduler.core.decision import QuotaNumbers
from scheduler.core.model import KINDS, UNBOUND, Unit, Verdict
from scheduler.core.policy import Refusal
from scheduler.core.usage import Amounts, Usage

__all__ = ["within_limit", "within_quota"]


def within_limit(usage: Usage, unit: Unit, asked: Amounts) -> Refusal | None:
    """Refuse what would pass a limit."""
    for q in usage.paths[unit.queue]:
        bounds, has = usage.limit[q], usage.allocated[q]
        for kind in KINDS:
            bound = bounds[kind]
            if bound != UNBOUND and asked[kind] > 0 and has[kind] + asked[kind] > bound:
                numbers = QuotaNumbers(q, kind, bound, has[kind], asked[kind])
                return Refusal(Verdict.EXCEEDS_LIMIT, numbers)
    return None


def within_quota(usage: Usage, unit: Unit, asked: Amounts) -> Refusal | None:
    """Refuse a unit that nobody may preempt what would pass a quota."""
    if unit.is_preemptible:
        return None
    for q in usage.paths[unit.queue]:
        bounds, has = usage.quota[q], usage.fixed[q]
        for kind in KINDS:
            bound = bounds[kind]
            if bound != UNBOUND and asked[kind] > 0 and has[kind] + asked[kind] > bound:
                numbers = QuotaNumbers(q, kind, bound, has[kind], asked[kind])
                return Refusal(Verdict.NON_PREEMPTIBLE_OVER_QUOTA, numbers)
    return None
