"""Units: each gang that wants or has something, and each pod that is on its own."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Ints, Leaf, Pods, PodState, Unit
from scheduler.state.bars import Bars
from scheduler.state.gangs import Gang, Gangs
from scheduler.state.headcount import Headcount
from scheduler.state.holdings import Holdings
from scheduler.state.queues import QueueRows
from scheduler.state.roll import (
    DONE,
    GATED,
    RELEASING,
    STUCK,
    SUCCEEDED,
    THERE,
    WAITING,
    Roll,
)
from scheduler.state.shapes import Shapes
from scheduler.state.standing import Standing, Standings
from scheduler.state.terms import epoch_s
from scheduler.state.trees import DEFAULT, tree
from trainer_kai.api.meta import Key, Meta

__all__ = ["Units"]

_STATES: Final = {
    WAITING: PodState.WAITING,
    GATED: PodState.GATED,
    THERE: PodState.THERE,
    RELEASING: PodState.RELEASING,
    STUCK: PodState.STUCK,
    DONE: PodState.DONE,
    SUCCEEDED: PodState.DONE,
}


class _Entry(NamedTuple):
    """A unit, and where it stands among the others."""

    age: tuple[int, str, Key]
    unit: Unit
    gang: int  # or NONE
    pod: int  # row of a pod on its own, or NONE


@dataclass(frozen=True)
class Units:
    """What units are made of."""

    roll: Roll
    gangs: Gangs
    heads: Headcount
    standings: Standings
    bars: Bars
    queues: QueueRows
    shapes: Shapes
    holdings: Holdings

    def table(self) -> tuple[tuple[Unit, ...], tuple[Key, ...], Pods]:
        """Return the units, oldest first, their names, and the rows of their pods."""
        entries = [self._of_gang(gang) for gang in self.heads.listed]
        is_alone = self.gangs.is_alone[self.roll.kin] & self.heads.is_row
        entries += [self._of_pod(number) for number in np.flatnonzero(is_alone).tolist()]
        entries.sort(key=lambda entry: entry.age)
        units = tuple(entry.unit for entry in entries)
        return units, tuple(entry.age[2] for entry in entries), self._pods(entries)

    def _of_gang(self, gang: Gang) -> _Entry:
        def plant(name: str, minimum: int) -> Leaf:
            return self._leaf(gang, name, minimum)

        group = gang.group
        whole = tree(group, plant) if group and gang.is_sound else plant(DEFAULT, 1)
        bar = self.bars.of_gang(gang)
        unit = Unit(
            name=str(gang.key),
            queue=self._queue(self.standings.of_gang(gang)),
            priority=self.standings.of_gang(gang).priority,
            is_preemptible=self.standings.of_gang(gang).is_preemptible,
            tree=whole,
            bar=bar,
            is_kept=self.heads.is_begun(gang) and not gang.is_suspended,
        )
        return _Entry(self._age(gang), unit, gang.number, NONE)

    def _leaf(self, gang: Gang, name: str, minimum: int) -> Leaf:
        kin, _ = gang.later.get(name, (NONE, 0))
        later = self.heads.later(gang, name)
        return Leaf(
            name=name,
            minimum=minimum,
            waiting=self.heads.waiting(gang, name),
            there=self.heads.of(gang, name, THERE),
            succeeded=self.heads.of(gang, name, SUCCEEDED),
            slots=self.holdings.of(gang, name, self.shapes),
            later=later,
            later_shape=self.shapes.row(kin) if kin != NONE and later else NONE,
            gated=self.heads.of(gang, name, GATED),
        )

    def _age(self, gang: Gang) -> tuple[int, str, Key]:
        if gang.group is not None:
            return _age(gang.group.metadata, gang.key)
        first = self.roll.kins[gang.kins[0]].pod.metadata
        return _age(first, gang.key)

    def _of_pod(self, number: int) -> _Entry:
        kin = int(self.roll.kin[number])
        standing = self.standings.of_alone(kin)
        meta = self.roll.pods[number].metadata
        key = self.roll.keys[number]
        name = Key(key.namespace, f"pg-{key.name}-{meta.uid}")
        row = int(self.heads.row_of[number])
        state = int(self.roll.state[number])
        unit = Unit(
            name=str(name),
            queue=self._queue(standing),
            priority=standing.priority,
            is_preemptible=standing.is_preemptible,
            tree=Leaf(
                DEFAULT,
                1,
                waiting=(row,) if state == WAITING else (),
                there=int(state == THERE),
                gated=int(state == GATED),
            ),
            bar=self.bars.of_alone(kin),
            is_kept=state == THERE,
        )
        return _Entry(_age(meta, name), unit, NONE, row)

    def _queue(self, standing: Standing) -> int:
        """Return the row of a queue that takes units."""
        if self.queues.bar(standing.queue) is not None:
            return NONE
        return self.queues.row_of(standing.queue)

    def _pods(self, entries: list[_Entry]) -> Pods:
        unit_of_gang = np.full(len(self.gangs.gangs) + 1, NONE, dtype=np.int32)
        for row, entry in enumerate(entries):
            if entry.gang != NONE:
                unit_of_gang[entry.gang] = row
        numbers = self.heads.rows
        kins = self.roll.kin[numbers]
        unit = unit_of_gang[self.gangs.gang[kins]]
        for row, entry in enumerate(entries):
            if entry.pod != NONE:
                unit[entry.pod] = row
        states = np.array([_STATES[state] for state in range(len(_STATES))], dtype=np.int8)
        return Pods(
            shape=self._shape_rows(kins),
            node=self.roll.node[numbers].astype(np.int32),
            unit=unit,
            state=states[self.roll.state[numbers]],
        )

    def _shape_rows(self, kins: Ints) -> NDArray[np.int32]:
        first, at = np.unique(kins, return_inverse=True)
        rows = np.array([self.shapes.row(kin) for kin in first.tolist()], dtype=np.int32)
        shape = rows[at] if len(rows) else np.zeros(0, dtype=np.int32)
        for number, node in self.roll.nominated.items():
            if self.heads.is_row[number]:
                kin = int(self.roll.kin[number])
                shape[self.heads.row_of[number]] = self.shapes.row(kin, node)
        return shape


def _age(meta: Meta, key: Key) -> tuple[int, str, Key]:
    return epoch_s(meta.creation_timestamp) or 0, meta.uid, key
