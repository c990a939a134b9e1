"""What queues have while a plan is being made: plain integers, on all levels."""

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import NamedTuple, TypeAlias

from scheduler.core.model import NONE, Queues, Shape

__all__ = ["Amounts", "Kept", "Usage", "charged", "parting"]

Amounts: TypeAlias = tuple[int, int, int]  # by Kind


class Kept(NamedTuple):
    """What units of a queue have that may be preempted, and cannot be evicted."""

    units: tuple[int, ...]
    amounts: Amounts


class Usage:
    """Allocated and fixed of every queue; what is taken can be given back exactly."""

    __slots__ = ("allocated", "fixed", "limit", "paths", "quota", "unevictable")

    def __init__(self, queues: Queues) -> None:
        self.allocated: list[list[int]] = queues.allocated.tolist()
        self.fixed: list[list[int]] = queues.fixed.tolist()
        self.quota: list[list[int]] = queues.quota.tolist()
        self.limit: list[list[int]] = queues.limit.tolist()
        self.paths = tuple(_path(queues.parent, q) for q in range(len(queues.names)))
        self.unevictable: dict[int, Kept] = {}  # by queue

    def copy(self) -> "Usage":
        """Return one that goes its own way."""
        other = Usage.__new__(Usage)
        other.allocated = [row.copy() for row in self.allocated]
        other.fixed = [row.copy() for row in self.fixed]
        other.quota, other.limit, other.paths = self.quota, self.limit, self.paths
        other.unevictable = self.unevictable
        return other

    def empty(self) -> "Usage":
        """Return one of the same queues in which nobody has anything."""
        other = self.copy()
        for row in (*other.allocated, *other.fixed):
            row[:] = 0, 0, 0
        return other

    def add(self, queues: Sequence[int], other: "Usage", sign: int) -> None:
        """Count what some queues have elsewhere as well, or, with sign -1, no more."""
        for q in queues:
            for mine, theirs in (
                (self.allocated[q], other.allocated[q]),
                (self.fixed[q], other.fixed[q]),
            ):
                mine[0] += sign * theirs[0]
                mine[1] += sign * theirs[1]
                mine[2] += sign * theirs[2]

    def take(self, queue: int, amounts: Amounts, *, is_fixed: bool) -> None:
        """Charge a queue and all above it."""
        cpu, memory, gpu = amounts
        for q in self.paths[queue]:
            row = self.allocated[q]
            row[0] += cpu
            row[1] += memory
            row[2] += gpu
        if is_fixed:
            for q in self.paths[queue]:
                row = self.fixed[q]
                row[0] += cpu
                row[1] += memory
                row[2] += gpu

    def fix(self, unevictable: Mapping[int, Kept]) -> None:
        """Count what cannot be evicted as fixed of its queue, and not of the queues above it.

        Else one queue could use up what another one below the same owns.
        """
        self.unevictable = {**unevictable}
        for queue, kept in unevictable.items():
            self.fixed[queue] = [*map(add, self.fixed[queue], kept.amounts)]

    def give(self, queue: int, amounts: Amounts, *, is_fixed: bool) -> None:
        """Take a charge back."""
        cpu, memory, gpu = amounts
        self.take(queue, (-cpu, -memory, -gpu), is_fixed=is_fixed)


def charged(shapes: Sequence[Shape], asked: Iterable[tuple[int, int]]) -> Amounts:
    """Return what pods are charged for, so many of each shape."""
    cpu = memory = gpu = 0
    for shape, count in asked:
        counted = shapes[shape].counted
        cpu, memory, gpu = (
            cpu + count * counted[0],
            memory + count * counted[1],
            gpu + count * counted[2],
        )
    return cpu, memory, gpu


def parting(paths: Sequence[Sequence[int]], one: int, other: int) -> tuple[int, int]:
    """Return what is above two queues just below the one they have in common, or at the top."""
    mine, theirs = paths[one], paths[other]
    depth = 1
    while mine[-depth] == theirs[-depth]:
        depth += 1
    return mine[-depth], theirs[-depth]


def _path(parent: tuple[int, ...], queue: int) -> tuple[int, ...]:
    """Return a queue and all above it."""
    path = []
    while queue != NONE:
        path.append(queue)
        queue = parent[queue]
    return tuple(path)
