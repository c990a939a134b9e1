"""The division of one amount, and of all amounts down the tree."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.resources import NONE, UNBOUND
from scheduler.core.model.snapshot import SnapshotQueues
from scheduler.core.queues.fair_share import SiblingQueues, allocatable_share, divide, fair_share
from tests.reference.scheduler import fair_share as reference


class QueueCase(NamedTuple):
    quota: float
    weight: float
    demand: float
    limit: float = UNBOUND
    priority: int = 100


def siblings(queues: list[QueueCase]) -> SiblingQueues:
    """Return queues, the oldest first; what they have and want in thousandths."""
    wants = [q.demand if q.limit == UNBOUND else min(q.limit, q.demand) for q in queues]
    return SiblingQueues(
        quota=[UNBOUND if q.quota == UNBOUND else round(q.quota * 1000) for q in queues],
        demand=[round(want * 1000) for want in wants],
        weight=[q.weight for q in queues],
        priority=[q.priority for q in queues],
    )


TWO = [QueueCase(2, 2, 6), QueueCase(2, 2, 6)]
DIVISIONS: dict[str, tuple[float, list[QueueCase], list[float]]] = {
    "a limit leaves something over": (
        15,
        [QueueCase(2, 2, 6, limit=6), QueueCase(2, 2, 6)],
        [6, 6],
    ),
    "enough for all": (12, TWO, [6, 6]),
    "what is left goes by weight": (8, [QueueCase(2, 1, 6), QueueCase(2, 3, 6)], [3, 5]),
    "no queue gets more than its limit": (
        12,
        [QueueCase(2, 2, 6, limit=5), QueueCase(2, 2, 6)],
        [5, 6],
    ),
    "the larger rest wins": (11, [QueueCase(2, 1, 10), QueueCase(2, 4, 10)], [3, 8]),
    "of equal rests the older wins": (11, TWO, [6, 5]),
    "priority before weight": (
        6,
        [QueueCase(2, 100, 6, priority=1), QueueCase(2, 1, 6, priority=2)],
        [2, 4],
    ),
    "priority": (6, [QueueCase(2, 2, 6, priority=1), QueueCase(2, 2, 6, priority=2)], [2, 4]),
    "a queue that wants a fraction": (
        10,
        [QueueCase(0, 1, 4.3), QueueCase(0, 1, 9), QueueCase(0, 1, 9)],
        [4, 3, 3],
    ),
    "quotas are not scaled down": (3, [QueueCase(2, 1, 6), QueueCase(4, 1, 6)], [2, 4]),
    "no more than is wanted of a quota": (10, [QueueCase(8, 1, 3), QueueCase(0, 1, 20)], [3, 7]),
    "a quota without bound is all": (10, [QueueCase(UNBOUND, 1, 7), QueueCase(0, 1, 20)], [7, 3]),
    "no weight, nothing beyond the quota": (10, [QueueCase(2, 0, 9), QueueCase(2, 1, 5)], [2, 5]),
    "no queue has weight": (10, [QueueCase(2, 0, 9), QueueCase(2, 0, 9)], [2, 2]),
    "content ones leave their offer to others": (
        12,
        [QueueCase(0, 1, 1), QueueCase(0, 1, 9), QueueCase(0, 1, 9)],
        [1, 6, 5],
    ),
    "a queue that wants exactly what is offered leaves nothing": (
        12e9,
        [QueueCase(1e9, 2, 8e9), QueueCase(0, 3, 5e9), QueueCase(1e9, 1, 4e9)],
        [4333333333, 5e9, 2666666667],
    ),
    "alone with its weight": (3, [QueueCase(0, 0.6, 9), QueueCase(0, 1, 9, priority=1)], [3, 0]),
    "two with a weight below one": (
        25,
        [QueueCase(0, 0.1, 30), QueueCase(0, 0.1, 11, priority=1)],
        [25, 0],
    ),
    "weights of tenths": (
        10,
        [QueueCase(0, 0.1, 2), QueueCase(0, 0.1, 20), QueueCase(0, 0.2, 20)],
        [2, 2, 6],
    ),
    "more than a float can count": (
        9 * 10**17 + 29,
        [QueueCase(0, 1, 9 * 10**17), QueueCase(0, 2, 9 * 10**17)],
        [3 * 10**17 + 10, 6 * 10**17 + 19],
    ),
}


@pytest.mark.parametrize("case", DIVISIONS)
def test_a_division(case: str) -> None:
    """An amount is divided by quota first, then by priority and weight."""
    amount, queues, want = DIVISIONS[case]
    shares = divide(int(amount * 1000), siblings(queues), granularity=1000)
    assert shares == [round(share * 1000) for share in want]


def _parts(most: int) -> st.SearchStrategy[float]:
    return st.integers(0, most * 1000).map(lambda thousandths: thousandths / 1000)


NUMBERS = st.one_of(st.integers(0, 12), st.integers(0, 2**50))
QUEUES = st.lists(
    st.builds(
        QueueCase,
        quota=st.one_of(st.just(0), st.just(UNBOUND), NUMBERS),
        weight=st.one_of(st.integers(0, 9), _parts(3), st.integers(0, 10**9)),
        demand=NUMBERS,
        limit=st.one_of(st.just(UNBOUND), NUMBERS),
        priority=st.integers(1, 2),
    ),
    min_size=1,
    max_size=6,
)


@given(amount=NUMBERS, queues=QUEUES)
def test_any_division_is_exact(amount: int, queues: list[QueueCase]) -> None:
    """As it is worked out in fractions: whatever the weights and the size."""
    reclaimers = [
        reference.ResourceShare(
            q.quota,
            Fraction(str(q.weight)),
            q.demand,
            limit=q.limit,
            priority=q.priority,
            created=f"{row:02}",
        )
        for row, q in enumerate(queues)
    ]
    want, _ = reference.divide(amount, reclaimers)
    got = divide(amount * 1000, siblings(queues), granularity=1000)
    assert got == [share * 1000 for share in want]


def tree(
    parents: list[int], quota: list[int], requested: list[int], weight: list[float]
) -> SnapshotQueues:
    """Return queues that share GPUs; of the rest nothing."""
    gpus = np.zeros((len(parents), 3), dtype=np.int64)
    some = gpus.copy()
    some[:, 2] = np.array(requested) * 1000
    bound = gpus.copy()
    bound[:, 2] = np.where(np.array(quota) == UNBOUND, UNBOUND, np.array(quota) * 1000)
    return SnapshotQueues(
        names=tuple(map(str, range(len(parents)))),
        parent=tuple(parents),
        priority=(100,) * len(parents),
        quota=bound,
        limit=np.full((len(parents), 3), UNBOUND),
        weight=np.repeat(np.array(weight)[:, None], 3, axis=1),
        allocated=gpus,
        non_preemptible=gpus,
        requested=some,
    )


def test_children_share_what_their_parent_got() -> None:
    """Each level divides the share of the queue above it, and no more."""
    queues = tree(
        parents=[NONE, NONE, 0, 0, 1],
        quota=[6, 2, 0, 0, 8],
        requested=[20, 8, 10, 10, 8],
        weight=[1, 1, 1, 3, 1],
    )
    fair_shares = fair_share(queues, (0, 0, 12_000))
    assert (fair_shares[:, 2] / 1000).tolist() == [8, 4, 2, 6, 8]


def test_a_limit_bounds_what_is_given_and_leaves_it_to_others() -> None:
    queues = tree([NONE, NONE, 0, 0], [0, 0, 0, 0], [18, 9, 9, 9], [1, 1, 1, 1])
    queues.limit[0, 2], queues.limit[2, 2] = 6000, 2000
    fair_shares = fair_share(queues, (0, 0, 14_000))
    assert (fair_shares[:, 2] / 1000).tolist() == [6, 8, 2, 4]


def test_gpus_are_given_whole_and_the_rest_as_it_comes() -> None:
    """GPUs are rounded to whole devices; thousandths of a CPU are the unit of CPU."""
    queues = tree([NONE, NONE], [0, 0], [9, 9], [1, 1])
    queues.requested[:, 0] = 9000
    fair_shares = fair_share(queues, (3001, 0, 3000))
    assert fair_shares[:, 2].tolist() == [2000, 1000]
    assert fair_shares[:, 0].tolist() == [1501, 1500]


def test_a_queue_that_gets_all_it_wants_gets_exactly_that() -> None:
    """Also of parts of a GPU, of which a float times 1000 is sometimes a little less."""
    queues = tree([NONE], [0], [0], [1])
    for thousandths in range(10, 10_000, 10):
        queues.requested[0, 2] = thousandths
        assert fair_share(queues, (0, 0, 10_000))[0, 2] == thousandths


@pytest.mark.parametrize(
    ("quota", "limit", "fair_shares", "want"),
    [
        (UNBOUND, 5, 3, 5),
        (UNBOUND, UNBOUND, 3, UNBOUND),
        (4, UNBOUND, 3, 4),
        (2, UNBOUND, 3, 3),
        (4, 3, 9, 3),
        (2, 0, 9, 0),
    ],
)
def test_what_a_queue_may_fill(quota: int, limit: int, fair_shares: int, want: int) -> None:
    """Without a bound on its quota, its limit; else quota or share, at most the limit."""
    queues = tree([NONE], [0], [0], [1])
    queues.quota[0, 2], queues.limit[0, 2] = quota, limit
    assert allocatable_share(queues, np.array([[0, 0, fair_shares]]))[0, 2] == want
