"""What is set aside for whoever was promised it, until his turn: room, and a right to it.

Others do without: nobody else sees the room, and bounds of queues are looked at as if he had it.
But who comes before him in his own queue and could take it from him at once need not.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.chunks import Runs
from scheduler.core.ledger import Ledger
from scheduler.core.model import NONE, Ints, Snapshot
from scheduler.core.policy import Refusal
from scheduler.core.usage import Amounts, Usage

__all__ = ["Held"]

_FOR_GOOD: Final = 2**63  # the priority of who cannot be preempted: nobody's is larger

Wish = tuple[int, int]  # a queue and a priority


class _Promise(NamedTuple):
    row: int
    part: int  # what it takes next is 0; of what it takes then each pod is one
    nodes: Ints  # [pod]
    amounts: Ints  # [pod, resource]
    counted: Amounts


class Held:
    """What is set aside, by queue, priority and unit."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._ledger: Final = ledger
        self._usage: Final = usage
        self._charged: Final = usage.empty()
        self._of: Final[dict[int, dict[int, dict[int, list[_Promise]]]]] = {}
        self._lifted: list[_Promise] = []

    def __bool__(self) -> bool:
        return bool(self._of)

    def hold(self, units: Iterable[tuple[int, Sequence[Runs]]]) -> None:
        """Set aside what units were promised, by the shapes of their parts; each that fits."""
        self._keep(
            [
                self._promise(row, part, shapes)
                for row, parts in units
                for part, shapes in enumerate(parts)
            ]
        )

    def let_go(self, row: int) -> bool:
        """Leave it to a unit whose turn has come, if something is set aside for it."""
        queue, priority = self._place(row)
        mine = self._of.get(queue, {}).get(priority, {}).pop(row, [])
        self._give_back(mine)
        self._forget_empty(queue, priority)
        return bool(mine)

    def may_lift(self, row: int) -> bool:
        """Say whether a unit may have anything of what is set aside."""
        return bool(self._below(row))

    def whose(self, row: int) -> Wish:
        """Say of which queue and below which priority a unit may have what is set aside."""
        unit = self._snapshot.units[row]
        return (unit.queue, unit.priority) if self._below(row) else (NONE, 0)

    def refuses(self, row: int, ask: Callable[[], Refusal | None]) -> Refusal | None:
        """Ask for bounds as if everybody had what is set aside for him, unless this one may."""
        path = self._usage.paths[self._snapshot.units[row].queue]
        self._usage.add(path, self._charged, 1)
        refusal = ask()
        if refusal is not None and (mine := self._all_below(row)):
            self._charge(mine, self._usage, -1)
            refusal = ask()
            self._charge(mine, self._usage, 1)
        self._usage.add(path, self._charged, -1)
        return refusal

    def lift(self, row: int) -> None:
        """Let somebody have what he may of what is set aside."""
        self._lifted = self._all_below(row)
        queue = self._snapshot.units[row].queue
        for priority in self._below(row):
            self._of[queue][priority].clear()
            self._forget_empty(queue, priority)
        self._give_back(self._lifted)

    def put_back(self) -> None:
        """Set aside again what was lifted and is still there."""
        self._keep(sorted(self._lifted, key=lambda it: it[:2]))  # the oldest first
        self._lifted = []

    def _place(self, row: int) -> Wish:
        unit = self._snapshot.units[row]
        return unit.queue, unit.priority if unit.is_preemptible else _FOR_GOOD

    def _below(self, row: int) -> list[int]:
        """Return the priorities of those whom a unit could preempt at once."""
        unit = self._snapshot.units[row]
        if unit.patient_until > self._snapshot.now:
            return []
        return [priority for priority in self._of.get(unit.queue, ()) if priority < unit.priority]

    def _all_below(self, row: int) -> list[_Promise]:
        of = self._of.get(self._snapshot.units[row].queue, {})
        return [
            it for priority in self._below(row) for of_one in of[priority].values() for it in of_one
        ]

    def _forget_empty(self, queue: int, priority: int) -> None:
        if not self._of.get(queue, {}).get(priority, True):
            del self._of[queue][priority]
        if not self._of.get(queue, True):
            del self._of[queue]

    def _promise(self, row: int, part: int, shapes: Runs) -> _Promise:
        every = ((self._snapshot.shapes[shape], count) for shape, count in shapes)
        some = [one for one, count in every if one.nominated != NONE for _ in range(count)]
        nodes = np.array([one.nominated for one in some], dtype=np.int64)
        amounts = np.array([one.request for one in some], dtype=np.int64)
        cpu, memory, gpu = (
            sum(amount) for amount in zip(*[it.counted for it in some], strict=True)
        )
        return _Promise(row, part, nodes, amounts, (cpu, memory, gpu))

    def _keep(self, promises: list[_Promise]) -> None:
        """Set aside each of these that fits, in order: all at once, or else by halves."""
        if not promises:
            return
        nodes, amounts = _together(promises)
        self._ledger.set_aside(nodes, amounts)
        if ((self._ledger.room[nodes] >= 0) | (amounts == 0)).all():
            for one in promises:
                queue, priority = self._place(one.row)
                of = self._of.setdefault(queue, {}).setdefault(priority, {})
                of.setdefault(one.row, []).append(one)
            self._charge(promises, self._charged, 1)
            return
        self._ledger.set_aside(nodes, -amounts)
        if len(promises) > 1:
            half = len(promises) // 2
            self._keep(promises[:half])
            self._keep(promises[half:])

    def _give_back(self, promises: list[_Promise]) -> None:
        if promises:
            nodes, amounts = _together(promises)
            self._ledger.set_aside(nodes, -amounts)
            self._charge(promises, self._charged, -1)

    def _charge(self, promises: list[_Promise], usage: Usage, sign: int) -> None:
        for row, _, _, _, (cpu, memory, gpu) in promises:
            unit = self._snapshot.units[row]
            amounts = (sign * cpu, sign * memory, sign * gpu)
            usage.take(unit.queue, amounts, is_fixed=not unit.is_preemptible)


def _together(promises: list[_Promise]) -> tuple[Ints, Ints]:
    if len(promises) == 1:
        return promises[0].nodes, promises[0].amounts
    nodes = np.concatenate([one.nodes for one in promises])
    return nodes, np.concatenate([one.amounts for one in promises])
