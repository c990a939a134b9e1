"""Which queue may reclaim from which: each rule by itself, and all against plain loops."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.resources import NONE, UNBOUND, Amounts
from scheduler.core.model.snapshot import SnapshotQueues
from scheduler.core.model.usage import Usage
from scheduler.core.queues.reclaimable import QueueShares, Reclaimable, Reclaimer, ReclaimState
from tests.reference.scheduler import reclaimable as reference
from tests.support.case import Case, ids
from tests.support.size import examples


class QueueCase(NamedTuple):
    """A queue as it is with GPUs; of the rest it has nothing, and may have all."""

    above: int = NONE
    has: int = 0
    fair_share: int = 0
    quota: int = 0
    limit: int = UNBOUND
    non_preemptible: int = 0


Row = tuple[
    int, Amounts, Amounts, Amounts, Amounts, Amounts
]  # above, quota, limit, due, has, fixed


def rows_of(queues: Sequence[QueueCase]) -> list[Row]:
    free = (UNBOUND, UNBOUND)
    return [
        (
            q.above,
            (*free, q.quota),
            (*free, q.limit),
            (0, 0, q.fair_share),
            (0, 0, q.has),
            (0, 0, q.non_preemptible),
        )
        for q in queues
    ]


def reclaimable_of(
    rows: Sequence[Row], reclaimer: Reclaimer, quota_only_queues: Sequence[bool] = ()
) -> Reclaimable:
    """Return what a claim may take; *goals* say of queues whether their children get to quotas."""
    above, quota, limit, fair_shares, has, fixed = zip(*rows, strict=True)
    columns = [np.array(column, dtype=np.int64) for column in (quota, limit, has, fixed)]
    queues = SnapshotQueues(
        names=tuple(map(str, range(len(rows)))),
        parent=above,
        priority=(100,) * len(rows),
        quota=columns[0],
        limit=columns[1],
        weight=np.ones((len(rows), 3)),
        allocated=columns[2],
        non_preemptible=columns[3],
        requested=columns[2],
        is_quota_only=tuple(quota_only_queues),
    )
    return Reclaimable(
        QueueShares(queues, np.array(fair_shares, dtype=np.float64)), Usage(queues), reclaimer
    )


def gpus(queue: int, number: int, *, is_non_preemptible: bool = False) -> Reclaimer:
    return Reclaimer(queue, (0, 0, number), is_non_preemptible)


# queues and a claim -> whether it has one
RECLAIMERS: list[Case[tuple[list[QueueCase], Reclaimer], bool]] = [
    Case("up to what is due to it", ([QueueCase(has=2, fair_share=4)], gpus(0, 2)), want=True),
    Case("and no more", ([QueueCase(has=3, fair_share=4)], gpus(0, 2)), want=False),
    Case(
        "of anything",
        ([QueueCase(fair_share=4)], Reclaimer(0, (1, 0, 2), is_non_preemptible=False)),
        want=False,
    ),
    Case(
        "what is due to those above does not matter",
        ([QueueCase(above=1, fair_share=4), QueueCase(has=9, fair_share=1)], gpus(0, 2)),
        want=True,
    ),
    Case(
        "for good up to the quota",
        (
            [QueueCase(fair_share=4, quota=3, non_preemptible=1)],
            gpus(0, 2, is_non_preemptible=True),
        ),
        want=True,
    ),
    Case(
        "for good no more than that",
        (
            [QueueCase(fair_share=4, quota=3, non_preemptible=2)],
            gpus(0, 2, is_non_preemptible=True),
        ),
        want=False,
    ),
    Case(
        "for good within the quotas above",
        (
            [QueueCase(above=1, fair_share=4, quota=3), QueueCase(quota=4, non_preemptible=3)],
            gpus(0, 2, is_non_preemptible=True),
        ),
        want=False,
    ),
    Case(
        "without bound",
        ([QueueCase(fair_share=4, quota=UNBOUND)], gpus(0, 2, is_non_preemptible=True)),
        want=True,
    ),
]


@pytest.mark.parametrize("case", RECLAIMERS, ids=ids)
def test_which_podgroup_may_reclaim(case: Case[tuple[list[QueueCase], Reclaimer], bool]) -> None:
    queues, reclaimer = case.given
    assert reclaimable_of(rows_of(queues), reclaimer).may_reclaim is case.want


# the queue claimed for, another one -> which are compared; 0 to 4: A of a, B of b, b, a, c on top
PAIRS: list[Case[tuple[int, int], tuple[int, int]]] = [
    Case("departments, if they differ", (0, 1), (3, 2)),
    Case("teams of one department", (0, 5), (0, 5)),
    Case("a department and a team that is in none", (1, 4), (2, 4)),
    Case("the other way round", (4, 1), (4, 2)),
]


@pytest.mark.parametrize("case", PAIRS, ids=ids)
def test_where_two_queues_are_compared(case: Case[tuple[int, int], tuple[int, int]]) -> None:
    rows = rows_of(
        [
            QueueCase(above=3),
            QueueCase(above=2),
            QueueCase(),
            QueueCase(),
            QueueCase(),
            QueueCase(above=3),
        ]
    )
    reclaimer_queue, victim_queue = case.given
    assert reclaimable_of(rows, gpus(reclaimer_queue, 1)).compared_queues(victim_queue) == case.want


# the other queue, the preemptor's, the GPUs it asks for -> whether that may lose anything
VICTIM_QUEUES: list[Case[tuple[QueueCase, QueueCase, int], bool]] = [
    Case(
        "owed, it is above its quota", (QueueCase(has=3, quota=2), QueueCase(quota=2), 2), want=True
    ),
    Case("owed, it is below", (QueueCase(has=1, quota=2), QueueCase(quota=2), 2), want=False),
    Case("owed, it is just at it", (QueueCase(has=2, quota=2), QueueCase(quota=2), 2), want=True),
    Case(
        "owed, it has no bound", (QueueCase(has=2, quota=UNBOUND), QueueCase(quota=2), 2), want=True
    ),
    Case(
        "not owed, it is above its share",
        (QueueCase(has=5, fair_share=4), QueueCase(quota=1), 2),
        want=True,
    ),
    Case(
        "not owed, it is at it", (QueueCase(has=4, fair_share=4), QueueCase(quota=1), 2), want=False
    ),
    Case(
        "not owed, above its quota only",
        (QueueCase(has=4, fair_share=4, quota=1), QueueCase(quota=1), 2),
        want=False,
    ),
]


@pytest.mark.parametrize("case", VICTIM_QUEUES, ids=ids)
def test_which_queues_may_lose(case: Case[tuple[QueueCase, QueueCase, int], bool]) -> None:
    """Each queue with more than it may keep; what that is depends on the reclaimer."""
    victim_queue, reclaimer_queue, number = case.given
    assert (
        reclaimable_of(rows_of([victim_queue, reclaimer_queue]), gpus(1, number)).may_reclaim_from(
            0
        )
        is case.want
    )


# the ancestor with quota-only, and what is requested -> whether the other queue may lose
GOALS: list[Case[tuple[str, int], bool]] = [
    Case("none: it gets as far as its share", ("", 3), want=True),
    Case("the parent of both: no further than its quota", ("above", 3), want=False),
    Case("as far as that", ("above", 2), want=True),
    Case("one further up", ("top", 3), want=True),
    Case("one beside the parent of both", ("beside", 3), want=True),
    Case("itself", ("mine", 3), want=True),
]


@pytest.mark.parametrize("case", GOALS, ids=ids)
def test_how_far_it_gets(case: Case[tuple[str, int], bool]) -> None:
    """As the queue just above those that are compared says."""
    dump, number = case.given
    names = ("theirs", "mine", "above", "top", "beside")
    victim_queue, reclaimer_queue = (
        QueueCase(above=2, has=5, fair_share=4),
        QueueCase(above=2, fair_share=4, quota=2),
    )
    rows = rows_of(
        [
            victim_queue,
            reclaimer_queue,
            QueueCase(above=3, has=5),
            QueueCase(has=5),
            QueueCase(above=3),
        ]
    )
    reclaimable = reclaimable_of(rows, gpus(1, number), [name == dump for name in names])
    assert reclaimable.may_reclaim_from(0) is case.want


def test_between_departments_their_own_goals_do_not_count() -> None:
    """They are at the top, where no parent can say so."""
    victim_queue, reclaimer_queue = (
        QueueCase(above=2, has=5, fair_share=4),
        QueueCase(above=3, fair_share=4),
    )
    rows = rows_of(
        [victim_queue, reclaimer_queue, QueueCase(has=5, fair_share=4), QueueCase(fair_share=4)]
    )
    assert reclaimable_of(rows, gpus(1, 3), [True] * 4).may_reclaim_from(0)


def test_only_a_requested_resource_makes_a_queue_a_candidate() -> None:
    """A queue above its quota of CPUs has nothing that helps a request for GPUs."""
    everything = (UNBOUND,) * 3
    victim_queue: Row = (NONE, (2, UNBOUND, 2), everything, (9, 9, 9), (3, 0, 1), (0, 0, 0))
    reclaimer_queue: Row = (NONE, everything, everything, (9, 9, 9), (0, 0, 0), (0, 0, 0))
    assert not reclaimable_of([victim_queue, reclaimer_queue], gpus(1, 1)).may_reclaim_from(0)
    assert reclaimable_of(
        [victim_queue, reclaimer_queue], Reclaimer(1, (1, 0, 1), is_non_preemptible=False)
    ).may_reclaim_from(0)


class ReclaimCase(NamedTuple):
    """Queues, of which the last claims so many, and what others lose: queue, number."""

    queues: list[QueueCase]
    reclaimers: int
    evicted: list[tuple[int, int]]


def taken(reclaim_state: ReclaimState, eviction_units: Sequence[tuple[int, Amounts]]) -> list[bool]:
    """Take eviction units, and return for each whether it might be."""
    may = []
    for queue, amounts in eviction_units:
        may.append(reclaim_state.may_lose(queue))
        reclaim_state.subtract(queue, amounts)
    return may


# what is taken -> whether each eviction unit may be, and whether all is fair
EVICTED: list[Case[ReclaimCase, tuple[list[bool], bool]]] = [
    Case(
        "from above its share",
        ReclaimCase([QueueCase(has=8, fair_share=4), QueueCase(fair_share=4)], 1, [(0, 1)]),
        ([True], True),
    ),
    Case(
        "not at it",
        ReclaimCase([QueueCase(has=4, fair_share=4), QueueCase(fair_share=4)], 1, [(0, 1)]),
        ([False], True),
    ),
    Case(
        "from above its quota for a queue within its own",
        ReclaimCase(
            [QueueCase(has=4, fair_share=4, quota=2), QueueCase(fair_share=2, quota=2)], 2, [(0, 2)]
        ),
        ([True], True),
    ),
    Case(
        "not for one that would exceed its own",
        ReclaimCase(
            [QueueCase(has=4, fair_share=4, quota=2), QueueCase(fair_share=2, quota=1)], 2, [(0, 2)]
        ),
        ([False], True),
    ),
    Case(
        "the last eviction unit may go below, and ends it",
        ReclaimCase([QueueCase(has=5, fair_share=4), QueueCase(fair_share=4)], 4, [(0, 3), (0, 1)]),
        ([True, False], True),
    ),
    Case(
        "two teams have one department to lose from",
        ReclaimCase(
            [
                QueueCase(2, has=3, fair_share=9),
                QueueCase(2, has=2, fair_share=9),
                QueueCase(has=5, fair_share=4),
                QueueCase(fair_share=4),
            ],
            2,
            [(0, 1), (1, 1)],
        ),
        ([True, False], True),
    ),
    Case(
        "between teams of one department that does not matter",
        ReclaimCase(
            [
                QueueCase(1, has=3, fair_share=2),
                QueueCase(has=3, fair_share=3),
                QueueCase(1, fair_share=1),
            ],
            1,
            [(0, 1)],
        ),
        ([True], True),
    ),
    Case(
        "fair: still better off than the reclaimer",
        ReclaimCase(
            [
                QueueCase(has=8, fair_share=4),
                QueueCase(has=4, fair_share=4),
                QueueCase(1, fair_share=4),
            ],
            1,
            [(0, 1)],
        ),
        ([True], True),
    ),
    Case(
        "unfair: as badly off",
        ReclaimCase(
            [
                QueueCase(has=6, fair_share=4),
                QueueCase(has=4, fair_share=4),
                QueueCase(1, fair_share=4),
            ],
            1,
            [(0, 1)],
        ),
        ([True], False),
    ),
    Case(
        "a queue with a share of 0 cannot be worse off",
        ReclaimCase(
            [QueueCase(has=6), QueueCase(has=4, fair_share=4), QueueCase(1, fair_share=4)],
            1,
            [(0, 6)],
        ),
        ([True], True),
    ),
    Case(
        "nor is a queue with a share better off than one with none",
        ReclaimCase(
            [QueueCase(has=90, fair_share=4), QueueCase(has=4), QueueCase(1, fair_share=4)],
            1,
            [(0, 1)],
        ),
        ([True], False),
    ),
]


@pytest.mark.parametrize("case", EVICTED, ids=ids)
def test_what_may_be_taken(case: Case[ReclaimCase, tuple[list[bool], bool]]) -> None:
    """Unit by unit from queues with too much, and in the end no queue is worse off for it."""
    queues, reclaimers, eviction_units = case.given
    reclaim_state = ReclaimState(reclaimable_of(rows_of(queues), gpus(len(queues) - 1, reclaimers)))
    may = taken(reclaim_state, [(queue, (0, 0, number)) for queue, number in eviction_units])
    assert (may, reclaim_state.is_fair()) == case.want


def test_what_is_taken_changes_nothing() -> None:
    """It is a question: the next one begins anew."""
    reclaimable = reclaimable_of(
        rows_of([QueueCase(has=5, fair_share=4), QueueCase(fair_share=4)]), gpus(1, 1)
    )
    for _ in range(2):
        assert taken(ReclaimState(reclaimable), [(0, (0, 0, 1))] * 2) == [True, False]


AMOUNTS = st.tuples(*[st.integers(0, 4)] * 3)
ASKED = st.tuples(*[st.integers(-1, 4)] * 3)  # reserved places that are given up come off
BOUNDS = st.tuples(*[st.one_of(st.just(UNBOUND), st.integers(0, 6))] * 3)


@st.composite
def trees(draw: Any) -> list[tuple[int, Amounts, Amounts, Amounts, Amounts, Amounts]]:
    rows: list[Row] = []
    depths: list[int] = []
    for i in range(draw(st.integers(2, 7))):
        may = [NONE, *(q for q in range(i) if depths[q] < 2)]
        above = draw(st.sampled_from(may))
        depths.append(0 if above == NONE else depths[above] + 1)
        has, podset_tasks = draw(AMOUNTS), draw(AMOUNTS)
        fixed = tuple(map(min, has, podset_tasks))
        rows.append((above, draw(BOUNDS), draw(BOUNDS), draw(AMOUNTS), has, fixed))
    return rows


def plain_queues(rows: list[Row], quota_only_queues: list[bool]) -> list[reference.QueueShares]:
    plain: list[reference.QueueShares] = []
    for (above, quota, limit, fair_shares, has, non_preemptible), is_only in zip(
        rows, quota_only_queues, strict=True
    ):
        up = None if above == NONE else plain[above]
        goal = "quota-only" if is_only else "fair-share"
        plain.append(
            reference.QueueShares(up, quota, limit, fair_shares, [*has], [*non_preemptible], goal)
        )
    return plain


@given(st.data())
@settings(max_examples=examples(200))
def test_it_agrees_with_plain_loops(data: st.DataObject) -> None:
    rows = data.draw(trees())
    inner = {above for above, *_ in rows}
    podsets = [q for q in range(len(rows)) if q not in inner]
    reclaimer_queue = data.draw(st.sampled_from(podsets))
    others = [q for q in podsets if q != reclaimer_queue]
    eviction_units = (
        data.draw(st.lists(st.tuples(st.sampled_from(others), AMOUNTS), max_size=5))
        if others
        else []
    )
    requested, is_non_preemptible = data.draw(ASKED), data.draw(st.booleans())
    quota_only_queues = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    plain = plain_queues(rows, quota_only_queues)
    reclaimable = reclaimable_of(
        rows, Reclaimer(reclaimer_queue, requested, is_non_preemptible), quota_only_queues
    )
    reclaim_state = ReclaimState(reclaimable)
    protected = (
        data.draw(st.lists(st.sampled_from(eviction_units), max_size=3)) if eviction_units else []
    )
    for queue, amounts in protected:
        reclaim_state.subtract(queue, amounts)
    for queue, amounts in reversed(protected):
        reclaim_state.add(queue, amounts)
    may = taken(reclaim_state, eviction_units)

    assert reclaimable.may_reclaim == reference.may_reclaim(
        plain[reclaimer_queue], requested, is_fixed=is_non_preemptible
    )
    for other in others:
        question = reference.may_reclaim_from(plain[reclaimer_queue], requested, plain[other])
        assert reclaimable.may_reclaim_from(other) == question
    evicted = [(plain[queue], amounts) for queue, amounts in eviction_units]
    needed_pods = reference.check_victims(plain[reclaimer_queue], requested, evicted)
    assert (may, reclaim_state.is_fair()) == needed_pods
