"""The parts of a JobSet: replicatedJobs in one part must start together.

Other JobSets wait while one is planned, so repeated results are cached. A set of replicatedJobs is
an integer with a bit for each replicatedJob, in the order of their names.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from trainer_kai.policy.start_order import READY, Edge, StartOrder

_Part: TypeAlias = int
_Start: TypeAlias = frozenset[tuple[str, str]]


class JobSetPartition:
    def __init__(self, order: StartOrder, scheduled: Sequence[str], alone: Iterable[str]) -> None:
        """Divide the names of *scheduled*, in order; names in *alone* are never merged."""
        self._names: Final = sorted(order.names)
        self._bit: Final = {name: 1 << i for i, name in enumerate(self._names)}
        self._edges: Final = order.edges
        self._scheduled: Final = scheduled
        self._alone: Final = self._bits_of(alone)
        self._incoming: Final[dict[str, list[tuple[int, Edge]]]] = {}
        for place, edge in enumerate(order.edges):
            self._incoming.setdefault(edge.after, []).append((place, edge))
        self._closure: Final = self._transitive_closure()
        self._dependents_cache: Final[dict[_Part, int]] = {}
        self._start_cache: Final[dict[_Part, _Start]] = {}

    def parts(self, *, staged: bool) -> Iterator[frozenset[str]]:
        """Yield each part after the parts that it depends on, otherwise in listed order."""
        parts = [self._bit[name] for name in self._scheduled]
        for edge in self._edges:
            before, after = self._bit[edge.before], self._bit[edge.after]
            apart = staged or (before | after) & self._alone
            if edge.status == READY and not apart:
                parts = _merged(parts, before, after)
        for part in self._topological_order(self._merge_until_stable(parts)):
            yield frozenset(self._names_of(part))

    def with_dependents(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self._names_of(self._with_dependents(self._bits_of(names))))

    def incoming_edges(self, names: Iterable[str]) -> tuple[Edge, ...]:
        """Return the edges into a part from replicatedJobs that do not depend on the part."""
        return tuple(self._incoming_edges(self._bits_of(names)))

    def _merge_until_stable(self, parts: list[_Part]) -> list[_Part]:
        pair = self._cycle_pair(parts)
        while True:
            if pair is not None:
                parts = _merged(parts, *pair)
                pair = self._cycle_pair(parts)
                continue
            same_start = self._same_start_pair(parts)
            if same_start is None:
                return parts
            parts = _merged(parts, *same_start)
            pair = self._cycle_pair(parts) if self._is_in_cycle(parts[-1], parts) else None

    def _bits_of(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= self._bit[name]
        return found

    def _names_of(self, part: _Part) -> Iterator[str]:
        while part:
            low = part & -part
            yield self._names[low.bit_length() - 1]
            part ^= low

    def _transitive_closure(self) -> list[int]:
        """For each name, in their order, the name and all that begin after it."""
        followers = dict.fromkeys(self._bit.values(), 0)
        for edge in self._edges:
            followers[self._bit[edge.before]] |= self._bit[edge.after]
        found = []
        for bit in self._bit.values():
            reachable, waiting = bit, followers[bit]
            while waiting:
                low = waiting & -waiting
                reachable |= low
                waiting = (waiting | followers[low]) & ~reachable
            found.append(reachable)
        return found

    def _with_dependents(self, part: _Part) -> int:
        found = self._dependents_cache.get(part)
        if found is None:
            found, remaining = 0, part
            while remaining:
                low = remaining & -remaining
                found |= self._closure[low.bit_length() - 1]
                remaining &= ~found
            self._dependents_cache[part] = found
        return found

    def _cycle_pair(self, parts: list[_Part]) -> tuple[int, int] | None:
        """Return a name of each of two parts that depend on each other, also through others."""
        dependents = self._dependent_parts(parts)
        for number, part in enumerate(parts):
            for other in range(number):
                if dependents[number] >> other & 1 and dependents[other] >> number & 1:
                    return _lowest_bit(part), _lowest_bit(parts[other])
        return None

    def _dependent_parts(self, parts: list[_Part]) -> list[int]:
        """For each part, as bits of part numbers, the parts that begin after it."""
        dependents = []
        for part in parts:
            reachable = self._with_dependents(part)
            dependents.append(sum(1 << i for i, other in enumerate(parts) if other & reachable))
        for through, found in enumerate(dependents):
            for number in range(len(dependents)):
                if dependents[number] >> through & 1:
                    dependents[number] |= found
        return dependents

    def _is_in_cycle(self, part: _Part, parts: list[_Part]) -> bool:
        """Say whether another part begins both before and after this part."""
        reachable = self._with_dependents(part)
        remaining = [other for other in parts if other != part]
        while True:
            found = [other for other in remaining if other & reachable]
            if not found:
                return False
            remaining = [other for other in remaining if not other & reachable]
            for other in found:
                reached = self._with_dependents(other)
                if reached & part:
                    return True
                reachable |= reached

    def _same_start_pair(self, parts: list[_Part]) -> tuple[int, int] | None:
        """Return a name of each of two parts that begin at the same moment."""
        started: dict[_Start, int] = {}
        for part in parts:
            if not part & self._alone:
                start = self._start_condition(part)
                if start in started:
                    return started[start], _lowest_bit(part)
                started[start] = _lowest_bit(part)
        return None

    def _start_condition(self, part: _Part) -> _Start:
        found = self._start_cache.get(part)
        if found is None:
            found = frozenset((edge.before, edge.status) for edge in self._incoming_edges(part))
            self._start_cache[part] = found
        return found

    def _incoming_edges(self, part: _Part) -> list[Edge]:
        inside = self._with_dependents(part)
        found = [
            (place, edge)
            for name in self._names_of(part)
            for place, edge in self._incoming.get(name, ())
            if not self._bit[edge.before] & inside
        ]
        return [edge for _, edge in sorted(found, key=lambda it: it[0])]

    def _topological_order(self, parts: list[_Part]) -> Iterator[_Part]:
        place = {self._bit[name]: number for number, name in enumerate(self._scheduled)}
        firsts = {
            part: min(number for bit, number in place.items() if bit & part) for part in parts
        }
        remaining = sorted(parts, key=firsts.__getitem__)
        before = {
            part: self._bits_of({edge.before for edge in self._incoming_edges(part)})
            for part in parts
        }
        while remaining:
            waiting = 0
            for part in remaining:
                waiting |= part
            part = next(part for part in remaining if not before[part] & waiting)
            remaining.remove(part)
            yield part


def _lowest_bit(part: _Part) -> int:
    return part & -part


def _merged(parts: list[_Part], one: int, other: int) -> list[_Part]:
    """Merge two parts; a name in no part is ignored."""
    both = [part for part in parts if part & (one | other)]
    if len(both) < 2:
        return parts
    return [part for part in parts if part not in both] + [both[0] | both[1]]
