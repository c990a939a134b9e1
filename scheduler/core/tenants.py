"""What units have on nodes, and in which blocks they could lose it.

A bundle has one block: all that its units have. Any other unit has one for each step by which it
can shrink, and at last one of all it has. Who loses that has lost the others with it, and who loses
a child of a group what that could spare: blocks are *inside* others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.budgets import Disruptions
from scheduler.core.chunks import chunk, standing
from scheduler.core.line import Block
from scheduler.core.model import (
    NONE,
    Group,
    Leaf,
    PodState,
    Shape,
    Snapshot,
    Tree,
    Unit,
    leaves_of,
)
from scheduler.core.order import UnitKeyOf
from scheduler.core.shrink import steps
from scheduler.core.usage import Amounts, charged

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
        self,
        snapshot: Snapshot,
        spared: Collection[int],
        key_of: KeyOf,
        disruptions: Disruptions,
        *,
        shrink: bool = True,
    ) -> None:
        """Look at all units but those that are spared; unless they *shrink* each is one block."""
        self._shrink: Final = shrink
        self.blocks: Final[list[Block]] = []
        self.members: Final[list[Collection[Member]]] = []
        self._left: Final[dict[int, dict[Member, None]]] = {}  # members, where some are inside
        self._around: Final[dict[int, int]] = {}  # the next block that others are inside
        self._inside: Final[dict[int, set[int]]] = {}
        self._totals: Final[list[Amounts]] = []  # of all members
        self.units: Final[list[Rows]] = []
        self.is_whole: Final[list[bool]] = []
        self.partly_done: Final[set[int]] = set()  # blocks of which a unit is
        self._of: Final[dict[int, list[int]]] = {}  # blocks by unit
        self.disruptions: Final = disruptions
        self._barred: tuple[int, dict[int, list[int]]] = NONE, {}
        self._snapshot: Final = snapshot
        self._key_of: Final = key_of
        self._of_unit: Final = members_of(snapshot)
        for rows in movable(snapshot.units, spared):
            self._add(rows)

    @property
    def barred(self) -> dict[int, list[int]]:
        """Return the blocks that cannot go at all, and the budgets that forbid it."""
        if self._barred[0] != self.disruptions.lost:
            pods = ((member.pod for member in members) for members in self.members)
            self._barred = self.disruptions.lost, self.disruptions.barred(pods)
        return self._barred[1]

    def amounts(self, block: int, members: Collection[Member]) -> Amounts:
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
        if self.is_whole[block]:
            gone = blocks.copy()
            blocks.clear()
            return gone
        gone = [*self._all_inside(block)]
        around = block
        if block in self._around:
            self._inside[self._around[block]].remove(block)
        while (around := self._around.get(around, NONE)) != NONE:
            self._cut(around, block)
            if not self._left[around]:
                gone.append(around)
        for one in gone:
            blocks.remove(one)
        return gone

    def _all_inside(self, block: int) -> Iterator[int]:
        """Yield a block, and those inside that are still there."""
        yield block
        for one in self._inside.get(block, ()):
            yield from self._all_inside(one)

    def _cut(self, around: int, step: int) -> None:
        """Let a block have less, of which a step is lost."""
        for member in self.members[step]:
            del self._left[around][member]
        cpu, memory, gpu = self._totals[around]
        less = self._totals[step]
        self._totals[around] = cpu - less[0], memory - less[1], gpu - less[2]

    def _add(self, rows: Rows) -> None:
        found = tuple([member for row in rows for member in self._of_unit(row)])
        if not found:
            return
        first = rows[0]
        unit = self._snapshot.units[first]
        at = standing(unit.tree)
        may_shrink = self._shrink and not unit.bundle and (at > 0 or isinstance(unit.tree, Group))
        steps = list(_steps(unit, found)) if may_shrink else []
        key = min([self._key_of(row, min(at, 0) if steps else at) for row in rows])
        whole = len(self.blocks)
        blocks = [*range(whole, whole + len(steps) + 1)]
        self._of.update(dict.fromkeys(rows, blocks))
        if not steps:
            self._put(rows, key, found, is_whole=True)
            return
        spared = {it for lost in steps for it in lost}
        self._put(rows, key, [it for it in found if it not in spared], is_whole=True)
        key = self._key_of(first, 1)
        for lost in reversed(_beyond(steps)):  # in line the last one is the first
            self._put(rows, key, lost, is_whole=False)
        self._enclose([*reversed(blocks)], [*steps, found])

    def _enclose(self, blocks: Sequence[int], having: Sequence[Members]) -> None:
        """Let blocks have what others have, that are inside: of these each is before it."""
        last: dict[Member, int] = {}  # the last block that has it
        for block, members in zip(blocks, having, strict=True):
            inside = {last[it]: None for it in members if it in last}
            last.update(dict.fromkeys(members, block))
            if not inside:
                continue
            self._around.update(dict.fromkeys(inside, block))
            self._inside[block] = {*inside}
            self.members[block] = self._left[block] = dict.fromkeys(members)
            self._totals[block] = amounts_of(self._snapshot.shapes, members)

    def _put(
        self, rows: Rows, key: UnitKeyOf, members: Collection[Member], *, is_whole: bool
    ) -> None:
        amounts, units = amounts_of(self._snapshot.shapes, members), self._snapshot.units
        most = max([units[row].priority for row in rows])
        is_plain = not is_whole or _is_plain(units[rows[0]])
        asks = (amounts,) if is_plain else tuple(map(self._asks, filter(self._of_unit, rows)))
        first = units[rows[0]]
        self.blocks.append(Block(first.queue, key, amounts, most, asks, bool(first.bundle)))
        self._totals.append(amounts)
        self.members.append(members)
        self.units.append(rows)
        self.is_whole.append(is_whole)
        if any(units[row].is_partly_done for row in rows):
            self.partly_done.add(len(self.blocks) - 1)

    def _asks(self, row: int) -> Amounts:
        """Return what a unit would ask for first of what it has; or else what it cannot spare."""
        unit, snapshot = self._snapshot.units[row], self._snapshot
        tree, found = unit.tree, self._of_unit(row)
        if next(steps(tree), None) is None:
            return amounts_of(snapshot.shapes, found)
        some = chunk(_without(tree))
        if not some:
            spared = {member for lost in _steps(unit, found) for member in lost}
            return amounts_of(snapshot.shapes, [it for it in found if it not in spared])
        shape_of = snapshot.pods.shape
        asked = [(int(shape_of[pod]), 1) for part in some for pod in part.pods]
        asked += [(part.leaf.later_shape, part.later) for part in some if part.later]
        return charged(snapshot.shapes, asked)


def _is_plain(unit: Unit) -> bool:
    """Say whether what a unit keeps to the last is what it would ask for first."""
    return not unit.bundle and isinstance(unit.tree, Leaf) and not unit.tree.slots


def _without(tree: Tree) -> Tree:
    """Return a unit as it is without a place for any of its pods, as if no others waited."""
    if isinstance(tree, Leaf):
        return replace(tree, waiting=tree.pods, there=0, slots=(), pods=())
    return replace(tree, children=tuple(map(_without, tree.children)))


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


def _steps(unit: Unit, members: Iterable[Member]) -> Iterator[Members]:
    """Yield what a unit loses step by step, before it loses all: slots alone nobody keeps."""
    by_pod = {member.pod: member for member in members}
    left = {pod for pod in by_pod if pod >= 0}
    has_slots = len(left) < len(by_pod)
    for pods in steps(unit.tree):
        left.difference_update(pods)
        if has_slots and not left:
            return
        yield tuple([by_pod[pod] for pod in pods])


def _beyond(steps: Iterable[Members]) -> list[Members]:
    """Return what is lost by each of some steps that was not by one before it."""
    lost: set[Member] = set()
    found = []
    for members in steps:
        found.append(tuple([it for it in members if it not in lost]))
        lost.update(members)
    return found


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
        there, tree = found[begins[unit] : begins[unit + 1]], units[unit].tree
        for leaf in (tree,) if isinstance(tree, Leaf) else leaves_of(tree):
            if leaf.slots:
                there += [Member(-next(slots), it.node, it.shape) for it in leaf.slots]
        return tuple(there)

    return members
