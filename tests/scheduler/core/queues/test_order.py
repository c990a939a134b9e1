"""Which queue is next: the steps that decide, and turns against sorting all of it anew."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.resources import NONE, UNBOUND, Amounts
from scheduler.core.model.usage import Usage
from scheduler.core.queues.order import JobsOrderByQueues, PodGroupKey, QueueOrder, keys_by_queue
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshot.queue_cases import TOTAL, QueueCase, queues_of

STEPS: Final = "abcdefgggi"  # of rule 18, by the place in a key; h and i are one: the row


def keys_of(rows: list[QueueCase]) -> list[tuple[Any, ...]]:
    queues = queues_of(rows)
    fair_shares = np.array([row.fair_share for row in rows], dtype=np.int64)
    keys = QueueOrder(queues, Usage(queues), fair_shares, TOTAL)
    return [keys.key(q, row.requested) for q, row in enumerate(rows)]


def at_share(has: Amounts) -> tuple[QueueCase, QueueCase]:
    """Return a queue that is within its quota, and one that is not."""
    return QueueCase(has, quota=(9, 9, 9)), QueueCase((3, 4, 4))


# two queues -> the step that decides, and which is first; all later steps say the opposite
DECIDED: list[Case[tuple[QueueCase, QueueCase], tuple[str, int]]] = [
    Case(
        "over its share in all three is last",
        (QueueCase((5, 5, 5), quota=(9, 9, 9), priority=200), QueueCase((5, 5, 4))),
        ("a", 1),
    ),
    Case("over in two is not over: CPU", at_share((4, 5, 5)), ("b", 0)),
    Case("over in two is not over: memory", at_share((5, 4, 5)), ("b", 0)),
    Case("over in two is not over: GPUs", at_share((5, 5, 4)), ("b", 0)),
    Case(
        "within the quota is first",
        (QueueCase(quota=(2, 2, 1), priority=200), QueueCase(quota=(2, 2, 2))),
        ("b", 1),
    ),
    Case(
        "a quota without bound is kept",
        (QueueCase(quota=(2, 2, 1), priority=200), QueueCase(quota=(UNBOUND,) * 3)),
        ("b", 1),
    ),
    Case(
        "the larger priority is first",
        (QueueCase(has=(0, 0, 0)), QueueCase(priority=101)),
        ("c", 1),
    ),
    Case(
        "a queue that would have what it may not is last",
        (
            QueueCase(has=(0, 0, 0), fair_share=(4, 4, 0)),
            QueueCase(has=(3, 3, 3), requested=(2, 2, 2)),
        ),
        ("d", 1),
    ),
    Case(
        "a queue that has what it may not is last",
        (
            QueueCase(has=(0, 0, 1), requested=(1, 1, 0), fair_share=(4, 4, 0)),
            QueueCase(has=(3, 3, 3), requested=(2, 2, 2)),
        ),
        ("d", 1),
    ),
    Case(
        "a queue that has and wants nothing of it may have a share of 0",
        (
            QueueCase(has=(0, 0, 0), requested=(1, 1, 0), fair_share=(4, 4, 0)),
            QueueCase(has=(3, 3, 3)),
        ),
        ("e", 0),
    ),
    Case(
        "the smaller dominant share with the candidate",
        (QueueCase(has=(0, 0, 0), requested=(3, 3, 3)), QueueCase()),
        ("e", 1),
    ),
    Case(
        "the smaller dominant share without it",
        (
            QueueCase(has=(2, 2, 2), requested=(1, 1, 1)),
            QueueCase(has=(2, 2, 2), requested=(4, 4, 4), fair_share=(8, 8, 8)),
        ),
        ("f", 1),
    ),
    Case(
        "the smaller share in GPUs",
        (
            QueueCase(has=(1, 1, 0), requested=(1, 1, 0), fair_share=(4, 4, 8)),
            QueueCase(has=(1, 1, 0), requested=(1, 1, 0), fair_share=(8, 4, 4)),
        ),
        ("g", 1),
    ),
    Case(
        "no bound is the largest share",
        (
            QueueCase(has=(1, 1, 0), requested=(1, 1, 0), quota=(0, 0, UNBOUND)),
            QueueCase(has=(1, 1, 0), requested=(1, 1, 0), fair_share=(4, 4, 99)),
        ),
        ("g", 1),
    ),
    Case(
        "then in CPU",
        (
            QueueCase(has=(0, 0, 1), requested=(0, 0, 1), fair_share=(8, 4, 4)),
            QueueCase(has=(0, 0, 1), requested=(0, 0, 1), fair_share=(6, 9, 4)),
        ),
        ("g", 1),
    ),
    Case(
        "then in memory",
        (
            QueueCase(has=(0, 0, 1), requested=(0, 0, 1), fair_share=(8, 5, 4)),
            QueueCase(has=(0, 0, 1), requested=(0, 0, 1), fair_share=(8, 4, 4)),
        ),
        ("g", 1),
    ),
    Case("then the older", (QueueCase(), QueueCase()), ("i", 0)),
]


@pytest.mark.parametrize("case", DECIDED, ids=ids)
def test_each_step_decides(case: Case[tuple[QueueCase, QueueCase], tuple[str, int]]) -> None:
    """The first step at which two queues differ says which is first."""
    first, second = keys_of(list(case.given))
    place = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    assert (STEPS[place], int(second < first)) == case.want


# a queue -> its dominant share with the candidate, and without it
DOMINANT: list[Case[QueueCase, tuple[float, float]]] = [
    Case("the largest of three", QueueCase((1, 2, 3), (3, 0, 0), (8, 8, 8)), (0.5, 0.375)),
    Case("a limit bounds the share", QueueCase((1, 1, 1), (0, 0, 0), limit=(4, 4, 2)), (0.5, 0.5)),
    Case("a quota raises it", QueueCase((4, 4, 4), (0, 0, 0), quota=(8, 8, 8)), (0.5, 0.5)),
    Case(
        "without bound the total stands for it",
        QueueCase((1, 1, 30), (0, 0, 20), (9, 9, 9), quota=(0, 0, UNBOUND)),
        (0.5, 0.3),
    ),
    Case(
        "of 0 GPUs, devices times 1000",
        QueueCase((0, 0, 2000), (0, 0, 1000), (4, 4, 0)),
        (3000, 2000),
    ),
    Case(
        "of 0 CPU, thousandths times 1000", QueueCase((2, 0, 0), (0, 0, 0), (0, 4, 4)), (2000, 2000)
    ),
    Case("of 0 memory, bytes times 1000", QueueCase((0, 2, 0), (1, 0, 0), (4, 0, 4)), (2000, 2000)),
    Case("nothing of nothing is nothing", QueueCase((0, 0, 0), (0, 0, 0), (0, 0, 0)), (0, 0)),
]


@pytest.mark.parametrize("case", DOMINANT, ids=ids)
def test_dominant_share(case: Case[QueueCase, tuple[float, float]]) -> None:
    """The largest part of its share that a queue has of any resource."""
    assert keys_of([case.given])[0][4:6] == pytest.approx(case.want)


class PodGroupCase(NamedTuple):
    queue: int
    rank: int
    requested: list[Amounts]


class Played:
    def __init__(
        self, rows: list[QueueCase], parent: list[int], podgroups: list[PodGroupCase]
    ) -> None:
        queues = queues_of(rows, parent)
        fair_shares = np.array([row.fair_share for row in rows], dtype=np.int64)
        self.parent = parent
        self.podgroups = podgroups
        self.usage = Usage(queues)
        self.queue_order = QueueOrder(queues, self.usage, fair_shares, TOTAL)
        self.done = [0] * len(podgroups)
        self._queues = queues

    def requested(self, podgroup: int) -> Amounts:
        return self.podgroups[podgroup].requested[self.done[podgroup]]

    def key(self, podgroup: int) -> PodGroupKey:
        """Return the place of a PodGroup in its queue: later with each success."""
        return (self.podgroups[podgroup].rank, self.done[podgroup], podgroup)

    def grant(self, podgroup: int) -> bool:
        self.usage.charge(
            self.podgroups[podgroup].queue, self.requested(podgroup), is_non_preemptible=False
        )
        self.done[podgroup] += 1
        return self.done[podgroup] < len(self.podgroups[podgroup].requested)

    def by_order(self) -> list[int]:
        """Return the order that JobsOrderByQueues gives."""
        waiting = keys_by_queue(
            (podgroup.queue, self.key(i)) for i, podgroup in enumerate(self.podgroups)
        )
        jobs_order = JobsOrderByQueues(self._queues, self.queue_order.key, self.requested, waiting)
        got = []
        while (podgroup := jobs_order.pop()) is not None:
            got.append(podgroup)
            if self.grant(podgroup):
                jobs_order.push(self.key(podgroup))
        return got

    def by_sorting(self) -> list[int]:
        """Return the order that comes of looking at everything each time."""
        left = set(range(len(self.podgroups)))
        got = []
        while left:
            podgroup = self._first(NONE, left)
            assert podgroup is not None
            got.append(podgroup)
            if not self.grant(podgroup):
                left.remove(podgroup)
        return got

    def _first(self, queue: int, left: set[int]) -> int | None:
        own = [i for i in left if self.podgroups[i].queue == queue]
        if own:
            return min(own, key=self.key)
        below = [(q, self._first(q, left)) for q, up in enumerate(self.parent) if up == queue]
        best = [(self.queue_order.key(q, self.requested(i)), i) for q, i in below if i is not None]
        return min(best)[1] if best else None


def played(
    parent: list[int], podgroups: list[PodGroupCase], rows: list[QueueCase] | None = None
) -> list[int]:
    return Played(rows or [QueueCase(has=(0, 0, 0))] * len(parent), parent, podgroups).by_order()


ONE: Final = (1, 1, 1)

# parents of the queues, PodGroups -> the order of the PodGroups
TURNS: list[Case[tuple[list[int], list[PodGroupCase]], list[int]]] = [
    Case("none", ([NONE], []), []),
    Case(
        "of one queue the smaller key",
        ([NONE], [PodGroupCase(0, 2, [ONE]), PodGroupCase(0, 1, [ONE])]),
        [1, 0],
    ),
    Case(
        "queues take turns: one that got something moves back",
        ([NONE, NONE], [PodGroupCase(0, 0, [ONE] * 3), PodGroupCase(1, 0, [ONE] * 3)]),
        [0, 1, 0, 1, 0, 1],
    ),
    Case(
        "a larger attempt comes later",
        ([NONE, NONE], [PodGroupCase(0, 0, [(2, 2, 2)]), PodGroupCase(1, 0, [ONE])]),
        [1, 0],
    ),
    Case(
        "one that is put back competes with its neighbours",
        (
            [NONE],
            [PodGroupCase(0, 0, [ONE, ONE]), PodGroupCase(0, 0, [ONE]), PodGroupCase(0, 1, [ONE])],
        ),
        [0, 1, 0, 2],
    ),
    Case(
        "departments take turns, not teams",
        (
            [NONE, NONE, 0, 0, 1],
            [PodGroupCase(2, 0, [ONE]), PodGroupCase(3, 0, [ONE]), PodGroupCase(4, 0, [ONE, ONE])],
        ),
        [0, 2, 1, 2],
    ),
    Case(
        "a queue of PodGroups beside one of queues",
        ([NONE, NONE, 1, 2], [PodGroupCase(0, 0, [ONE, ONE]), PodGroupCase(3, 0, [ONE, ONE])]),
        [0, 1, 0, 1],
    ),
]


@pytest.mark.parametrize("case", TURNS, ids=ids)
def test_jobs_order(case: Case[tuple[list[int], list[PodGroupCase]], list[int]]) -> None:
    """Level by level from the top, then in the queue."""
    assert played(*case.given) == case.want


def test_a_queue_that_is_not_put_back_is_removed() -> None:
    """A PodGroup that failed lets the next one try, and its queue keeps its place."""
    game = Played(
        [QueueCase((0, 0, 0))] * 2,
        [NONE] * 2,
        [PodGroupCase(0, 0, [ONE]), PodGroupCase(0, 1, [ONE]), PodGroupCase(1, 0, [ONE])],
    )
    waiting = keys_by_queue(
        (podgroup.queue, game.key(i)) for i, podgroup in enumerate(game.podgroups)
    )
    jobs_order = JobsOrderByQueues(
        queues_of([QueueCase()] * 2), game.queue_order.key, game.requested, waiting
    )
    assert [jobs_order.pop() for _ in range(4)] == [0, 1, 2, None]
    assert jobs_order.pop() is None


def test_a_queue_that_lost_something_moves_up() -> None:
    """And its department with it, whichever queue was served last."""
    rows = [QueueCase((4, 4, 4)), QueueCase((3, 3, 3)), QueueCase((4, 4, 4)), QueueCase((3, 3, 3))]
    podgroups = [PodGroupCase(2, 0, [ONE]), PodGroupCase(3, 0, [ONE]), PodGroupCase(3, 1, [ONE])]
    game = Played(rows, [NONE, NONE, 0, 1], podgroups)
    waiting = keys_by_queue(
        (podgroup.queue, game.key(i)) for i, podgroup in enumerate(game.podgroups)
    )
    jobs_order = JobsOrderByQueues(
        queues_of(rows, [NONE, NONE, 0, 1]), game.queue_order.key, game.requested, waiting
    )
    assert jobs_order.pop() == 1
    game.usage.refund(2, (3, 3, 3), is_non_preemptible=False)
    jobs_order.update_queue(2)
    assert [jobs_order.pop(), jobs_order.pop(), jobs_order.pop()] == [0, 2, None]


_amounts = st.tuples(*[st.integers(0, 4)] * 3)
_queue: st.SearchStrategy[QueueCase] = st.builds(
    QueueCase,
    has=_amounts,
    requested=st.just(ONE),
    fair_share=_amounts,
    quota=st.tuples(*[st.integers(-1, 4)] * 3),
    limit=st.tuples(*[st.sampled_from([-1, -1, 0, 3])] * 3),
    priority=st.sampled_from([100, 100, 101]),
)


@st.composite
def _games(draw: st.DrawFn) -> Callable[[], Played]:
    parent = [draw(st.integers(-1, q - 1)) for q in range(draw(st.integers(1, 7)))]
    podsets = [q for q in range(len(parent)) if q not in parent]
    rows = [draw(_queue) for _ in parent]
    podgroup = st.builds(
        PodGroupCase,
        st.sampled_from(podsets),
        st.integers(0, 2),
        st.lists(_amounts, min_size=1, max_size=3),
    )
    podgroups = draw(st.lists(podgroup, max_size=8))
    return lambda: Played(rows, parent, podgroups)


@settings(max_examples=examples(100))
@given(_games())
def test_the_order_is_what_sorting_all_of_it_each_time_gives(new: Callable[[], Played]) -> None:
    """Only the way to the PodGroup taken last is set right, and that is enough."""
    assert new().by_order() == new().by_sorting()
