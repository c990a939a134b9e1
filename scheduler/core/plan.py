"""The one question, and the one answer: who gets which room now, and why the others wait."""

from dataclasses import dataclass

from scheduler.core.allocate import Allocation
from scheduler.core.decision import Plan
from scheduler.core.model import Snapshot
from scheduler.core.policy import Policies
from scheduler.core.share import fair_share

__all__ = ["Limits", "plan"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one plan may do: counts, never seconds, so that slow machines decide the same."""

    max_units: int | None = None  # to try


def plan(snapshot: Snapshot, policies: Policies, limits: Limits = Limits()) -> Plan:
    """Answer for a snapshot; the same one always has the same answer."""
    due = fair_share(snapshot.queues, snapshot.total, policies.past_use)
    allocation = Allocation(snapshot, policies, due)
    if "allocate" in policies.actions:
        allocation.run(limits.max_units)
    return Plan(
        decisions=tuple(allocation.admissions),
        rejections=tuple(sorted(allocation.rejections.values(), key=lambda it: it.unit)),
        fair_share=due,
        stats=allocation.stats(),
    )
