"""The one question, and the one answer: who gets which room now, and why the others wait."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from scheduler.core.allocate import Allocation
from scheduler.core.consolidate import Consolidate
from scheduler.core.decision import Plan
from scheduler.core.displace import Displacement
from scheduler.core.model import Snapshot
from scheduler.core.policy import Policies
from scheduler.core.preempt import Preempt
from scheduler.core.reclaim import Reclaim
from scheduler.core.share import fair_share
from scheduler.core.stale import Stale

__all__ = ["Limits", "plan"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one plan may do: counts, never seconds, so that slow machines decide the same."""

    evictable_gpus: int | None = None  # thousandths; who begins below it may go beyond it


_Takes: TypeAlias = type[Consolidate] | type[Reclaim] | type[Preempt] | type[Stale]

_TAKES: Final[Mapping[str, _Takes]] = {
    "consolidation": Consolidate,
    "reclaim": Reclaim,
    "preempt": Preempt,
    "stalegangeviction": Stale,
}


def _nobody(_action: str) -> None:
    """Hear that an action is over."""


def plan(
    snapshot: Snapshot,
    policies: Policies,
    limits: Limits = Limits(),
    passed: Callable[[str], None] = _nobody,
) -> Plan:
    """Answer for a snapshot; the same one always has the same answer.

    *passed* is told of each action when it is over.
    """
    due = fair_share(snapshot.queues, snapshot.total)
    allocation = Allocation(snapshot, policies, due)
    displacement = Displacement(allocation, limits.evictable_gpus)
    if "allocate" not in policies.actions:
        allocation.look()
    for action in policies.actions:
        if action == "allocate":
            allocation.run()
        else:
            _TAKES[action](displacement).run()
        passed(action)
    return Plan(
        decisions=tuple(allocation.decided),
        rejections=tuple(
            displacement.vain.told(it) for _, it in sorted(allocation.rejections.items())
        ),
        fair_share=due,
        stats=replace(allocation.stats(), **displacement.stats),
        evictions=tuple(displacement.evictions),
        moves=tuple(displacement.moves),
    )
