"""The slots that gangs hold: whose they are, where they are, and what they keep from others.

They are held only while some of the gang has its place or the promise of one, and only for pods
that have none: a slot whose pod has come to lie somewhere is let go.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from scheduler.core.model import NONE, Cause, NodeFault, Slot
from scheduler.state.gangs import Gang, Gangs
from scheduler.state.headcount import Headcount
from scheduler.state.nodes import NodeRows
from scheduler.state.reserved import SlotAt, read_reserved
from scheduler.state.roll import SUCCEEDED, THERE, Roll
from scheduler.state.shapes import Shapes
from scheduler.state.terms import Stray
from trainer_kai.api.names import RESERVED

__all__ = ["Holdings"]


class _Held(NamedTuple):
    """Of one leaf: in pods of which kin, and where, with why."""

    kin: int
    at: tuple[tuple[int, Cause], ...]


class Holdings:
    """By gang and leaf."""

    def __init__(self, roll: Roll, gangs: Gangs, heads: Headcount, nodes: NodeRows) -> None:
        self._roll: Final = roll
        self._gangs: Final = gangs
        self._heads: Final = heads
        self._nodes: Final = nodes
        self._held: Final[dict[int, dict[str, _Held]]] = {}
        self._texts: Final[list[tuple[Gang, str]]] = []
        self.strays: Final[list[Stray]] = []
        self._kin_of_seat: Final[dict[int, int]] = {}  # the last of each
        self._lying: Final[dict[int, list[int]]] = {}  # by seat: rows of nodes

    def read(self) -> None:
        """Read the annotations of all gangs."""
        for gang in self._heads.listed:
            text = gang.group.metadata.annotations.get(RESERVED, "") if gang.group else ""
            if text:
                self._texts.append((gang, text))
        if self._texts:
            self._read_seats()
        for gang, text in self._texts:
            self._read_one(gang, text)

    def of(self, gang: Gang, leaf: str, shapes: Shapes) -> tuple[Slot, ...]:
        """Return the slots of a leaf."""
        held = self._held.get(gang.number, {}).get(leaf)
        return tuple(Slot(node, shapes.row(held.kin), why) for node, why in held.at) if held else ()

    def texts(self) -> list[tuple[Gang, str]]:
        """Return what the annotations say."""
        return self._texts

    def charges(self) -> Iterator[tuple[Gang, str, int, tuple[int, ...]]]:
        """Yield what is held: for which leaf, in pods of which kin, on which nodes."""
        for gang in self._heads.listed:
            for leaf, held in self._held.get(gang.number, {}).items():
                yield gang, leaf, held.kin, tuple(node for node, _ in held.at)

    def _read_seats(self) -> None:
        """Find who sits where, once for all."""
        seat = self._gangs.seat
        self._kin_of_seat.update(zip(seat.tolist(), range(len(seat)), strict=True))
        seats, at = seat[self._roll.kin], self._roll.node
        is_there = (self._roll.state == THERE) & (seats != NONE) & (at != NONE)
        for one, row in zip(seats[is_there].tolist(), at[is_there].tolist(), strict=True):
            self._lying.setdefault(one, []).append(row)

    def _read_one(self, gang: Gang, text: str) -> None:
        found = read_reserved(text)
        if isinstance(found, str):
            message = f"metadata.annotations[{RESERVED}]: {found}; what was held is let go"
            self.strays.append(Stray(gang.key, message))
            return
        if gang.is_suspended or not gang.is_sound or not self._heads.is_begun(gang):
            return
        for leaf, minimum in gang.minima.items():
            held, kin = found.get(leaf, ()), self._kin(gang, leaf)
            if held and kin != NONE:
                kept = self._kept(gang, leaf, held, minimum)
                at = tuple((self._nodes.row[one.node], one.cause) for one in kept)
                self._held.setdefault(gang.number, {})[leaf] = _Held(kin, at)

    def _kin(self, gang: Gang, leaf: str) -> int:
        """Return of which kin the pods of a leaf will be: as foretold, else as those that came."""
        kin, _ = gang.later.get(leaf, (NONE, 0))
        if kin != NONE or leaf not in gang.seats:
            return kin
        return self._kin_of_seat[gang.seats[leaf]]

    def _kept(self, gang: Gang, leaf: str, held: tuple[SlotAt, ...], minimum: int) -> list[SlotAt]:
        """Return the slots that can still be used, less those that pods have taken by now."""
        _, count = gang.later.get(leaf, (NONE, minimum))
        done = self._heads.of(gang, leaf, THERE) + self._heads.of(gang, leaf, SUCCEEDED)
        kept = [one for one in held if self._is_usable(one.node)]
        surplus = len(kept) - max(count - done, 0)
        rows = self._lying.get(gang.seats.get(leaf, NONE), ()) if surplus > 0 else ()
        lying = Counter(self._nodes.names[row] for row in rows)
        for one in list(kept):
            if surplus > 0 and lying[one.node] > 0:
                lying[one.node] -= 1
                surplus -= 1
                kept.remove(one)
        return kept[: len(kept) - max(surplus, 0)]

    def _is_usable(self, node: str) -> bool:
        """Say whether a slot may stay: who cordons a node wants nobody there, other faults pass."""
        row = self._nodes.row.get(node)
        return row is not None and self._nodes.faults[row] != NodeFault.CORDONED
