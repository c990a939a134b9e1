"""The action stalegangeviction: whoever has begun and is short for too long loses all it has.

It comes last and takes nothing for anybody: what it leaves is there for the next plan.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from scheduler.core.decision import Action
from scheduler.core.displace import Displacement
from scheduler.core.model import NONE, PodState, Snapshot, Unit

__all__ = ["Stale", "is_stale"]


class Stale:
    """Whoever is stale, with those that leave together with it."""

    def __init__(self, displacement: Displacement) -> None:
        self._made: Final = displacement
        self._snapshot: Final = displacement.allocation.snapshot

    def run(self) -> None:
        """Evict them, the oldest first; who was given pods' places here has what it needs."""
        decisions = self._made.allocation.admissions
        given = {one.unit for one in decisions if one.binds or one.nominations}
        stale = [
            row
            for row in range(len(self._snapshot.units))
            if is_stale(self._snapshot, row) and row not in given
        ]
        groups = list(dict.fromkeys(self._together(stale)))
        pods = self._pods_of({row for rows in groups for row in rows})
        for rows in groups:
            if all(_may_go(self._snapshot.units[row]) for row in rows):
                there = tuple([pod for row in rows for pod in pods[row]])
                self._made.let_go(rows, there, Action.STALE_GANG_EVICTION)

    def _together(self, stale: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield each with all that leave together with it."""
        units = self._snapshot.units
        of_bundle: dict[str, list[int]] = {units[row].bundle: [] for row in stale}
        for row, unit in enumerate(units) if stale else ():
            if unit.bundle in of_bundle:
                of_bundle[unit.bundle].append(row)
        for row in stale:
            bundle = units[row].bundle
            yield tuple(of_bundle[bundle]) if bundle else (row,)

    def _pods_of(self, rows: set[int]) -> dict[int, list[int]]:
        pods = self._snapshot.pods
        found: dict[int, list[int]] = {row: [] for row in rows}
        is_there = (pods.state == PodState.THERE) & np.isin(pods.unit, [*rows])
        for pod in np.flatnonzero(is_there).tolist():
            found[int(pods.unit[pod])].append(pod)
        return found


def is_stale(snapshot: Snapshot, row: int) -> bool:
    """Say whether a unit has been short for too long."""
    stale_at = snapshot.units[row].stale_at
    return stale_at is not None and stale_at <= snapshot.now


def _may_go(unit: Unit) -> bool:
    """Say whether a unit may be evicted; whether it may be preempted is not asked."""
    return unit.queue != NONE and not unit.stays and not unit.is_partly_done
