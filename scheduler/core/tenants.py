"""What units have on nodes, and in which blocks they could lose it.

A bundle has one block: all that its units have. Any other unit has one for each step by which it
can shrink, and at last one of all it has: who loses that has lost the others with it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.chunks import Progress, shed, standing
from scheduler.core.line import Block
from scheduler.core.model import NONE, Group, PodState, Shape, Snapshot, Unit, leaves_of
from scheduler.core.order import UnitKeyOf
from scheduler.core.usage import Amounts

__all__ = ["Member", "Tenants", "amounts_of", "could_lose", "members_of", "movable"]

Rows: TypeAlias = tuple[int, ...]
KeyOf: TypeAlias = Callable[[int, int], UnitKeyOf]  # of a unit and how it stands


class Member(NamedTuple):
    """A pod that is there, or a slot that is held."""

    pod: int  # below zero: a slot
    node: int  # or NONE: on one that nobody knows
    shape: int


Members: TypeAlias = tuple[Member, ...]


class Tenants:
    """Those that could lose something, by rows of blocks."""

    def __init__(
        self, snapshot: Snapshot, spared: Collection[int], key_of: KeyOf, *, shrink: bool = True
    ) -> None:
        """Look at all units but those that are spared; unless they *shrink* each is one block."""
        self._shrink: Final = shrink
        self.blocks: Final[list[Block]] = []
        self.members: Final[list[Members]] = []
        self._totals: Final[list[Amounts]] = []  # of all members
        self.units: Final[list[Rows]] = []
        self.is_whole: Final[list[bool]] = []
        self._of: Final[dict[int, list[int]]] = {}  # blocks by unit
        self._snapshot: Final = snapshot
        self._key_of: Final = key_of
        self._of_unit: Final = members_of(snapshot)
        for rows in movable(snapshot.units, spared):
            self._add(rows)

    def amounts(self, block: int, members: Sequence[Member]) -> Amounts:
        """Return what some or all members of a block are charged for."""
        if len(members) == len(self.members[block]):
            return self._totals[block]
        return amounts_of(self._snapshot.shapes, members)

    def spare(self, unit: int) -> list[int]:
        """Let a unit keep what it has; return the blocks that are no more."""
        blocks = self._of.get(unit, [])
        gone = blocks.copy()
        blocks.clear()
        return gone

    def lose(self, block: int) -> list[int]:
        """Take away what a block has; return the blocks that are no more."""
        blocks = self._of[self.units[block][0]]
        gone = blocks.copy() if self.is_whole[block] else [block]
        if not self.is_whole[block]:
            lost, whole = self.members[block], blocks[0]
            self.members[whole] = tuple([it for it in self.members[whole] if it not in lost])
            self._totals[whole] = amounts_of(self._snapshot.shapes, self.members[whole])
        for one in gone:
            blocks.remove(one)
        return gone

    def _add(self, rows: Rows) -> None:
        found = tuple([member for row in rows for member in self._of_unit(row)])
        if not found:
            return
        first = rows[0]
        unit = self._snapshot.units[first]
        at, rest = standing(unit.tree), found
        may_shrink = self._shrink and not unit.bundle and (at > 0 or isinstance(unit.tree, Group))
        steps = list(_steps(unit, found)) if may_shrink else []
        for lost in steps:
            rest = tuple([it for it in rest if it not in lost])
        key = min([self._key_of(row, 0 if steps else at) for row in rows])
        blocks = [len(self.blocks) + i for i in range(len(steps) + 1)]
        self._of.update(dict.fromkeys(rows, blocks))
        self._put(rows, key, rest, found)
        self.is_whole[-1] = True
        for lost in reversed(steps):  # in line the last one is the first
            self._put(rows, self._key_of(first, 1), lost, lost)

    def _put(self, rows: Rows, key: UnitKeyOf, more: Members, members: Members) -> None:
        amounts = amounts_of(self._snapshot.shapes, more)
        self.blocks.append(Block(self._snapshot.units[rows[0]].queue, key, amounts))
        total = amounts if more is members else amounts_of(self._snapshot.shapes, members)
        self._totals.append(total)
        self.members.append(members)
        self.units.append(rows)
        self.is_whole.append(False)


def movable(units: Sequence[Unit], spared: Collection[int]) -> Iterator[Rows]:
    """Yield the units from which something may be taken, those of a bundle together."""
    bundles: dict[str, list[int]] = {}
    for row, unit in enumerate(units):
        if unit.bundle:
            bundles.setdefault(unit.bundle, []).append(row)
        elif row not in spared and could_lose(unit):
            yield (row,)
    for rows in bundles.values():
        queues = {units[row].queue for row in rows}
        if len(queues) == 1 and all(row not in spared and could_lose(units[row]) for row in rows):
            yield tuple(rows)


def could_lose(unit: Unit) -> bool:
    """Say whether anything may be taken from a unit."""
    return unit.is_preemptible and unit.queue != NONE and not unit.stays


def amounts_of(shapes: Sequence[Shape], members: Iterable[Member]) -> Amounts:
    """Return what members are charged for."""
    cpu = memory = gpu = 0
    for member in members:
        counted = shapes[member.shape].counted
        cpu, memory, gpu = cpu + counted[0], memory + counted[1], gpu + counted[2]
    return cpu, memory, gpu


def _steps(unit: Unit, members: Members) -> Iterator[Members]:
    """Yield what a unit loses step by step, before it loses all."""
    by_pod = {member.pod: member for member in members}
    leaf_of = {pod: leaf.name for leaf in leaves_of(unit.tree) for pod in leaf.pods}
    lost = Progress()
    while pods := shed(unit.tree, lost):
        for pod in pods:
            name = leaf_of[pod]
            lost.pods[name] = lost.pods.get(name, 0) - 1
        yield tuple([by_pod[pod] for pod in pods])


def members_of(snapshot: Snapshot) -> Callable[[int], Members]:
    """Return what finds the members of a unit."""
    pods, units = snapshot.pods, snapshot.units
    is_there = (pods.state == PodState.THERE) & (pods.unit != NONE)
    rows = np.flatnonzero(is_there)
    rows = rows[np.argsort(pods.unit[rows], kind="stable")]
    begins = np.searchsorted(pods.unit[rows], np.arange(len(units) + 1)).tolist()
    found = list(map(Member, rows.tolist(), pods.node[rows].tolist(), pods.shape[rows].tolist()))

    slots = count(1)

    def members(unit: int) -> Members:
        held = [
            Member(-next(slots), slot.node, slot.shape)
            for leaf in leaves_of(units[unit].tree)
            for slot in leaf.slots
        ]
        return (*found[begins[unit] : begins[unit + 1]], *held)

    return members
