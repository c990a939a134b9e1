"""What one attempt takes of a unit: first all that it needs, then a little more at a time."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from scheduler.core.model import Group, Leaf, Slot, Tree, leaves_of

__all__ = [
    "Chunk",
    "Growth",
    "Part",
    "Progress",
    "Runs",
    "beyond",
    "can_be_satisfied",
    "chunk",
    "has_later",
    "has_waiting",
    "is_growth",
    "is_satisfied",
    "members_of",
    "standing",
]


class Part(NamedTuple):
    """Of one leaf: waiting pods, and how many that do not exist yet."""

    leaf: Leaf
    pods: tuple[int, ...]
    later: int


Chunk = tuple[Part, ...]
Runs: TypeAlias = tuple[tuple[int, int], ...]  # a shape and how many in a row; neighbours differ
_Rank = tuple[bool, bool, float, str]


@dataclass(slots=True)
class Progress:
    """What a plan has placed so far of one unit, by leaf."""

    pods: dict[str, int] = field(default_factory=dict)
    later: dict[str, int] = field(default_factory=dict)

    def add(self, taken: Chunk) -> None:
        """Remember what was placed."""
        for leaf, pods, later in taken:
            self.pods[leaf.name] = self.pods.get(leaf.name, 0) + len(pods)
            self.later[leaf.name] = self.later.get(leaf.name, 0) + later

    def slots(self, leaf: Leaf) -> tuple[Slot, ...]:
        """Return the slots that no pod has taken."""
        return leaf.slots[self.pods.get(leaf.name, 0) :]


_NOTHING = Progress()


class Growth:
    """What a unit takes after its first chunk, in the order of `chunk`, but without sorting anew.

    Of a group's children only the one that was given something changes its place, and one that had
    nothing to give never will: waiting pods become fewer, and what is satisfied stays so.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._places: dict[str, list[tuple[_Rank, int]]] = {}  # by group, a heap of its children

    def next(self, progress: Progress) -> Chunk:
        """Return what to place next; nothing if nothing can or need be."""
        return self._next(self._tree, progress)

    def _next(self, tree: Tree, progress: Progress) -> Chunk:
        if isinstance(tree, Leaf):
            return chunk(tree, progress)
        heap = self._places.get(tree.name)
        if heap is None:
            if not is_satisfied(tree, progress):
                return chunk(tree, progress)
            heap = [(_rank(child, progress), i) for i, child in enumerate(tree.children)]
            heapq.heapify(heap)
            self._places[tree.name] = heap
        while heap:
            rank, i = heap[0]
            now = _rank(tree.children[i], progress)
            if now != rank:
                heapq.heapreplace(heap, (now, i))
                continue
            parts = self._next(tree.children[i], progress)
            if parts:
                return parts
            heapq.heappop(heap)
        return ()


def chunk(tree: Tree, progress: Progress = _NOTHING) -> Chunk:
    """Return what to place next; nothing if nothing can or need be."""
    if isinstance(tree, Leaf):
        part = _of_leaf(tree, progress)
        return (part,) if part else ()
    return tuple(_of_group(tree, progress))


def beyond(tree: Tree, parts: Chunk, progress: Progress) -> Iterator[int]:
    """Yield the waiting pods that a unit takes after a chunk, but for those that have slots."""
    taken = {pod for part in parts for pod in part.pods}
    for leaf in leaves_of(tree):
        if not leaf.slots:
            first = progress.pods.get(leaf.name, 0)
            yield from (pod for pod in leaf.waiting[first:] if pod not in taken)


def has_waiting(tree: Tree) -> bool:
    """Say whether pods of it wait; asked of every unit, most of which want nothing."""
    if isinstance(tree, Leaf):
        return bool(tree.waiting)
    return any(map(has_waiting, tree.children))


def has_later(tree: Tree) -> bool:
    """Say whether pods of it are still to come."""
    if isinstance(tree, Leaf):
        return tree.later > 0
    return any(map(has_later, tree.children))


def is_satisfied(tree: Tree, progress: Progress = _NOTHING) -> bool:
    """Say whether as many members as are needed have their place."""
    if isinstance(tree, Leaf):
        return members_of(tree, progress) >= tree.minimum
    return sum(is_satisfied(child, progress) for child in tree.children) >= tree.minimum


