"""The slots that gangs hold: whose they are, where they are, and what they keep from others.

They are held only while some of the gang has its place or the promise of one, and only for pods
that have none: a slot whose pod has come to lie somewhere is let go.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from scheduler.core.model import NONE, Cause, NodeFault
from scheduler.state.gang import Gang
from scheduler.state.kin import Kin
from scheduler.state.nodes import NodeRows
from scheduler.state.reserved import SlotAt, read_reserved
from scheduler.state.roll import DONE, SUCCEEDED, THERE, Roll
from scheduler.state.terms import Stray
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED

__all__ = ["Held", "Holdings"]


class Held(NamedTuple):
    """Of one leaf: in pods of which kin, and where, with why."""

    kin: Kin
    at: tuple[tuple[int, Cause], ...]  # rows of nodes


class Holdings:
    """By gang and leaf."""

    def __init__(self, roll: Roll, nodes: NodeRows) -> None:
        self._roll: Final = roll
        self._nodes: Final = nodes
        self.by_gang: Final[dict[Key, dict[str, Held]]] = {}
        self.texts: Final[dict[Key, str]] = {}  # what the annotations say
        self._strays: Final[dict[Key, Stray]] = {}

    @property
    def strays(self) -> list[Stray]:
        """Return the annotations that cannot be read."""
        return [*self._strays.values()]

    def of(self, gang: Gang) -> dict[str, Held]:
        """Return the slots of a gang, by leaf."""
        return self.by_gang.get(gang.key, {})

    def read(self, key: Key, gang: Gang | None) -> set[int]:
        """Read what a gang holds now; return the nodes where it holds something, or held."""
        self.texts.pop(key, None)
        self._strays.pop(key, None)
        before = self.by_gang.pop(key, {})
        if gang is not None and gang.is_listed and gang.group is not None:
            text = gang.group.metadata.annotations.get(RESERVED, "")
            if text:
                self.texts[key] = text
                held = self._read_one(gang, text)
                if held:
                    self.by_gang[key] = held
        both = (*before.values(), *self.by_gang.get(key, {}).values())
        return {row for held in both for row, _ in held.at}

    def at_nodes(self) -> Counter[tuple[int, int]]:
        """Return how many slots there are, by kin and node."""
        return Counter(
            (held.kin.number, row)
            for leaves in self.by_gang.values()
            for held in leaves.values()
            for row, _ in held.at
        )

    def _read_one(self, gang: Gang, text: str) -> dict[str, Held]:
        found = read_reserved(text)
        if isinstance(found, str):
            fault = f"metadata.annotations[{RESERVED}]: {found}; what was held is let go"
            self._strays[gang.key] = Stray(gang.key, f"PodGroup {gang.key}: {fault}")
            return {}
        if not gang.is_sound or not gang.is_begun:
            return {}
        if gang.is_suspended and not gang.comes_back:
            return {}
        back = gang.coming_back
        found = {leaf: it for leaf, it in found.items() if leaf in back or not _is_moved(it)}
        kept: dict[str, Held] = {}
        for leaf, minimum in gang.minima.items():
            held, kin = found.get(leaf, ()), self._kin(gang, leaf)
            if held and kin is not None:
                at = self._kept(gang, leaf, held, minimum)
                kept[leaf] = Held(kin, tuple((self._nodes.row[one.node], one.cause) for one in at))
        return kept

    def _kin(self, gang: Gang, leaf: str) -> Kin | None:
        """Return of which kin the pods of a leaf will be: as foretold, else as the last of them."""
        if leaf in gang.later:
            return gang.later[leaf][0]
        kins = gang.leaves.get(leaf, ())
        return max(kins, key=lambda kin: self._roll.age(self._roll.first(kin)), default=None)

    def _kept(self, gang: Gang, leaf: str, held: tuple[SlotAt, ...], minimum: int) -> list[SlotAt]:
        """Return the slots that can still be used, less those that pods have taken by now."""
        count = gang.later[leaf][1] if leaf in gang.later else minimum
        if _is_moved(held):  # what can be spared was moved as well
            count = max(count, sum(gang.of(leaf, one) for one in (*range(DONE), SUCCEEDED)))
        done = gang.of(leaf, THERE) + gang.of(leaf, SUCCEEDED)
        kept = [one for one in held if self._is_usable(one.node)]
        surplus = len(kept) - max(count - done, 0)
        lying = self._lying(gang, leaf) if surplus > 0 else Counter()
        for one in list(kept):
            if surplus > 0 and lying[one.node] > 0:
                lying[one.node] -= 1
                surplus -= 1
                kept.remove(one)
        return kept[: len(kept) - max(surplus, 0)]

    def _lying(self, gang: Gang, leaf: str) -> Counter[str]:
        """Return on which nodes the pods of a leaf have their places."""
        state, node, names = self._roll.state, self._roll.node, self._nodes.names
        slots = (slot for kin in gang.leaves.get(leaf, ()) for slot in kin.slots)
        there = (int(node[slot]) for slot in slots if state[slot] == THERE)
        return Counter(names[row] for row in there if row != NONE)

    def _is_usable(self, node: str) -> bool:
        """Say whether a slot may stay: who cordons a node wants nobody there, other faults pass."""
        row = self._nodes.row.get(node)
        return row is not None and self._nodes.faults[row] != NodeFault.CORDONED


def _is_moved(slots: Iterable[SlotAt]) -> bool:
    return any(one.cause == Cause.MOVE for one in slots)
