"""Who could be moved: whole units that find the same room elsewhere, and nothing else on their way.

Their pods go, and others are made in place of them: until those come slots are held. So who moves
must be able to hold slots, be whole, and have pods of which each leaf asks for one thing only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from scheduler.core.chunks import Chunk, Part, is_satisfied
from scheduler.core.model import NONE, Leaf, Shape, Snapshot, Unit, leaves_of
from scheduler.core.tenants import Member, could_lose, members_of

__all__ = ["Movers", "moved_shapes"]


class Movers:
    """What those who could be moved need anew, by unit."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Final = snapshot
        members = members_of(snapshot)
        found = ((row, self._parts(row, unit, members)) for row, unit in enumerate(snapshot.units))
        self.parts: Final[dict[int, Chunk]] = {row: parts for row, parts in found if parts}

    def order(self, units: Iterable[int]) -> list[tuple[int, Part]]:
        """Return what units need in the order of its placement: the largest pods first."""
        shapes = self._snapshot.shapes

        def size(one: tuple[int, Part]) -> tuple[int, int, int]:
            cpu, memory, gpu = shapes[one[1].leaf.later_shape].counted
            return -gpu, -cpu, -memory

        return sorted(((row, part) for row in units for part in self.parts[row]), key=size)

    def _parts(self, row: int, unit: Unit, members: Callable[[int], tuple[Member, ...]]) -> Chunk:
        """Return what a unit needs anew; nothing if it cannot be moved."""
        if not (unit.may_move and unit.is_kept and unit.can_hold and unit.bar is None):
            return ()
        if not could_lose(unit) or unit.is_partly_done:
            return ()
        leaves = leaves_of(unit.tree)
        if not is_satisfied(unit.tree):
            return ()
        there = members(row)  # with slots there are more than there are pods
        shape_of = moved_shapes(self._snapshot, row, [it.shape for it in there])
        if shape_of is None or not all(self._is_free(it) for it in there):
            return ()
        if not all(self._is_alike(leaf, shape_of) for leaf in leaves):
            return ()
        return tuple(
            Part(
                Leaf(leaf.name, 0, later=leaf.there, later_shape=shape_of[leaf.name]),
                (),
                leaf.there,
            )
            for leaf in leaves
            if leaf.there
        )

    def _is_free(self, member: Member) -> bool:
        """Say whether a pod can be anywhere, whoever is beside it."""
        shape = self._snapshot.shapes[member.shape]
        return member.node != NONE and not (shape.near or shape.spread or shape.devices)

    def _is_alike(self, leaf: Leaf, shape_of: dict[str, int]) -> bool:
        """Say whether pods that wait ask for the same as those that are there."""
        if not leaf.waiting or not leaf.there:
            return True
        shapes, shape_at = self._snapshot.shapes, self._snapshot.pods.shape
        want = _anywhere(shapes[shape_of[leaf.name]])
        return all(_anywhere(shapes[shape_at[pod]]) == want for pod in leaf.waiting)


def moved_shapes(snapshot: Snapshot, row: int, there: Sequence[int]) -> dict[str, int] | None:
    """Return the shape of the pods of each leaf, if they have one, and no others are there.

    *there* are the shapes of all its pods that are on nodes.
    """
    leaves = [leaf for leaf in leaves_of(snapshot.units[row].tree) if leaf.there]
    if not there or sum([leaf.there for leaf in leaves]) != len(there):
        return None
    found: dict[str, int] = {}
    for leaf in leaves:
        of = there
        if len(leaves) > 1:
            of = [int(snapshot.pods.shape[pod]) for pod in leaf.pods]
        if len(of) != leaf.there or len({*of}) > 1:
            return None
        found[leaf.name] = of[0]
    return found


def _anywhere(shape: Shape) -> Shape:
    return replace(shape, nominated=NONE)
