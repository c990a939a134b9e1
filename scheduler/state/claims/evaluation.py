"""What the claims of each namespace ask for is evaluated in turns, so many steps a snapshot.

A tenant can write expressions that cost much, and drivers publish many devices. In each snapshot
the namespaces with something to evaluate take turns of equal size: one that asks for much waits
longer, and the others do not. The turns go on where the snapshot before has ended, so each
namespace gets its turn. Claims wait until all that they ask for is evaluated on all devices.
"""

import math
from collections import deque
from typing import Final, TypeAlias

from scheduler.state.claims.claim_shapes import RequestFilter, ShapeReader
from scheduler.state.claims.device_table import DeviceFilterKey, DeviceTable
from scheduler.state.claims.selectors import Selectors

_TURN: Final = 20_000  # steps: at least one evaluation, whatever it costs
_PROGRESS_PARTS: Final = 10  # what is told changes so often, at most
_ToDo: TypeAlias = deque[str | DeviceFilterKey]


class Evaluation:
    def __init__(self, selectors: Selectors, devices: DeviceTable, steps: int) -> None:
        """Allow *steps* in each snapshot; 0 is all that it takes."""
        self._selectors: Final = selectors
        self._devices: Final = devices
        self._steps: Final = steps or math.inf
        self._left = 0.0  # steps of the current snapshot
        self._order: list[str] = []  # namespaces that wait, the one with the next turn first
        self._pending: frozenset[DeviceFilterKey] = frozenset()
        self._done_for: tuple[object, ...] = ()
        selectors.allowed = 0 if steps else math.inf

    @property
    def waiting(self) -> tuple[str, ...]:
        """The namespaces that ask for more than is evaluated."""
        return tuple(self._order)

    def begin(self) -> None:
        """Begin a snapshot."""
        self._left = self._steps

    def run(self, shapes: ShapeReader) -> set[str]:
        """Evaluate what is asked for; return expressions that turned out to be invalid."""
        asked = self._devices.version, shapes, sum(map(len, shapes.asked.values()))
        if asked == self._done_for:
            return set()
        faulty: set[str] = set()
        found = {it: self._todo(shapes, it) for it in shapes.asked}
        todo = {it: more for it, more in found.items() if more}
        order = [it for it in self._order if it in todo]
        order += sorted(todo.keys() - {*order})
        while order and self._left > 0:
            namespace = order.pop(0)
            self._left -= self._turn(todo[namespace], faulty)
            if todo[namespace]:
                order.append(namespace)
        self._order = order
        filters = (it for namespace in order for it in todo[namespace])
        self._pending = frozenset(it for it in filters if not isinstance(it, str))
        self._done_for = () if order else asked
        return faulty

    def _todo(self, shapes: ShapeReader, namespace: str) -> _ToDo:
        """Return what is to be compiled, and then what is to be evaluated."""
        texts: _ToDo = deque()
        filters: _ToDo = deque()
        for it in shapes.asked[namespace]:
            if isinstance(it, str) and not self._selectors.is_read(it):
                texts.append(it)
            elif isinstance(it, RequestFilter) and not self._devices.is_evaluated(it.key):
                filters.append(it.key)
        return texts + filters

    def _turn(self, todo: _ToDo, faulty: set[str]) -> int:
        selectors, bound = self._selectors, self._selectors.allowed
        selectors.used, selectors.allowed = 0, min(self._left, max(_TURN, bound))
        while todo:
            it = todo[0]
            if not (selectors.read(it) if isinstance(it, str) else self._devices.evaluate(it)):
                break
            if isinstance(it, str) and selectors.fault(it):
                faulty.add(it)
            todo.popleft()
        selectors.allowed = bound
        return selectors.used

    def unevaluated(self, shapes: ShapeReader) -> dict[int, str]:
        """Return the filters that are not evaluated on all devices, and how far they are."""
        if not self._pending:
            return {}
        rows = shapes.filters.items()
        return {row: self._progress(it.key) for it, row in rows if it.key in self._pending}

    def _progress(self, key: DeviceFilterKey) -> str:
        """Return how far a filter is evaluated, roughly: each change is reported to its users."""
        done, most = self._devices.progress(key)
        part = max(most // _PROGRESS_PARTS, 1)
        return f"{done // part * part:,} of {most:,} devices"