def is_growth(tree: Tree, parts: Chunk, progress: Progress = _NOTHING) -> bool:
    """Say whether a unit takes more than it needs, and no slots of its own for it."""
    return is_satisfied(tree, progress) and any(
        len(part.pods) > len(progress.slots(part.leaf)) for part in parts
    )


def can_be_satisfied(tree: Tree, progress: Progress = _NOTHING) -> bool:
    """Say whether enough members are there, wait, or will come."""
    if isinstance(tree, Leaf):
        members, waiting, later = _counts(tree, progress)
        return members + waiting + later >= tree.minimum
    return sum(can_be_satisfied(child, progress) for child in tree.children) >= tree.minimum


def members_of(leaf: Leaf, progress: Progress = _NOTHING) -> int:
    """Return how many members of a leaf have their place."""
    placed = progress.pods.get(leaf.name, 0) + progress.later.get(leaf.name, 0)
    return leaf.there + leaf.succeeded + _unclaimed(leaf) + placed


def standing(tree: Tree, progress: Progress = _NOTHING) -> int:
    """Return -1 if a unit lacks members, 0 if it could spare none, 1 if it could."""
    if isinstance(tree, Leaf):
        members = members_of(tree, progress)
        return (members > tree.minimum) - (members < tree.minimum)
    if not is_satisfied(tree, progress):
        return -1
    return 1 if _has_more(tree, progress) else 0


def _has_more(tree: Tree, progress: Progress) -> bool:
    if isinstance(tree, Leaf):
        return members_of(tree, progress) > tree.minimum
    satisfied = [is_satisfied(child, progress) for child in tree.children]
    is_enough = sum(satisfied) == tree.minimum
    return any(
        _has_more(child, progress) if is_enough and needed else _has_members(child, progress)
        for child, needed in zip(tree.children, satisfied, strict=True)
    )


def _has_members(tree: Tree, progress: Progress) -> bool:
    if isinstance(tree, Leaf):
        return members_of(tree, progress) > 0
    return any(_has_members(child, progress) for child in tree.children)


def _counts(leaf: Leaf, progress: Progress) -> tuple[int, int, int]:
    """Return members, waiting pods, and pods that neither exist nor have a slot."""
    placed = progress.pods.get(leaf.name, 0)
    foreseen = progress.later.get(leaf.name, 0)
    later = max(0, leaf.later - _unclaimed(leaf) - foreseen)
    return members_of(leaf, progress), len(leaf.waiting) - placed, later


def _unclaimed(leaf: Leaf) -> int:
    """Return how many slots no waiting pod has come for."""
    return max(0, len(leaf.slots) - len(leaf.waiting)) if leaf.slots else 0


def _of_leaf(leaf: Leaf, progress: Progress) -> Part | None:
    members, waiting, later = _counts(leaf, progress)
    first = len(leaf.waiting) - waiting
    missing = leaf.minimum - members
    if missing <= 0:
        return Part(leaf, leaf.waiting[first : first + 1], 0) if waiting else None
    if missing > waiting + later:
        return None
    pods = leaf.waiting[first : first + missing]
    return Part(leaf, pods, missing - len(pods))


def _of_group(group: Group, progress: Progress) -> Iterator[Part]:
    missing = group.minimum - sum(is_satisfied(child, progress) for child in group.children)
    if missing > 0 and not can_be_satisfied(group, progress):
        return
    ordered = sorted(group.children, key=lambda child: _rank(child, progress))
    for child in ordered:
        parts = chunk(child, progress)
        if parts:
            yield from parts
            missing -= 1
            if missing <= 0:
                return


def _rank(tree: Tree, progress: Progress) -> _Rank:
    """Order siblings: who lacks something first, then who has the least beyond it."""
    if not is_satisfied(tree, progress):
        return False, False, 0.0, tree.name
    if isinstance(tree, Leaf):
        members = members_of(tree, progress)
    else:
        members = sum(is_satisfied(child, progress) for child in tree.children)
    if tree.minimum > 0:
        return True, False, members / tree.minimum, tree.name
    return True, True, float(members), tree.name
