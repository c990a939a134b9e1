"""The entry of the core: runs the actions on a snapshot, and returns the plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.core.actions.allocate import allocate
from scheduler.core.actions.consolidate import ConsolidateAction
from scheduler.core.actions.preempt import PreemptAction
from scheduler.core.actions.reclaim import ReclaimAction
from scheduler.core.actions.stale_gang import StaleGangAction
from scheduler.core.eviction.execute import EvictionSession
from scheduler.core.model.plugins import Policies
from scheduler.core.model.result import Plan, PlanStats
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.queues.fair_share import fair_share
from scheduler.core.session import Session

__all__ = ["PlanLimits", "plan"]


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """How much one plan may do: counts, never seconds, so that slow machines decide the same."""

    evictable_gpus: int | None = None  # thousandths; the last eviction may go beyond it


_EvictionAction: TypeAlias = (
    type[ConsolidateAction] | type[ReclaimAction] | type[PreemptAction] | type[StaleGangAction]
)

_STALE: Final = "stalegangeviction"
_EVICTION_ACTIONS: Final[Mapping[str, _EvictionAction]] = {
    "consolidation": ConsolidateAction,
    "reclaim": ReclaimAction,
    "preempt": PreemptAction,
    _STALE: StaleGangAction,
}


def _ignore(_action: str) -> None:
    """Ignore that an action is over."""


def plan(
    snapshot: Snapshot,
    policies: Policies,
    limits: PlanLimits = PlanLimits(),
    passed: Callable[[str], None] = _ignore,
) -> Plan:
    """Return the plan of a snapshot; the same snapshot always has the same plan.

    *passed* is called with each action when it is over.
    """
    fair_shares = fair_share(snapshot.queues, snapshot.total)
    session = Session(snapshot, policies, fair_shares)
    eviction_session = EvictionSession(session, limits.evictable_gpus)
    unbound_count = 0
    if "allocate" not in policies.actions:  # what fits keeps its room, and evicts no pods
        allocate(session)
        unbound_count = len(session.allocations)
        for one in session.allocations:
            session.rejections.pop(one.podgroup, None)
    for action in policies.actions:
        if action == "allocate":
            allocate(session)
        elif session.rejections or action == _STALE:  # pods are evicted for PodGroups that wait
            _EVICTION_ACTIONS[action](eviction_session).run()
        passed(action)
    allocations = tuple(session.allocations[unbound_count:])
    return Plan(
        allocations=allocations,
        rejections=tuple(
            eviction_session.failures.rejection_of(it)
            for _, it in sorted(session.rejections.items())
        ),
        fair_share=fair_shares,
        stats=PlanStats(len(allocations), len(session.rejections), **eviction_session.stats),
        evictions=tuple(eviction_session.evictions),
        relocations=tuple(eviction_session.relocations),
    )
