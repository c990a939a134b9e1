"""Which replicatedJobs are joined to one part, because neither can begin or go on alone.

Everybody waits while one JobSet is planned, so what is asked again and again is kept: a set of
replicatedJobs is a number with a bit for each, in the order of their names.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from trainer_kai.policy.stages import READY, Course, Edge

__all__ = ["Joined"]

_Part: TypeAlias = int
_Start: TypeAlias = frozenset[tuple[str, str]]


class Joined:
    """The parts of a course."""

    def __init__(self, way: Course, ours: Sequence[str], alone: Iterable[str]) -> None:
        """Be told who is in parts, in the order they are listed, and who is never joined to one."""
        self._names: Final = sorted(way.names)
        self._bit: Final = {name: 1 << i for i, name in enumerate(self._names)}
        self._edges: Final = way.edges
        self._ours: Final = ours
        self._alone: Final = self._set(alone)
        self._into: Final[dict[str, list[tuple[int, Edge]]]] = {}
        for place, edge in enumerate(way.edges):
            self._into.setdefault(edge.after, []).append((place, edge))
        self._after: Final = self._closed()
        self._known: Final[dict[_Part, int]] = {}
        self._starts: Final[dict[_Part, _Start]] = {}

    def parts(self, *, staged: bool) -> Iterator[frozenset[str]]:
        """Yield each part after those it waits for, else as they are listed."""
        parts = [self._bit[name] for name in self._ours]
        for edge in self._edges:
            before, after = self._bit[edge.before], self._bit[edge.after]
            apart = staged or (before | after) & self._alone
            if edge.status == READY and not apart:
                parts = _with(parts, before, after)
        for part in self._in_order(self._all_joined(parts)):
            yield frozenset(self._names_of(part))

    def reached(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names and all that begins after them."""
        return frozenset(self._names_of(self._reached(self._set(names))))

    def entering(self, names: Iterable[str]) -> tuple[Edge, ...]:
        """Return the edges from what begins without a part, another scheduler's pods among it."""
        return tuple(self._entering(self._set(names)))

    def _all_joined(self, parts: list[_Part]) -> list[_Part]:
        """Join what begins together or waits for each other, until nobody does."""
        pair = self._circle(parts)
        while True:
            if pair is not None:
                parts = _with(parts, *pair)
                pair = self._circle(parts)
                continue
            twins = self._twins(parts)
            if twins is None:
                return parts
            parts = _with(parts, *twins)
            pair = self._circle(parts) if self._is_in_circle(parts[-1], parts) else None

    def _set(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= self._bit[name]
        return found

    def _names_of(self, part: _Part) -> Iterator[str]:
        while part:
            low = part & -part
            yield self._names[low.bit_length() - 1]
            part ^= low

    def _closed(self) -> list[int]:
        """Return for each name, in their order, itself and all that begins after it."""
        followers = dict.fromkeys(self._bit.values(), 0)
        for edge in self._edges:
            followers[self._bit[edge.before]] |= self._bit[edge.after]
        found = []
        for bit in self._bit.values():
            known, waiting = bit, followers[bit]
            while waiting:
                low = waiting & -waiting
                known |= low
                waiting = (waiting | followers[low]) & ~known
            found.append(known)
        return found

    def _reached(self, part: _Part) -> int:
        found = self._known.get(part)
        if found is None:
            found, left = 0, part
            while left:
                low = left & -left
                found |= self._after[low.bit_length() - 1]
                left &= ~found
            self._known[part] = found
        return found

    def _circle(self, parts: list[_Part]) -> tuple[int, int] | None:
        """Return one of each of two parts that wait for each other, also through others."""
        behind = self._behind(parts)
        for number, part in enumerate(parts):
            for other in range(number):
                if behind[number] >> other & 1 and behind[other] >> number & 1:
                    return _first(part), _first(parts[other])
        return None

    def _behind(self, parts: list[_Part]) -> list[int]:
        """Return for each part, as numbers and bits, which ones begin after it through any."""
        behind = []
        for part in parts:
            known = self._reached(part)
            behind.append(sum(1 << i for i, other in enumerate(parts) if other & known))
        for through, found in enumerate(behind):
            for number in range(len(behind)):
                if behind[number] >> through & 1:
                    behind[number] |= found
        return behind

    def _is_in_circle(self, part: _Part, parts: list[_Part]) -> bool:
        """Say whether something that begins after a part comes before it as well."""
        known, left = self._reached(part), [other for other in parts if other != part]
        while True:
            found = [other for other in left if other & known]
            if not found:
                return False
            left = [other for other in left if not other & known]
            for other in found:
                reached = self._reached(other)
                if reached & part:
                    return True
                known |= reached

    def _twins(self, parts: list[_Part]) -> tuple[int, int] | None:
        """Return one of each of two parts that begin at the same moment."""
        begun: dict[_Start, int] = {}
        for part in parts:
            if not part & self._alone:
                start = self._start(part)
                if start in begun:
                    return begun[start], _first(part)
                begun[start] = _first(part)
        return None

    def _start(self, part: _Part) -> _Start:
        found = self._starts.get(part)
        if found is None:
            found = frozenset((edge.before, edge.status) for edge in self._entering(part))
            self._starts[part] = found
        return found

    def _entering(self, part: _Part) -> list[Edge]:
        inside = self._reached(part)
        found = [
            (place, edge)
            for name in self._names_of(part)
            for place, edge in self._into.get(name, ())
            if not self._bit[edge.before] & inside
        ]
        return [edge for _, edge in sorted(found, key=lambda it: it[0])]

    def _in_order(self, parts: list[_Part]) -> Iterator[_Part]:
        place = {self._bit[name]: number for number, name in enumerate(self._ours)}
        firsts = {
            part: min(number for bit, number in place.items() if bit & part) for part in parts
        }
        left = sorted(parts, key=firsts.__getitem__)
        before = {part: self._set({edge.before for edge in self._entering(part)}) for part in parts}
        while left:
            waiting = 0
            for part in left:
                waiting |= part
            part = next(part for part in left if not before[part] & waiting)
            left.remove(part)
            yield part


def _first(part: _Part) -> int:
    return part & -part


def _with(parts: list[_Part], one: int, other: int) -> list[_Part]:
    """Make one part of two; whoever is in none is left alone."""
    both = [part for part in parts if part & (one | other)]
    if len(both) < 2:
        return parts
    return [part for part in parts if part not in both] + [both[0] | both[1]]
