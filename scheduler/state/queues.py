"""Queues as rows, and why a queue cannot take a unit.

Those that hang together up to the top are rows. The others are left out, and told apart: one whose
parent does not exist is missing, one that is above itself is misconfigured. A value without a
meaning leaves no queue out: `counted_queue` says what counts in its place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from itertools import product
from operator import add
from typing import Final

import numpy as np

from scheduler.core.model import NONE, UNBOUND, Bar, Ints, Kind, Queues, Verdict
from scheduler.core.sums import SUM_MOST, cut
from scheduler.state.moments import said_s
from scheduler.state.terms import Stray, epoch_s
from trainer_kai.api.counted import counted_queue
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS, CONSOLIDATION, RECLAIM_GOAL
from trainer_kai.api.queue import Queue, QueueResource, QueueResources
from trainer_kai.errors import FieldError
from trainer_kai.policy.access import Said, said_of
from trainer_kai.policy.misspelt import QUEUES, misspelt

__all__ = ["QueueRows"]

_PRIORITY: Final = 100
_UNITS: Final = ((Kind.CPU, 1), (Kind.MEMORY, 10**6), (Kind.GPU, 1000))
_MOST: Final = SUM_MOST  # a bound above this is as good as this: no queue can have more
_MOST_WEIGHT: Final = 10**9
_TOLD: Final = 8  # names in a message
_RIGHT: Final = {  # annotations; what cannot be meant counts as the first
    RECLAIM_GOAL: ("fair-share", "quota-only"),  # among the children of a queue
    CONSOLIDATION: ("off", "on"),  # of those in a queue, and below it
    ACCESS: ("closed", "open"),  # to namespaces without a grant, for a queue and those below it
}
_WAKES_ON: Final = frozenset({"queues"})


class QueueRows:
    """The table, and what is wrong with queues that are not in it."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues: Final = dict(queues)
        self._counted: Final = {name: counted_queue(it.spec) for name, it in queues.items()}
        self._faults: Final[dict[str, tuple[Verdict, str]]] = {}
        self._sound: Final[set[str]] = set()
        sound = [name for name in sorted(queues) if self._place(name)]
        self.names: Final = tuple(sorted(sound, key=lambda name: _age(queues[name])))
        self.row: Final = {name: row for row, name in enumerate(self.names)}
        parents = (queues[name].spec.parent_queue for name in self.names)
        self.parent: Final = tuple(self.row.get(name, NONE) for name in parents)
        self._children: Final[dict[str, list[str]]] = {}
        for row, name in zip(self.parent, self.names, strict=True):
            if row != NONE:
                self._children.setdefault(self.names[row], []).append(name)
        self._upwards: Final = self._from_below()
        self._inner: Final = {queue.spec.parent_queue for queue in queues.values()}
        self._bars: Final[dict[str, Bar | None]] = {}
        self._access: Final[dict[str, Said]] = {}

    @cached_property
    def strays(self) -> list[Stray]:
        """Return what was left out, and why."""
        found = [Stray(Key("", name), fault) for name, (_, fault) in self._faults.items()]
        for (name, queue), (note, right) in product(self._queues.items(), _RIGHT.items()):
            said = _noted(queue, note)
            if said is not None and said not in right:
                must = f"and must be {' or '.join(right)}: it counts as {right[0]}"
                fault = f"queue {name}: annotation {note} is {said!r}, {must}"
                found.append(Stray(Key("", name), fault, counts=True))
        for name, queue in self._queues.items():
            beside = (*_misspelt(queue), *self._counted[name][1], *_beyond(self._shares(name)))
            found += (Stray(Key("", name), f"queue {name}: {it}", counts=True) for it in beside)
        return sorted(found)

    def are_of(self, queues: Mapping[str, Queue]) -> bool:
        """Say whether these queues say the same, in all that we read."""
        return self._queues.keys() == queues.keys() and all(
            one is queues[name] or _said(one) == _said(queues[name])
            for name, one in self._queues.items()
        )

    def at(self, name: str) -> tuple[int, Bar | None]:
        """Return the row of a queue, and why no unit can be in it."""
        return self.row_of(name), self.bar(name)

    def row_of(self, name: str) -> int:
        """Return the row of a queue, with children or without, or NONE."""
        return self.row.get(name, NONE)

    def first_of(self, *names: str) -> int:
        """Return the row of the first of some queues that takes units, or NONE."""
        return next((self.row_of(name) for name in names if self.bar(name) is None), NONE)

    def bar(self, name: str) -> Bar | None:
        """Return why no unit can be in a queue; None if one can."""
        if name not in self._bars:
            self._bars[name] = self._bar(name)
        return self._bars[name]

    def may_move(self, name: str) -> bool | None:
        """Say whether those in a queue may be moved; None if neither it nor one above it says."""
        while name in self.row:
            said = _noted(self._queues[name], CONSOLIDATION)
            if said is not None:
                return said == "on"
            name = self._queues[name].spec.parent_queue
        return None

    def access(self, name: str) -> Said:
        """Return what the queues say of who may use one of them."""
        if name not in self._access:
            self._access[name] = said_of(name, self._parent_of, self._access_note)
        return self._access[name]

    def table(
        self, allocated: list[list[int]], fixed: list[list[int]], requested: list[list[int]]
    ) -> Queues:
        """Return the rows; of what each queue itself has, what all below it have is made."""
        return replace(
            self._static,
            allocated=self._added_up(allocated),
            fixed=self._added_up(fixed),
            requested=self._added_up(requested),
        )

    @cached_property
    def _static(self) -> Queues:
        """Return what does not depend on what they have."""
        size = (len(self.names), len(Kind))
        none = np.zeros(size, dtype=np.int64)
        quota, limit = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        weight = np.zeros(size, dtype=np.float64)
        for row, name in enumerate(self.names):
            for (kind, unit), share in zip(_UNITS, self._shares(name), strict=True):
                quota[row, kind] = _bound(share.quota, unit)
                limit[row, kind] = _bound(share.limit, unit)
                weight[row, kind] = float(min(share.over_quota_weight, Decimal(_MOST_WEIGHT)))
        priorities = (self._queues[name].spec.priority for name in self.names)
        return Queues(
            names=self.names,
            parent=self.parent,
            priority=tuple(_PRIORITY if p is None else p for p in priorities),
            quota=quota,
            limit=limit,
            weight=weight,
            allocated=none,
            fixed=none,
            requested=none,
            preempt_min_s=self._min_s("preempt_min_runtime"),
            reclaim_min_s=self._min_s("reclaim_min_runtime"),
            is_quota_only=self._quota_only(),
        )

    def _parent_of(self, name: str) -> str:
        return self._queues[name].spec.parent_queue if name in self._queues else ""

    def _access_note(self, name: str) -> str | None:
        return _noted(self._queues[name], ACCESS) if name in self._queues else None

    def _quota_only(self) -> tuple[bool, ...]:
        """Return below which queues nobody takes back more than its quota."""
        found = tuple(_noted(self._queues[it], RECLAIM_GOAL) == "quota-only" for it in self.names)
        return found if any(found) else ()

    def _min_s(self, field: str) -> tuple[int, ...]:
        """Return how long units run at least, as each queue says it; what is none is not said."""
        said = [said_s(getattr(self._counted[name][0], field)) for name in self.names]
        return tuple(said) if any(it != NONE for it in said) else ()

    def _shares(self, name: str) -> tuple[QueueResource, QueueResource, QueueResource]:
        resources = self._counted[name][0].resources or QueueResources()
        return resources.cpu, resources.memory, resources.gpu

    def _added_up(self, amounts: list[list[int]]) -> Ints:
        for row in self._upwards:
            above = self.parent[row]
            if above != NONE:
                amounts[above] = [*map(add, amounts[above], amounts[row])]
        return cut(amounts, len(Kind))

    def _from_below(self) -> tuple[int, ...]:
        """Return the rows, each before the one above it."""
        below = [0] * len(self.names)  # how many children have not been told yet
        for above in self.parent:
            if above != NONE:
                below[above] += 1
        found = [row for row, count in enumerate(below) if not count]
        for row in found:
            above = self.parent[row]
            if above != NONE:
                below[above] -= 1
                if not below[above]:
                    found.append(above)
        return tuple(found)

    def _place(self, name: str) -> bool:
        """Walk up from a queue; remember who is sound, and what is wrong with the others."""
        seen: dict[str, None] = {}
        one, fault = name, None
        while fault is None and one and one not in self._sound:
            seen[one] = None
            parent = self._queues[one].spec.parent_queue
            fault = self._faults.get(one)
            if fault is None and parent in seen:
                circle = " → ".join(_circle(list(seen), parent))
                fault = Verdict.MISCONFIGURED, f"queue {parent} is above itself: {circle}"
            if fault is None and parent and parent not in self._queues:
                message = f"queue {one} has the parent {parent}, which does not exist"
                fault = Verdict.QUEUE_MISSING, message
            one = parent
        if fault is None:
            self._sound.update(seen)
        else:
            self._faults.update((below, fault) for below in seen if below not in self._faults)
        return fault is None

    def _bar(self, name: str) -> Bar | None:
        if not name:
            message = f"it names no queue; there {self._right()}"
            return Bar(Verdict.MISCONFIGURED, message, _WAKES_ON)
        if name not in self._queues:
            message = f"queue {name} does not exist; there {self._right()}"
            return Bar(Verdict.QUEUE_MISSING, message, _WAKES_ON)
        fault = self._faults.get(name)
        is_inner = name in self._inner and (fault is None or fault[0] != Verdict.MISCONFIGURED)
        if is_inner:
            below = self._below(name)
            right = (
                f"name one below it: {_listed(below)}" if below else "and none below it is right"
            )
            return Bar(Verdict.MISCONFIGURED, f"queue {name} has children; {right}", _WAKES_ON)
        return Bar(*fault, _WAKES_ON) if fault else None

    def _right(self) -> str:
        leaves = sorted(name for name in self.names if name not in self._inner)
        if not leaves:
            return "is none that can be named"
        return f"{'is' if len(leaves) == 1 else 'are'} {_listed(leaves)}"

    def _below(self, name: str) -> list[str]:
        """Return who takes units below a queue; nobody below one that is not sound."""
        found = [name] if name in self.row else []
        for one in found:
            found += self._children.get(one, ())
        return sorted(one for one in found if one not in self._inner)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _TOLD
    return ", ".join(names[:_TOLD]) + (f" and {more} more" if more > 0 else "")


