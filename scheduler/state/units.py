"""Units: each gang that wants or has something, and each pod that is on its own."""

from bisect import bisect_left, insort
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Bar, Leaf, Pods, PodState, Slot, Unit
from scheduler.state.gang import Gang
from scheduler.state.moments import patient_until, placed_at, since
from scheduler.state.roll import (
    DONE,
    GATED,
    RELEASING,
    STATES,
    STUCK,
    SUCCEEDED,
    THERE,
    WAITING,
    Roll,
)
from scheduler.state.stale import stale_at
from scheduler.state.standing import Standing
from scheduler.state.stays import is_partly_done
from scheduler.state.terms import Terms, epoch_s
from scheduler.state.trees import DEFAULT, tree
from scheduler.state.view import View
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import PREEMPTION_DELAY
from trainer_kai.policy.names import unit_name

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
_MOST_LEAVES: Final = 16  # of whoever is moved
_FEW: Final = 32  # changes that are cheaper one by one than all in one

_Age: TypeAlias = tuple[int, str, Key, int]  # a pod on its own may be called like a group
_Of: TypeAlias = Key | int  # a gang, or the slot of a pod on its own


class _Entry:
    """A unit, and where it stands among the others."""

    __slots__ = ("age", "number", "slot", "unit")

    def __init__(self, age: _Age, unit: Unit, number: int, slot: int) -> None:
        self.age: Final = age
        self.unit = unit
        self.number: Final = number  # of its gang, or NONE
        self.slot: Final = slot  # of a pod on its own, or NONE


class Units:
    """The oldest first; each is made anew only when something that it is made of has changed."""

    def __init__(self, terms: Terms) -> None:
        self._terms: Final = terms
        self._entries: Final[dict[_Of, _Entry]] = {}
        self._line: list[_Entry] = []
        self._gone: Final[list[_Entry]] = []
        self._new: Final[list[_Entry]] = []

    def among(self, slots: NDArray[np.int64]) -> list[int]:
        """Return which of some slots are units."""
        return [slot for slot in slots.tolist() if slot in self._entries]

    def drop(self, of: _Of) -> None:
        """Let something be no unit any more."""
        entry = self._entries.pop(of, None)
        if entry is not None:
            self._gone.append(entry)

    def read_gang(
        self, view: View, gang: Gang, bar: Bar | None, growth: Bar | None = None
    ) -> Unit | None:
        """Make the unit of a gang; *bar* is in its way, *growth* in that of more than it needs."""
        if not gang.is_listed:
            self.drop(gang.key)
            return None

        def plant(name: str, minimum: int) -> Leaf:
            return _leaf(view, gang, name, minimum)

        group, standing = gang.group, view.standings.of_gang(gang)
        delay = group.spec.preemption_delay if group else ""
        unit = Unit(
            name=unit_name(gang.key),
            queue=_queue(view, standing),
            priority=standing.priority,
            is_preemptible=standing.is_preemptible,
            tree=tree(group, plant) if group and gang.is_sound else plant(DEFAULT, 1),
            bar=bar,
            growth_bar=growth,
            is_kept=gang.is_begun and (gang.comes_back or not gang.is_suspended),
            bundle=gang.owner,
            stays=view.stays.of(gang),
            is_moving=gang.is_awaited,
            is_partly_done=is_partly_done(gang),
            stale_at=stale_at(gang, self._terms.staleness_grace_s),
            since=since(gang, view.roll),
            saved=view.stays.saved(gang),
            patient_until=patient_until(group.metadata, delay) if group else 0,
            patience=delay,
            may_move=self._may_move(view, gang, standing.queue),
            can_hold=group is not None,
        )
        age = (*_age_of_gang(gang, view.roll), gang.key, 0)
        self._put(gang.key, _Entry(age, unit, gang.number, NONE))
        return unit

    def read_pod(self, view: View, slot: int, bar: Bar | None) -> None:
        """Make the unit of a pod that has no place in a group; *bar* is in its way."""
        roll, state = view.roll, int(view.roll.state[slot])
        meta, key, kin = roll.pod(slot).metadata, roll.keys[slot], roll.kins[int(roll.kin[slot])]
        is_stray = bool(roll.kins.is_stray[kin.number])
        standing = (view.standings.of_stray if is_stray else view.standings.of_alone)(kin)
        name = Key(key.namespace, f"pg-{key.name}-{meta.uid}")
        waiting = (slot,) if state == WAITING else ()
        delay = meta.annotations.get(PREEMPTION_DELAY, "")  # it tells no kin apart
        leaf = Leaf(DEFAULT, 1, waiting, there=int(state == THERE), gated=int(state == GATED))
        unit = Unit(
            name=unit_name(name),
            queue=_queue(view, standing),
            priority=standing.priority,
            is_preemptible=standing.is_preemptible,
            tree=leaf,
            bar=bar,
            is_kept=state == THERE,
            since=placed_at(roll.pod(slot)) if state == THERE else 0,
            patient_until=patient_until(meta, delay),
            patience=delay,
            can_hold=False,  # there is nothing to write it on
        )
        self._put(slot, _Entry((*_age(meta), name, 1), unit, NONE, slot))

    def _may_move(self, view: View, gang: Gang, queue: str) -> bool:
        """Say whether a gang may be moved; live only TrainJobs are, of queues that say so."""
        said = view.queues.may_move(queue)
        if self._terms.moves_unasked:
            return said is not False
        is_small = len(gang.minima) <= _MOST_LEAVES  # what they are like has to be written
        return said is True and is_small and view.stays.knows(gang)

    def table(self) -> tuple[tuple[Unit, ...], tuple[Key, ...]]:
        """Return the units and their names."""
        self._settle()
        return tuple([it.unit for it in self._line]), tuple([it.age[2] for it in self._line])

    def pods(self, view: View) -> Pods:
        """Return the rows of pods: their slots."""
        roll = view.roll
        unit = self._unit_of(view)[roll.kin * STATES + roll.state]
        slots = np.array([entry.slot for entry in self._line], dtype=np.int64)
        is_alone = slots != NONE
        unit[slots[is_alone]] = np.flatnonzero(is_alone)
        is_row = unit != NONE
        states = np.array([_STATES[state] for state in range(STATES)], dtype=np.int8)
        rows = view.codes.shapes.row_of
        for number in np.flatnonzero(
            np.bincount(roll.kin[is_row], minlength=len(rows)).astype(np.bool_) & (rows == NONE)
        ).tolist():
            view.codes.shapes.row(roll.kins[number])
        shape = np.where(is_row, rows[roll.kin], NONE).astype(np.int32)
        for slot in roll.nominated:
            node = roll.promised(slot)
            if node != NONE and is_row[slot]:
                shape[slot] = view.codes.shapes.promised(roll.kins[int(roll.kin[slot])], node)
        return Pods(
            shape=shape,
            node=np.where(is_row, roll.node, NONE).astype(np.int32),
            unit=unit,
            state=np.where(is_row, states[roll.state], PodState.DONE).astype(np.int8),
        )

    def _put(self, of: _Of, entry: _Entry) -> None:
        known = self._entries.get(of)
        if known is not None and (known.age, known.number) == (entry.age, entry.number):
            known.unit = entry.unit
            return
        self.drop(of)
        self._entries[of] = entry
        self._new.append(entry)

    def _settle(self) -> None:
        """Bring the line in order."""
        if len(self._gone) + len(self._new) > _FEW:
            gone = set(map(id, self._gone))
            kept = [entry for entry in (*self._line, *self._new) if id(entry) not in gone]
            self._line = sorted(kept, key=_place)
        else:
            for entry in self._new:
                insort(self._line, entry, key=_place)
            for entry in self._gone:
                at = bisect_left(self._line, entry.age, key=_place)
                while self._line[at] is not entry:
                    at += 1
                del self._line[at]
        self._gone.clear()
        self._new.clear()

    def _unit_of(self, view: View) -> NDArray[np.int32]:
        """Return the rows of units of gangs: what waits and counts, and whatever is on a node."""
        gangs, kins, size = view.gangs, view.roll.kins, len(view.heads)
        row_of = np.full(len(gangs.is_listed), NONE, dtype=np.int32)  # the last is of no gang
        numbers = np.array([entry.number for entry in self._line], dtype=np.int64)
        is_gang = numbers != NONE
        row_of[numbers[is_gang]] = np.flatnonzero(is_gang)
        gang, state = kins.gang[:size, None], np.arange(STATES)
        is_placed = (state >= THERE) & (state < DONE)
        may_wait = kins.counts[:size, None] & ~(gangs.is_suspended[gang] & (state < THERE))
        found: NDArray[np.int32] = np.where(is_placed | may_wait, row_of[gang], NONE)
        return found.ravel()


