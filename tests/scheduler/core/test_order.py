"""Who is next: the steps that decide between queues, and turns against sorting all of it anew."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model import NONE, UNBOUND, Queues
from scheduler.core.order import QueueKeys, Turns, UnitKeyOf, by_queue
from scheduler.core.usage import Amounts, Usage
from tests.support.case import Case, ids
from tests.support.size import examples

TOTAL: Final = (100, 100, 100)
STEPS: Final = "abcdefgggi"  # of rule 18, by the place in a key; h and i are one: the row


class Q(NamedTuple):
    """A queue without quota: what it has, may have, and what its best unit asks for."""

    has: Amounts = (1, 1, 1)
    asks: Amounts = (1, 1, 1)
    due: Amounts = (4, 4, 4)
    quota: Amounts = (0, 0, 0)
    limit: Amounts = (UNBOUND,) * 3
    priority: int = 100


def queues_of(rows: list[Q], parent: Iterable[int] = ()) -> Queues:
    """Return queues."""
    has = np.array([row.has for row in rows], dtype=np.int64)
    return Queues(
        names=tuple(map(str, range(len(rows)))),
        parent=tuple(parent) or (NONE,) * len(rows),
        priority=tuple(row.priority for row in rows),
        quota=np.array([row.quota for row in rows], dtype=np.int64),
        limit=np.array([row.limit for row in rows], dtype=np.int64),
        weight=np.ones((len(rows), 3)),
        allocated=has,
        fixed=has * 0,
        requested=has,
    )


def keys_of(rows: list[Q]) -> list[tuple[Any, ...]]:
    """Return the places of queues."""
    queues = queues_of(rows)
    due = np.array([row.due for row in rows], dtype=np.int64)
    keys = QueueKeys(queues, Usage(queues), due, TOTAL)
    return [keys.key(q, row.asks) for q, row in enumerate(rows)]


def at_share(has: Amounts) -> tuple[Q, Q]:
    """Return a queue that is within its quota, and one that is not."""
    return Q(has, quota=(9, 9, 9)), Q((3, 4, 4))


# two queues -> the step that decides, and who is first; all later steps would say the opposite
DECIDED: list[Case[tuple[Q, Q], tuple[str, int]]] = [
    Case(
        "over its share in all three is last",
        (Q((5, 5, 5), quota=(9, 9, 9), priority=200), Q((5, 5, 4))),
        ("a", 1),
    ),
    Case("over in two is not over: CPU", at_share((4, 5, 5)), ("b", 0)),
    Case("over in two is not over: memory", at_share((5, 4, 5)), ("b", 0)),
    Case("over in two is not over: GPUs", at_share((5, 5, 4)), ("b", 0)),
    Case(
        "within the quota is first",
        (Q(quota=(2, 2, 1), priority=200), Q(quota=(2, 2, 2))),
        ("b", 1),
    ),
    Case(
        "a quota without bound is kept",
        (Q(quota=(2, 2, 1), priority=200), Q(quota=(UNBOUND,) * 3)),
        ("b", 1),
    ),
    Case("the larger priority is first", (Q(has=(0, 0, 0)), Q(priority=101)), ("c", 1)),
    Case(
        "who would have what it may not is last",
        (Q(has=(0, 0, 0), due=(4, 4, 0)), Q(has=(3, 3, 3), asks=(2, 2, 2))),
        ("d", 1),
    ),
    Case(
        "who has what it may not is last",
        (Q(has=(0, 0, 1), asks=(1, 1, 0), due=(4, 4, 0)), Q(has=(3, 3, 3), asks=(2, 2, 2))),
        ("d", 1),
    ),
    Case(
        "who has nothing of it and wants nothing may have nothing of it",
        (Q(has=(0, 0, 0), asks=(1, 1, 0), due=(4, 4, 0)), Q(has=(3, 3, 3))),
        ("e", 0),
    ),
    Case(
        "the smaller dominant share with the candidate",
        (Q(has=(0, 0, 0), asks=(3, 3, 3)), Q()),
        ("e", 1),
    ),
    Case(
        "the smaller dominant share without it",
        (Q(has=(2, 2, 2), asks=(1, 1, 1)), Q(has=(2, 2, 2), asks=(4, 4, 4), due=(8, 8, 8))),
        ("f", 1),
    ),
    Case(
        "the smaller share in GPUs",
        (
            Q(has=(1, 1, 0), asks=(1, 1, 0), due=(4, 4, 8)),
            Q(has=(1, 1, 0), asks=(1, 1, 0), due=(8, 4, 4)),
        ),
        ("g", 1),
    ),
    Case(
        "no bound is the largest share",
        (
            Q(has=(1, 1, 0), asks=(1, 1, 0), quota=(0, 0, UNBOUND)),
            Q(has=(1, 1, 0), asks=(1, 1, 0), due=(4, 4, 99)),
        ),
        ("g", 1),
    ),
    Case(
        "then in CPU",
        (
            Q(has=(0, 0, 1), asks=(0, 0, 1), due=(8, 4, 4)),
            Q(has=(0, 0, 1), asks=(0, 0, 1), due=(6, 9, 4)),
        ),
        ("g", 1),
    ),
    Case(
        "then in memory",
        (
            Q(has=(0, 0, 1), asks=(0, 0, 1), due=(8, 5, 4)),
            Q(has=(0, 0, 1), asks=(0, 0, 1), due=(8, 4, 4)),
        ),
        ("g", 1),
    ),
    Case("then the older", (Q(), Q()), ("i", 0)),
]


@pytest.mark.parametrize("case", DECIDED, ids=ids)
def test_each_step_decides(case: Case[tuple[Q, Q], tuple[str, int]]) -> None:
    """The first step at which two queues differ says who is first."""
    first, second = keys_of(list(case.given))
    place = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    assert (STEPS[place], int(second < first)) == case.want


# a queue -> its dominant share with the candidate, and without it
DOMINANT: list[Case[Q, tuple[float, float]]] = [
    Case("the largest of three", Q((1, 2, 3), (3, 0, 0), (8, 8, 8)), (0.5, 0.375)),
    Case("a limit bounds the share", Q((1, 1, 1), (0, 0, 0), limit=(4, 4, 2)), (0.5, 0.5)),
    Case("a quota raises it", Q((4, 4, 4), (0, 0, 0), quota=(8, 8, 8)), (0.5, 0.5)),
    Case(
        "without bound the total stands for it",
        Q((1, 1, 30), (0, 0, 20), (9, 9, 9), quota=(0, 0, UNBOUND)),
        (0.5, 0.3),
    ),
    Case("of 0 GPUs, devices times 1000", Q((0, 0, 2000), (0, 0, 1000), (4, 4, 0)), (3000, 2000)),
    Case("of 0 CPU, thousandths times 1000", Q((2, 0, 0), (0, 0, 0), (0, 4, 4)), (2000, 2000)),
    Case("of 0 memory, bytes times 1000", Q((0, 2, 0), (1, 0, 0), (4, 0, 4)), (2000, 2000)),
    Case("nothing of nothing is nothing", Q((0, 0, 0), (0, 0, 0), (0, 0, 0)), (0, 0)),
]


@pytest.mark.parametrize("case", DOMINANT, ids=ids)
def test_dominant_share(case: Case[Q, tuple[float, float]]) -> None:
    """The largest part of its share that a queue has of any resource."""
    assert keys_of([case.given])[0][4:6] == pytest.approx(case.want)


class U(NamedTuple):
    """A unit: its queue, its key, and what it asks for at each turn as long as it succeeds."""

    queue: int
    rank: int
    asks: list[Amounts]


class Played:
    """Units that take their turns, each until it has all that it asks for."""

    def __init__(self, rows: list[Q], parent: list[int], units: list[U]) -> None:
        queues = queues_of(rows, parent)
        due = np.array([row.due for row in rows], dtype=np.int64)
        self.parent = parent
        self.units = units
        self.usage = Usage(queues)
        self.keys = QueueKeys(queues, self.usage, due, TOTAL)
        self.done = [0] * len(units)
        self._queues = queues

    def asked(self, unit: int) -> Amounts:
        """Return what a unit asks for next."""
        return self.units[unit].asks[self.done[unit]]

    def key(self, unit: int) -> UnitKeyOf:
        """Return the place of a unit in its queue: later with each success."""
        return (self.units[unit].rank, self.done[unit], unit)

    def grant(self, unit: int) -> bool:
        """Give a unit what it asks for, and say whether it wants more."""
        self.usage.take(self.units[unit].queue, self.asked(unit), is_fixed=False)
        self.done[unit] += 1
        return self.done[unit] < len(self.units[unit].asks)

    def by_turns(self) -> list[int]:
        """Return the order that Turns gives."""
        waiting = by_queue((unit.queue, self.key(i)) for i, unit in enumerate(self.units))
        turns = Turns(self._queues, self.keys.key, self.asked, waiting)
        got = []
        while (unit := turns.pop()) is not None:
            got.append(unit)
            if self.grant(unit):
                turns.push(self.key(unit))
        return got

    def by_sorting(self) -> list[int]:
        """Return the order that comes of looking at everything each time."""
        left = set(range(len(self.units)))
        got = []
        while left:
            unit = self._first(NONE, left)
            assert unit is not None
            got.append(unit)
            if not self.grant(unit):
                left.remove(unit)
        return got

    def _first(self, queue: int, left: set[int]) -> int | None:
        own = [i for i in left if self.units[i].queue == queue]
        if own:
            return min(own, key=self.key)
        below = [(q, self._first(q, left)) for q, up in enumerate(self.parent) if up == queue]
        best = [(self.keys.key(q, self.asked(i)), i) for q, i in below if i is not None]
        return min(best)[1] if best else None


def played(parent: list[int], units: list[U], rows: list[Q] | None = None) -> list[int]:
    """Return the order in which units take turns."""
    return Played(rows or [Q(has=(0, 0, 0))] * len(parent), parent, units).by_turns()


ONE: Final = (1, 1, 1)

# parents of the queues, units -> the order of the units
TURNS: list[Case[tuple[list[int], list[U]], list[int]]] = [
    Case("nobody", ([NONE], []), []),
    Case("of one queue the smaller key", ([NONE], [U(0, 2, [ONE]), U(0, 1, [ONE])]), [1, 0]),
    Case(
        "queues take turns: who got something moves back",
        ([NONE, NONE], [U(0, 0, [ONE] * 3), U(1, 0, [ONE] * 3)]),
        [0, 1, 0, 1, 0, 1],
    ),
    Case(
        "a larger chunk comes later",
        ([NONE, NONE], [U(0, 0, [(2, 2, 2)]), U(1, 0, [ONE])]),
        [1, 0],
    ),
    Case(
        "who is put back competes with its neighbours",
        ([NONE], [U(0, 0, [ONE, ONE]), U(0, 0, [ONE]), U(0, 1, [ONE])]),
        [0, 1, 0, 2],
    ),
    Case(
        "departments take turns, not teams",
        ([NONE, NONE, 0, 0, 1], [U(2, 0, [ONE]), U(3, 0, [ONE]), U(4, 0, [ONE, ONE])]),
        [0, 2, 1, 2],
    ),
    Case(
        "a queue of units beside one of queues",
        ([NONE, NONE, 1, 2], [U(0, 0, [ONE, ONE]), U(3, 0, [ONE, ONE])]),
        [0, 1, 0, 1],
    ),
]


@pytest.mark.parametrize("case", TURNS, ids=ids)
def test_turns(case: Case[tuple[list[int], list[U]], list[int]]) -> None:
    """Level by level from the top, then in the queue."""
    assert played(*case.given) == case.want


def test_who_is_not_put_back_is_gone() -> None:
    """A unit that failed lets the next one try, and its queue keeps its place."""
    game = Played([Q((0, 0, 0))] * 2, [NONE] * 2, [U(0, 0, [ONE]), U(0, 1, [ONE]), U(1, 0, [ONE])])
    waiting = by_queue((unit.queue, game.key(i)) for i, unit in enumerate(game.units))
    turns = Turns(queues_of([Q()] * 2), game.keys.key, game.asked, waiting)
    assert [turns.pop() for _ in range(4)] == [0, 1, 2, None]
    assert turns.pop() is None


def test_who_lost_something_moves_up() -> None:
    """And his department with him, whoever has had his turn last."""
    rows = [Q((4, 4, 4)), Q((3, 3, 3)), Q((4, 4, 4)), Q((3, 3, 3))]
    units = [U(2, 0, [ONE]), U(3, 0, [ONE]), U(3, 1, [ONE])]
    game = Played(rows, [NONE, NONE, 0, 1], units)
    waiting = by_queue((unit.queue, game.key(i)) for i, unit in enumerate(game.units))
    turns = Turns(queues_of(rows, [NONE, NONE, 0, 1]), game.keys.key, game.asked, waiting)
    assert turns.pop() == 1
    game.usage.give(2, (3, 3, 3), is_fixed=False)
    turns.touch(2)
    assert [turns.pop(), turns.pop(), turns.pop()] == [0, 2, None]


_amounts = st.tuples(*[st.integers(0, 4)] * 3)
_queue: st.SearchStrategy[Q] = st.builds(
    Q,
    has=_amounts,
    asks=st.just(ONE),
    due=_amounts,
    quota=st.tuples(*[st.integers(-1, 4)] * 3),
    limit=st.tuples(*[st.sampled_from([-1, -1, 0, 3])] * 3),
    priority=st.sampled_from([100, 100, 101]),
)


@st.composite
def _games(draw: st.DrawFn) -> Callable[[], Played]:
    parent = [draw(st.integers(-1, q - 1)) for q in range(draw(st.integers(1, 7)))]
    leaves = [q for q in range(len(parent)) if q not in parent]
    rows = [draw(_queue) for _ in parent]
    unit = st.builds(
        U, st.sampled_from(leaves), st.integers(0, 2), st.lists(_amounts, min_size=1, max_size=3)
    )
    units = draw(st.lists(unit, max_size=8))
    return lambda: Played(rows, parent, units)


@settings(max_examples=examples(100))
@given(_games())
def test_turns_are_what_sorting_all_of_it_each_time_gives(new: Callable[[], Played]) -> None:
    """Only the way to the unit taken last is set right, and that is enough."""
    assert new().by_turns() == new().by_sorting()