def _circle(way: list[str], back: str) -> Iterator[str]:
    """Yield who is above whom, from a queue up to itself."""
    names = way[way.index(back) :]
    yield from names[:_TOLD]
    if len(names) > _TOLD:
        yield "…"
    yield back


def _age(queue: Queue) -> tuple[int, str]:
    return epoch_s(queue.metadata.creation_timestamp) or 0, queue.metadata.uid


def _noted(queue: Queue, note: str) -> str | None:
    return queue.metadata.annotations.get(note)


def _said(queue: Queue) -> tuple[object, ...]:
    goal = _noted(queue, RECLAIM_GOAL) or _RIGHT[RECLAIM_GOAL][0]
    notes = _noted(queue, CONSOLIDATION), _noted(queue, ACCESS)
    return queue.spec, _age(queue), goal, notes, _misspelt(queue)


def _misspelt(queue: Queue) -> tuple[FieldError, ...]:
    meta = queue.metadata
    return tuple(misspelt(meta.labels, meta.annotations, QUEUES))


def _beyond(shares: Iterable[QueueResource]) -> Iterator[str]:
    """Yield the numbers that are so large that another one counts in their place."""
    for (kind, unit), share in zip(_UNITS, shares, strict=True):
        for field, number, most in (
            ("quota", share.quota, _MOST // unit),
            ("limit", share.limit, _MOST // unit),
            ("overQuotaWeight", share.over_quota_weight, _MOST_WEIGHT),
        ):
            if number > most:
                path = f"spec.resources.{kind.name.lower()}.{field}"
                yield f"{path} is {float(number):g}: it counts as {most}, and nothing can be more"


def _bound(number: Decimal, unit: int) -> int:
    if number < 0:
        return UNBOUND
    return _MOST if number > _MOST // unit else int(number * unit)