def _leaf(view: View, gang: Gang, name: str, minimum: int) -> Leaf:
    later, held = gang.to_come(name), view.holdings.of(gang).get(name)
    shapes = view.codes.shapes
    slots = tuple(Slot(node, shapes.row(held.kin), why) for node, why in held.at) if held else ()
    return Leaf(
        name=name,
        minimum=minimum,
        waiting=gang.waiting(name, view.roll),
        there=gang.of(name, THERE),
        succeeded=gang.of(name, SUCCEEDED),
        slots=slots,
        later=later,
        later_shape=shapes.row(gang.later[name][0]) if later else NONE,
        gated=gang.of(name, GATED),
        pods=gang.there(name, view.roll) if _are_told_apart(gang, name, minimum) else (),
    )


def _are_told_apart(gang: Gang, name: str, minimum: int) -> bool:
    """Say whether some pods may go while others stay, or leaves may differ."""
    if len(gang.minima) > 1:
        return True
    is_flat = gang.group is None or not gang.group.spec.sub_groups
    members = gang.of(name, THERE) + gang.of(name, SUCCEEDED)
    return members > minimum or not (gang.owner or is_flat)


def _queue(view: View, standing: Standing) -> int:
    """Return the row of a queue that takes units."""
    return view.queues.first_of(standing.queue, standing.else_queue)


def _age_of_gang(gang: Gang, roll: Roll) -> tuple[int, str]:
    if gang.group is not None:
        return _age(gang.group.metadata)
    oldest = min((roll.first(kin) for kin in gang.kins), key=roll.age)
    return _age(roll.pod(oldest).metadata)


def _age(meta: Meta) -> tuple[int, str]:
    return epoch_s(meta.creation_timestamp) or 0, meta.uid


def _place(entry: _Entry) -> _Age:
    return entry.age
