"""The working copy of a plan: what is taken is written here, and can be taken back exactly.

Whoever keeps something that depends on a node reads in `moves` which nodes have changed since.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Ints, Shape, Snapshot

__all__ = ["Entry", "Ledger", "holds"]


# A label of places, selectors, terms.
Foes: TypeAlias = tuple[int, NDArray[np.intp], NDArray[np.intp]]


class Entry(NamedTuple):
    """One change: so many pods of a shape come to a node, or, if negative, go."""

    node: int
    shape: int
    number: int
    is_now: bool  # in what is idle, not only in what is being released
    is_leaving: bool = False  # whoever minds it still sees it


class Ledger:
    """Room on nodes, and who is whose neighbour."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot: Final = snapshot
        self.idle: Final[Ints] = snapshot.nodes.idle.copy()
        self.room: Final[Ints] = self.idle + snapshot.nodes.releasing  # for who can wait
        self.moves: Final[list[int]] = []  # nodes, in the order in which they changed
        self.turns = 0  # how often neighbours, ports or claims changed
        self.counts: Final = snapshot.neighbours.counts.copy()
        self.holders: Final = snapshot.neighbours.holders.copy()
        self.held: Final[Ints] = self.holders.sum(axis=1)  # [term]
        terms = np.array(snapshot.neighbours.terms, dtype=np.intp).reshape(-1, 2)
        self._terms: Final = (terms[:, 0], terms[:, 1])  # of each its selector, and its label
        self._foes: Final[dict[int, tuple[Shape, list[Foes]]]] = {}  # by identity of the shape
        self.ports: Final = snapshot.nodes.ports.copy()
        self.claim_node: Final = list(snapshot.neighbours.claim_node)
        self.claim_users: Final = list(snapshot.neighbours.claim_users)
        self._requests: Final = [_row(shape) for shape in snapshot.shapes]
        self._is_sociable: Final = [_is_sociable(shape) for shape in snapshot.shapes]
        self._log: Final[list[Entry]] = []

    @property
    def checkpoint(self) -> int:
        """Return a point to roll back to."""
        return len(self._log)

    def asked(self, shape: int) -> tuple[tuple[int, int], ...]:
        """Return how much of which resource a pod asks for, where that is not zero."""
        return self._requests[shape][1]

    def foes(self, shape: Shape) -> list[Foes]:
        """Return the selectors that pods keep away from, and the terms that keep them away."""
        known = self._foes.get(id(shape))
        if known is None:
            known = self._foes[id(shape)] = shape, [*self._foes_of(shape)]
        return known[1]

    def _foes_of(self, shape: Shape) -> Iterator[Foes]:
        selector_of, key_of = self._terms
        apart, shunned = (np.array(it, dtype=np.intp) for it in (shape.apart, shape.shunned))
        for key in np.unique(np.concatenate((key_of[apart], key_of[shunned]))).tolist():
            yield key, selector_of[apart[key_of[apart] == key]], shunned[key_of[shunned] == key]

    def take(self, node: int, shape: int, *, is_now: bool, count: int = 1) -> None:
        """Put so many pods on a node."""
        self._write(Entry(node, shape, count, is_now))

    def give(self, node: int, shape: int) -> None:
        """Take a pod off a node where it had its room."""
        self._write(Entry(node, shape, -1, is_now=True))

    def evict(self, node: int, shape: int) -> None:
        """Let a pod go: its room is there for who can wait, and whoever minds it still sees it."""
        self._write(Entry(node, shape, -1, is_now=False, is_leaving=True))

    def postpone(self, node: int, shape: int, count: int = 1) -> None:
        """Let pods that were put on a node wait for what is being released there."""
        self._write(Entry(node, shape, -count, is_now=True))
        self._write(Entry(node, shape, count, is_now=False))

    def set_aside(self, nodes: Ints, amounts: Ints) -> None:
        """Let there be so much less room on nodes, or more if negative: nothing to roll back."""
        np.subtract.at(self.room, nodes, amounts)
        self.moves.extend(nodes.tolist())

    def roll_back(self, checkpoint: int) -> None:
        """Undo everything since a checkpoint."""
        while len(self._log) > checkpoint:
            entry = self._log.pop()
            self._apply(entry._replace(number=-entry.number))

    def fits_idle(self, node: int, shape: int) -> bool:
        """Say whether a pod fits into what is idle."""
        return holds(self.idle[node].tolist(), self._requests[shape][1])

    def came_last(self, node: int, shape: int) -> bool:
        """Say whether the last change is that pods of a shape came to a node."""
        last = self._log[-1] if self._log else None
        return last is not None and last[:2] == (node, shape) and last.number > 0

    def _write(self, entry: Entry) -> None:
        self._log.append(entry)
        self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        node, shape, count, is_now, is_leaving = entry
        request = self._requests[shape][0]
        change = np.subtract if count > 0 else np.add
        if count not in (1, -1):  # of most there is one
            request = abs(count) * request
        room = self.room[node]
        change(room, request, room)
        if is_now:
            idle = self.idle[node]
            change(idle, request, idle)
        self.moves.append(node)
        if self._is_sociable[shape] and not is_leaving:
            self._mingle(node, self.snapshot.shapes[shape], count)

    def _mingle(self, node: int, shape: Shape, count: int) -> None:
        self.turns += 1
        self.counts[list(shape.matches), node] += count
        self.holders[list(shape.apart), node] += count
        self.held[list(shape.apart)] += count
        self.ports[node, list(shape.takes)] += count
        for claim in (*shape.claims, *shape.own_claims):
            self.claim_users[claim] += count
            if count > 0:
                self.claim_node[claim] = node
            elif self.claim_users[claim] == 0:
                self.claim_node[claim] = NONE


def holds(amounts: list[int], asked: tuple[tuple[int, int], ...]) -> bool:
    """Say whether amounts hold all that is asked."""
    for resource, amount in asked:  # noqa: SIM110 - asked for every pod, and so twice as fast
        if amounts[resource] < amount:
            return False
    return True


def _row(shape: Shape) -> tuple[Ints, tuple[tuple[int, int], ...]]:
    """Return a request as an array, and what of it is not zero."""
    asked = tuple((r, amount) for r, amount in enumerate(shape.request) if amount)
    return np.array(shape.request, dtype=np.int64), asked


def _is_sociable(shape: Shape) -> bool:
    """Say whether others may care where a pod lies."""
    return bool(shape.matches or shape.apart or shape.takes or shape.claims or shape.own_claims)
