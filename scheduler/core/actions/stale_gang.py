"""The action stalegangeviction: gangs below their minimum for too long lose all their pods.

It comes last, and for no preemptor: what it frees is there for the next plan.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from scheduler.core.actions.victim_search import evict_podgroups
from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import PodState, Snapshot
from scheduler.core.session import Session
from trainer_kai.api.scheduler_names import Action


def evict_stale_gangs(session: Session) -> None:
    """Evict stale PodGroups, the oldest first, each with all PodGroups of its workload.

    Not if pods of them were placed or evicted in this plan. The limit of GPUs does not hold them:
    it is about reclaiming and preempting too much.
    """
    rows = range(len(session.snapshot.podgroups))
    stale = [row for row in rows if is_stale(session.snapshot, row)]
    evict_whole(session, stale, Action.STALE_GANG_EVICTION)


def evict_whole(
    session: Session,
    rows: Sequence[int],
    action: Action,
    is_allowed: Callable[[tuple[int, ...], tuple[int, ...]], bool] = lambda _rows, _pods: True,
) -> None:
    """Evict PodGroups for no preemptor, each with all PodGroups of its workload.

    *is_allowed* is asked for each set of PodGroups, with its pods.
    """
    snapshot = session.snapshot
    placed = {one.podgroup for one in session.allocations if one.binds or one.nominations}
    chosen = [row for row in rows if row not in placed]
    evicted_together = [*dict.fromkeys(_evicted_together(snapshot.podgroups, chosen))]
    pods = _running_pods(snapshot, {row for together in evicted_together for row in together})
    for together in evicted_together:
        if session.evicted.isdisjoint(together) and all(
            _is_evictable(snapshot.podgroups[row]) for row in together
        ):
            running = tuple([pod for row in together for pod in pods[row]])
            if is_allowed(together, running):
                evict_podgroups(session, together, running, action, NONE)


def _evicted_together(
    podgroups: Sequence[PodGroupInfo], stale: list[int]
) -> Iterator[tuple[int, ...]]:
    by_workload: dict[str, list[int]] = {podgroups[row].workload: [] for row in stale}
    for row, podgroup in enumerate(podgroups) if stale else ():
        if podgroup.workload in by_workload:
            by_workload[podgroup.workload].append(row)
    for row in stale:
        workload = podgroups[row].workload
        yield tuple(by_workload[workload]) if workload else (row,)


def _running_pods(snapshot: Snapshot, rows: set[int]) -> dict[int, list[int]]:
    pods = snapshot.pods
    by_podgroup: dict[int, list[int]] = {row: [] for row in rows}
    is_there = (pods.state == PodState.RUNNING) & np.isin(pods.podgroup, [*rows])
    for pod in np.flatnonzero(is_there).tolist():
        by_podgroup[int(pods.podgroup[pod])].append(pod)
    return by_podgroup


def is_stale(snapshot: Snapshot, row: int) -> bool:
    stale_at = snapshot.podgroups[row].stale_at
    return stale_at is not None and stale_at <= snapshot.now


def next_stale_at(snapshot: Snapshot) -> int | None:
    """Return when the next grace ends, in seconds since 1970; None if none does."""
    later = (it.stale_at for it in snapshot.podgroups if it.stale_at is not None)
    return min((at for at in later if at > snapshot.now), default=None)


def _is_evictable(podgroup: PodGroupInfo) -> bool:
    """Whether a PodGroup is preemptible is not asked: a stale gang does no work."""
    return (
        podgroup.queue != NONE
        and not podgroup.non_evictable_reason
        and not podgroup.is_partly_succeeded
    )
