"""The action stalegangeviction: gangs below their minimum for too long lose all their pods.

It comes last, and for no preemptor: what it frees is there for the next plan.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from scheduler.core.actions.victim_search import evict_podgroups
from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import PodState, Snapshot
from scheduler.core.session import Session
from trainer_kai.api.scheduler_names import Action


def evict_stale_gangs(session: Session) -> None:
    """Evict stale PodGroups, the oldest first, with all PodGroups of their JobSets.

    Not if pods of them were placed in this plan.
    """
    _StaleGangs(session).evict()


class _StaleGangs:
    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._snapshot: Final = session.snapshot

    def evict(self) -> None:
        allocations = self._session.allocations
        placed = {one.podgroup for one in allocations if one.binds or one.nominations}
        stale = [
            row
            for row in range(len(self._snapshot.podgroups))
            if is_stale(self._snapshot, row) and row not in placed
        ]
        evicted_together = list(dict.fromkeys(self._evicted_together(stale)))
        pods = self._pods_of({row for rows in evicted_together for row in rows})
        for rows in evicted_together:
            if all(_is_evictable(self._snapshot.podgroups[row]) for row in rows):
                running = tuple([pod for row in rows for pod in pods[row]])
                self._evict(rows, running)

    def _evict(self, rows: tuple[int, ...], running: tuple[int, ...]) -> None:
        """Evict PodGroups whole, unless one of them has lost pods before.

        The limit of GPUs does not hold them: it is about reclaiming and preempting too much.
        """
        session = self._session
        if session.evicted.isdisjoint(rows):
            evict_podgroups(session, rows, running, Action.STALE_GANG_EVICTION, NONE)

    def _evicted_together(self, stale: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield each with all PodGroups that are evicted together with it."""
        podgroups = self._snapshot.podgroups
        by_jobset: dict[str, list[int]] = {podgroups[row].owning_jobset: [] for row in stale}
        for row, podgroup in enumerate(podgroups) if stale else ():
            if podgroup.owning_jobset in by_jobset:
                by_jobset[podgroup.owning_jobset].append(row)
        for row in stale:
            owning_jobset = podgroups[row].owning_jobset
            yield tuple(by_jobset[owning_jobset]) if owning_jobset else (row,)

    def _pods_of(self, rows: set[int]) -> dict[int, list[int]]:
        pods = self._snapshot.pods
        by_podgroup: dict[int, list[int]] = {row: [] for row in rows}
        is_there = (pods.state == PodState.RUNNING) & np.isin(pods.podgroup, [*rows])
        for pod in np.flatnonzero(is_there).tolist():
            by_podgroup[int(pods.podgroup[pod])].append(pod)
        return by_podgroup


def is_stale(snapshot: Snapshot, row: int) -> bool:
    """Say whether a PodGroup has lacked members for longer than its grace."""
    stale_at = snapshot.podgroups[row].stale_at
    return stale_at is not None and stale_at <= snapshot.now


def next_stale_at(snapshot: Snapshot) -> int | None:
    """Return when the next grace ends, in seconds since 1970; None if none does."""
    later = (it.stale_at for it in snapshot.podgroups if it.stale_at is not None)
    return min((at for at in later if at > snapshot.now), default=None)


def _is_evictable(podgroup: PodGroupInfo) -> bool:
    """Say whether a PodGroup may be evicted; whether it is preemptible is not checked."""
    return (
        podgroup.queue != NONE
        and not podgroup.non_evictable_reason
        and not podgroup.is_partly_succeeded
    )
