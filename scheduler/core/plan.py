"""The entry of the core: runs the actions on a snapshot, and returns the plan."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.core.actions.allocate import allocate
from scheduler.core.actions.consolidate import consolidate
from scheduler.core.actions.drain import drain_queues
from scheduler.core.actions.leave_nodes import leave_nodes
from scheduler.core.actions.line import line_changes, line_note, with_line_notes
from scheduler.core.actions.reclaim_preempt import preempt, reclaim
from scheduler.core.actions.stale_gang import evict_stale_gangs
from scheduler.core.eviction.failures import explained
from scheduler.core.model.line import LineNote
from scheduler.core.model.rejections import CheckedRemedy, Rejection
from scheduler.core.model.result import Plan, PlanStats, Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.remedies import checked_remedies
from scheduler.core.session import Session
from trainer_kai.api.scheduler_names import Action


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """How much one plan may do: counts, never seconds, so that slow machines decide the same."""

    evictable_gpus: int | None = None  # thousandths; the last eviction may go beyond it
    # Remedies that are checked by an attempt; what earlier plans found, the longest known first.
    remedy_checks: int = 32
    remedies: Mapping[int, CheckedRemedy] = field(default_factory=dict)


_ACTIONS: Final[Mapping[Action, Callable[[Session], None]]] = {
    Action.ALLOCATE: allocate,
    Action.CONSOLIDATION: consolidate,
    Action.RECLAIM: reclaim,
    Action.PREEMPT: preempt,
    Action.STALE_GANG_EVICTION: evict_stale_gangs,
}
# The others evict for PodGroups that wait.
_ALWAYS: Final = (Action.ALLOCATE, Action.STALE_GANG_EVICTION)


def plan(
    snapshot: Snapshot,
    policies: Policies,
    limits: PlanLimits = PlanLimits(),
    passed: Callable[[str], None] = lambda _action: None,
) -> Plan:
    """Return the plan of a snapshot; *passed* is called with each action when it is over."""
    session = Session(snapshot, policies, limits.evictable_gpus)
    unbound_count = 0
    leave_nodes(session)
    if Action.ALLOCATE not in policies.actions:  # what fits is placed and not bound
        allocate(session)
        unbound_count = len(session.allocations)
        for one in session.allocations:
            session.rejections.pop(one.podgroup, None)
    for action in policies.actions:
        if session.rejections or action in _ALWAYS:
            _ACTIONS[action](session)
        passed(action)
    drain_queues(session)
    return _result(session, unbound_count, limits)


def _result(session: Session, unbound_count: int, limits: PlanLimits) -> Plan:
    allocations = tuple(session.allocations[unbound_count:])
    note = line_note(session)
    changes, line_at = line_changes(session)
    remedies = checked_remedies(session, limits.remedies, limits.remedy_checks)
    rejections = tuple(_with_notes(session, note, remedies))
    withheld = sum(it.eviction_failure.is_rate_limited for it in rejections)
    return Plan(
        allocations=allocations,
        rejections=rejections,
        fair_share=session.fair_shares,
        stats=PlanStats(len(allocations), len(rejections), withheld=withheld, **session.stats),
        evictions=tuple(session.evictions),
        relocations=tuple(session.relocations),
        line=changes,
        line_note=note,
        line_at=line_at,
        remedies=remedies,
    )


def _with_notes(
    session: Session, note: LineNote | None, remedies: Mapping[int, CheckedRemedy]
) -> Iterator[Rejection]:
    """Yield the rejections with all that is known when the plan is over."""
    podgroups, policies = session.snapshot.podgroups, session.policies
    rejections = explained(session.rejections, session.failures, podgroups, policies)
    for it in with_line_notes(session, note, rejections):
        remedy = remedies.get(it.podgroup)
        yield it if remedy is None else replace(it, also_needed=remedy.also_needed)
