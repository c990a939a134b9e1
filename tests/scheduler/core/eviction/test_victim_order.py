"""Which victim comes first, against comparing all of them each time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.eviction.victim_order import VictimOrder
from scheduler.core.eviction.victims import EvictionUnit
from scheduler.core.model.resources import NONE
from scheduler.core.model.usage import Usage
from scheduler.core.queues.order import QueueOrder
from tests.support.case import Case, ids
from tests.support.instruction_count import count_instructions
from tests.support.size import examples
from tests.support.snapshot.queue_cases import TOTAL, QueueCase, queues_of

ONE = (1, 1, 1)


def victim_order(rows: list[QueueCase], parent: list[int], units: list[EvictionUnit]) -> list[int]:
    fair_shares = np.array([row.fair_share for row in rows], dtype=np.int64)
    queues = queues_of(rows, parent)
    usage = Usage(queues)
    found = VictimOrder(queues, QueueOrder(queues, usage, fair_shares, TOTAL), units)
    return list(found.across_queues(usage, range(len(rows)))[0])


def eviction_units(*queues: int) -> list[EvictionUnit]:
    """Return a PodGroup of each of these queues, the oldest first."""
    return [EvictionUnit(queue, (0, row), ONE) for row, queue in enumerate(queues)]


FAR, NEAR, BELOW = QueueCase((9, 9, 9)), QueueCase((6, 6, 6)), QueueCase((2, 2, 2))

# queues, those above them, the queue of each candidate -> the line
LINES: list[Case[tuple[list[QueueCase], list[int], list[int]], list[int]]] = [
    Case("the newest first", ([FAR], [NONE], [0, 0, 0]), [2, 1, 0]),
    Case("the queue that has most of its share", ([NEAR, FAR], [NONE, NONE], [0, 1]), [1, 0]),
    Case("one below it last", ([BELOW, NEAR], [NONE, NONE], [0, 0, 1]), [2, 1, 0]),
    Case(
        "all come down together",
        ([FAR, FAR], [NONE, NONE], [0, 0, 1, 1]),
        [3, 1, 2, 0],
    ),
    Case(
        "as departments first",
        ([FAR, NEAR, FAR, BELOW], [2, 3, NONE, NONE], [1, 0]),
        [1, 0],
    ),
    Case(
        "the smaller priority of queues",
        ([NEAR._replace(priority=200), NEAR], [NONE, NONE], [0, 1]),
        [1, 0],
    ),
    Case(
        "a queue within its quota after one above it",
        ([FAR._replace(quota=(9, 9, 9)), NEAR._replace(quota=(5, 9, 9))], [NONE, NONE], [0, 1]),
        [1, 0],
    ),
]


@pytest.mark.parametrize("case", LINES, ids=ids)
def test_which_queue_loses_first(
    case: Case[tuple[list[QueueCase], list[int], list[int]], list[int]],
) -> None:
    """The queue that would be last in the order."""
    rows, parent, queues = case.given
    assert victim_order(rows, parent, eviction_units(*queues)) == case.want


def test_what_a_queue_would_lose_counts() -> None:
    """A queue that a large loss would bring down comes after one that keeps more."""
    large = EvictionUnit(0, (0, 0), (4, 4, 4))
    small = EvictionUnit(1, (0, 1), ONE)
    assert victim_order([NEAR, NEAR], [NONE, NONE], [large, small]) == [1, 0]


def test_what_was_placed_since_counts() -> None:
    """The line begins with what queues have by now."""
    queues = queues_of([NEAR, NEAR], [NONE, NONE])
    usage = Usage(queues)
    usage.charge(0, ONE, is_non_preemptible=False)
    fair_shares = np.full((2, 3), 4.0)
    keys = QueueOrder(queues, usage, fair_shares, TOTAL)
    assert (
        next(VictimOrder(queues, keys, eviction_units(0, 1)).across_queues(usage, [0, 1])[0]) == 0
    )
    assert usage.allocated == [[7, 7, 7], [6, 6, 6]]  # and nothing of it changes


def test_a_podgroup_may_lose_some_of_it_first() -> None:
    """Eviction units of one PodGroup: what comes on top of its minimum is lost before the rest."""
    core, on_top = EvictionUnit(0, (0, 0, 7), ONE), EvictionUnit(0, (0, 1, 7), ONE)
    assert victim_order([FAR], [NONE], [core, on_top, core]) == [1, 2, 0]


@st.composite
def clusters(draw: Any) -> tuple[list[QueueCase], list[int], list[EvictionUnit]]:
    amounts = st.tuples(*[st.integers(0, 4)] * 3)
    parent = [NONE, NONE, *draw(st.lists(st.sampled_from([NONE, 0, 1]), min_size=1, max_size=4))]
    podsets = [q for q in range(len(parent)) if q not in parent]
    found = [
        EvictionUnit(draw(st.sampled_from(podsets)), (draw(st.integers(0, 1)), row), draw(amounts))
        for row in range(draw(st.integers(0, 7)))
    ]
    rows = []
    for q in range(len(parent)):
        own = [one.amounts for one in found if q in (one.queue, parent[one.queue])]
        more, fair_shares = draw(amounts), draw(amounts)
        cpu, memory, gpu = map(sum, zip(more, *own, strict=True))
        rows.append(
            QueueCase(
                (cpu, memory, gpu),
                fair_share=fair_shares,
                quota=draw(amounts),
                priority=draw(st.integers(0, 1)),
            )
        )
    return rows, parent, found


def by_looking(rows: list[QueueCase], parent: list[int], units: list[EvictionUnit]) -> list[int]:
    queues = queues_of(rows, parent)
    usage = Usage(queues)
    keys = QueueOrder(
        queues, usage, np.array([row.fair_share for row in rows], dtype=np.float64), TOTAL
    )

    def place(queue: int, one: EvictionUnit) -> tuple[Any, ...]:
        cpu, memory, gpu = one.amounts
        now = list(keys.key(queue, (0, 0, 0)))
        now[4] = keys.key(queue, (-cpu, -memory, -gpu))[4]
        return tuple(now)

    def last(queue: int) -> EvictionUnit | None:
        own = [one for one in left if one.queue == queue]
        if own:
            return max(own, key=lambda one: one.key)
        below = [(q, last(q)) for q, up in enumerate(parent) if up == queue]
        named = [(place(q, one), one) for q, one in below if one is not None]
        return max(named, key=lambda it: it[0])[1] if named else None

    found = []
    left = list(units)
    while (one := last(NONE)) is not None:
        left.remove(one)
        usage.refund(one.queue, one.amounts, is_non_preemptible=False)
        found.append(units.index(one))
    return found


@given(clusters())
@settings(max_examples=examples(100))
def test_it_is_the_order_that_comparing_all_units_gives(
    cluster: tuple[list[QueueCase], list[int], list[EvictionUnit]],
) -> None:
    rows, parent, found = cluster
    assert victim_order(rows, parent, found) == by_looking(rows, parent, found)


def of_priorities(*priorities: int, by_priority: bool) -> tuple[VictimOrder, list[EvictionUnit]]:
    """Return a victim order of one queue, by priority or else by age, and its eviction units."""
    rows = [QueueCase((0, 0, 0))]
    keys = [(-one, row) if by_priority else (row,) for row, one in enumerate(priorities)]
    units = [EvictionUnit(0, key, ONE, one) for key, one in zip(keys, priorities, strict=True)]
    queues = queues_of(rows, [NONE])
    fair_shares = np.zeros((1, 3), dtype=np.int64)
    return VictimOrder(queues, QueueOrder(queues, Usage(queues), fair_shares, TOTAL), units), units


@pytest.mark.parametrize("by_priority", [True, False], ids=["first by priority", "by age only"])
@given(st.lists(st.integers(0, 4)), st.integers(0, 5), st.booleans())
def test_victims_of_a_smaller_priority(
    by_priority: bool, priorities: list[int], most: int, odd_only: bool
) -> None:
    """They are those of the line that have, in its order, though one is no more."""
    found, units = of_priorities(*priorities, by_priority=by_priority)
    if priorities:
        found.drop(len(priorities) // 2)
    is_eligible = (lambda row: row % 2 == 1) if odd_only else None
    all_victims = found.across_queues(
        Usage(queues_of([QueueCase((0, 0, 0))], [NONE])), [0], is_eligible
    )[0]
    needed_pods = [row for row in all_victims if units[row].priority < most]
    rows, count = found.below_priority(0, most, is_eligible)
    assert ([*rows], count) == (needed_pods, len(needed_pods))


def test_not_all_are_looked_at_each_time() -> None:
    """Twice as many cost hardly more."""

    def cost(count: int) -> int:
        found, _ = of_priorities(*[20, 60] * count, by_priority=True)
        assert found.below_priority(0, 60)[1] == count
        return count_instructions(lambda: found.below_priority(0, 60))

    assert cost(1000) < 1.2 * cost(500)
