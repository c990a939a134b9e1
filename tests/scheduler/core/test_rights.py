"""Who may take from whom: each rule by itself, and all of them against plain loops."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model import NONE, UNBOUND, Queues
from scheduler.core.rights import Bounds, Claim, Rights, Taking
from scheduler.core.usage import Amounts, Usage
from tests.support.case import Case, ids
from tests.support.reference import rights as reference
from tests.support.size import examples


class T(NamedTuple):
    """A queue as it is with GPUs; of the rest it has nothing, and may have all."""

    above: int = NONE
    has: int = 0
    due: int = 0
    quota: int = 0
    limit: int = UNBOUND
    fixed: int = 0


Row = tuple[
    int, Amounts, Amounts, Amounts, Amounts, Amounts
]  # above, quota, limit, due, has, fixed


def rows_of(queues: Sequence[T]) -> list[Row]:
    """Return queues with all three resources."""
    free = (UNBOUND, UNBOUND)
    return [
        (q.above, (*free, q.quota), (*free, q.limit), (0, 0, q.due), (0, 0, q.has), (0, 0, q.fixed))
        for q in queues
    ]


def rights_of(rows: Sequence[Row], claim: Claim, goals: Sequence[bool] = ()) -> Rights:
    """Return what a claim may take; *goals* say of queues whether their children get to quotas."""
    above, quota, limit, due, has, fixed = zip(*rows, strict=True)
    columns = [np.array(column, dtype=np.int64) for column in (quota, limit, has, fixed)]
    queues = Queues(
        names=tuple(map(str, range(len(rows)))),
        parent=above,
        priority=(100,) * len(rows),
        quota=columns[0],
        limit=columns[1],
        weight=np.ones((len(rows), 3)),
        allocated=columns[2],
        fixed=columns[3],
        requested=columns[2],
        is_quota_only=tuple(goals),
    )
    return Rights(Bounds(queues, np.array(due, dtype=np.float64)), Usage(queues), claim)


def gpus(queue: int, number: int, *, is_fixed: bool = False) -> Claim:
    """Return a claim of GPUs."""
    return Claim(queue, (0, 0, number), is_fixed)


# queues and a claim -> whether it has one
CLAIMS: list[Case[tuple[list[T], Claim], bool]] = [
    Case("up to what is due to it", ([T(has=2, due=4)], gpus(0, 2)), want=True),
    Case("and no more", ([T(has=3, due=4)], gpus(0, 2)), want=False),
    Case("of anything", ([T(due=4)], Claim(0, (1, 0, 2), is_fixed=False)), want=False),
    Case(
        "what is due to those above does not matter",
        ([T(above=1, due=4), T(has=9, due=1)], gpus(0, 2)),
        want=True,
    ),
    Case(
        "for good up to the quota",
        ([T(due=4, quota=3, fixed=1)], gpus(0, 2, is_fixed=True)),
        want=True,
    ),
    Case(
        "for good no more than that",
        ([T(due=4, quota=3, fixed=2)], gpus(0, 2, is_fixed=True)),
        want=False,
    ),
    Case(
        "for good within the quotas above",
        ([T(above=1, due=4, quota=3), T(quota=4, fixed=3)], gpus(0, 2, is_fixed=True)),
        want=False,
    ),
    Case("without bound", ([T(due=4, quota=UNBOUND)], gpus(0, 2, is_fixed=True)), want=True),
]


@pytest.mark.parametrize("case", CLAIMS, ids=ids)
def test_who_has_a_claim(case: Case[tuple[list[T], Claim], bool]) -> None:
    """Its queue would have no more than is due to it."""
    queues, claim = case.given
    assert rights_of(rows_of(queues), claim).has_claim is case.want


# the queue claimed for, another one -> which are compared; 0 to 4: A of a, B of b, b, a, c on top
PAIRS: list[Case[tuple[int, int], tuple[int, int]]] = [
    Case("departments, if they differ", (0, 1), (3, 2)),
    Case("teams of one department", (0, 5), (0, 5)),
    Case("a department and a team that is in none", (1, 4), (2, 4)),
    Case("the other way round", (4, 1), (4, 2)),
]


@pytest.mark.parametrize("case", PAIRS, ids=ids)
def test_where_two_queues_are_compared(case: Case[tuple[int, int], tuple[int, int]]) -> None:
    """Just below what they have in common."""
    rows = rows_of([T(above=3), T(above=2), T(), T(), T(), T(above=3)])
    mine, theirs = case.given
    assert rights_of(rows, gpus(mine, 1)).pair(theirs) == case.want


# the other queue, the claimant's, the GPUs it asks for -> whether that may lose anything
LOSERS: list[Case[tuple[T, T, int], bool]] = [
    Case("owed, it is above its quota", (T(has=3, quota=2), T(quota=2), 2), want=True),
    Case("owed, it is below", (T(has=1, quota=2), T(quota=2), 2), want=False),
    Case("owed, it is just at it", (T(has=2, quota=2), T(quota=2), 2), want=True),
    Case("owed, it has no bound", (T(has=2, quota=UNBOUND), T(quota=2), 2), want=True),
    Case("not owed, it is above its share", (T(has=5, due=4), T(quota=1), 2), want=True),
    Case("not owed, it is at it", (T(has=4, due=4), T(quota=1), 2), want=False),
    Case("not owed, above its quota only", (T(has=4, due=4, quota=1), T(quota=1), 2), want=False),
]


@pytest.mark.parametrize("case", LOSERS, ids=ids)
def test_who_comes_into_question(case: Case[tuple[T, T, int], bool]) -> None:
    """Whoever has more than it may count on; what that is depends on the claimant."""
    theirs, mine, number = case.given
    assert rights_of(rows_of([theirs, mine]), gpus(1, number)).concerns(0) is case.want


# who of those above says quota-only, and what is asked for -> whether the other queue may lose
GOALS: list[Case[tuple[str, int], bool]] = [
    Case("nobody says so: it gets as far as its share", ("", 3), want=True),
    Case("who is above both says so: no further than its quota", ("above", 3), want=False),
    Case("as far as that", ("above", 2), want=True),
    Case("who is further up", ("top", 3), want=True),
    Case("who is beside what is above both", ("beside", 3), want=True),
    Case("itself", ("mine", 3), want=True),
]


@pytest.mark.parametrize("case", GOALS, ids=ids)
def test_how_far_it_gets(case: Case[tuple[str, int], bool]) -> None:
    """As the queue just above those that are compared says."""
    said, number = case.given
    names = ("theirs", "mine", "above", "top", "beside")
    theirs, mine = T(above=2, has=5, due=4), T(above=2, due=4, quota=2)
    rows = rows_of([theirs, mine, T(above=3, has=5), T(has=5), T(above=3)])
    rights = rights_of(rows, gpus(1, number), [name == said for name in names])
    assert rights.concerns(0) is case.want


def test_between_departments_their_own_goals_do_not_count() -> None:
    """They are at the top, where there is nobody to say so."""
    theirs, mine = T(above=2, has=5, due=4), T(above=3, due=4)
    rows = rows_of([theirs, mine, T(has=5, due=4), T(due=4)])
    assert rights_of(rows, gpus(1, 3), [True] * 4).concerns(0)


def test_only_what_is_asked_for_makes_somebody_come_into_question() -> None:
    """A queue above its quota of CPUs has nothing that helps who wants GPUs."""
    everything = (UNBOUND,) * 3
    theirs: Row = (NONE, (2, UNBOUND, 2), everything, (9, 9, 9), (3, 0, 1), (0, 0, 0))
    mine: Row = (NONE, everything, everything, (9, 9, 9), (0, 0, 0), (0, 0, 0))
    assert not rights_of([theirs, mine], gpus(1, 1)).concerns(0)
    assert rights_of([theirs, mine], Claim(1, (1, 0, 1), is_fixed=False)).concerns(0)


class Taken(NamedTuple):
    """Queues, of which the last claims so many, and what others lose: queue, number."""

    queues: list[T]
    claims: int
    blocks: list[tuple[int, int]]
    patience: float = 1.0


def taken(taking: Taking, blocks: Sequence[tuple[int, Amounts]]) -> list[bool]:
    """Take blocks, and return for each whether it might be."""
    may = []
    for queue, amounts in blocks:
        may.append(taking.may_lose(queue))
        taking.take(queue, amounts)
    return may


# what is taken -> whether each block may be, and whether all is fair
TAKEN: list[Case[Taken, tuple[list[bool], bool]]] = [
    Case("from above its share", Taken([T(has=8, due=4), T(due=4)], 1, [(0, 1)]), ([True], True)),
    Case("not at it", Taken([T(has=4, due=4), T(due=4)], 1, [(0, 1)]), ([False], True)),
    Case(
        "from above its quota who is owed",
        Taken([T(has=4, due=4, quota=2), T(due=2, quota=2)], 2, [(0, 2)]),
        ([True], True),
    ),
    Case(
        "not who would not stay within its own",
        Taken([T(has=4, due=4, quota=2), T(due=2, quota=1)], 2, [(0, 2)]),
        ([False], True),
    ),
    Case(
        "the last block may go below, and ends it",
        Taken([T(has=5, due=4), T(due=4)], 4, [(0, 3), (0, 1)]),
        ([True, False], True),
    ),
    Case(
        "two teams have one department to lose from",
        Taken(
            [T(2, has=3, due=9), T(2, has=2, due=9), T(has=5, due=4), T(due=4)], 2, [(0, 1), (1, 1)]
        ),
        ([True, False], True),
    ),
    Case(
        "between teams of one department that does not matter",
        Taken([T(1, has=3, due=2), T(has=3, due=3), T(1, due=1)], 1, [(0, 1)]),
        ([True], True),
    ),
    Case(
        "fair: still better off than whoever takes",
        Taken([T(has=8, due=4), T(has=4, due=4), T(1, due=4)], 1, [(0, 1)]),
        ([True], True),
    ),
    Case(
        "unfair: as badly off",
        Taken([T(has=6, due=4), T(has=4, due=4), T(1, due=4)], 1, [(0, 1)]),
        ([True], False),
    ),
    Case(
        "with more patience",
        Taken([T(has=8, due=4), T(has=4, due=4), T(1, due=4)], 1, [(0, 1)], patience=2.0),
        ([True], False),
    ),
    Case(
        "who is due nothing cannot be worse off",
        Taken([T(has=6), T(has=4, due=4), T(1, due=4)], 1, [(0, 6)]),
        ([True], True),
    ),
    Case(
        "nor is anybody who is due something better off than who is due nothing",
        Taken([T(has=90, due=4), T(has=4), T(1, due=4)], 1, [(0, 1)]),
        ([True], False),
    ),
]


@pytest.mark.parametrize("case", TAKEN, ids=ids)
def test_what_may_be_taken(case: Case[Taken, tuple[list[bool], bool]]) -> None:
    """Block by block from whoever has too much, and in the end nobody is worse off for it."""
    queues, claims, blocks, patience = case.given
    taking = Taking(rights_of(rows_of(queues), gpus(len(queues) - 1, claims)))
    may = taken(taking, [(queue, (0, 0, number)) for queue, number in blocks])
    assert (may, taking.is_fair(patience)) == case.want


def test_what_is_taken_changes_nothing() -> None:
    """It is a question: the next one begins anew."""
    rights = rights_of(rows_of([T(has=5, due=4), T(due=4)]), gpus(1, 1))
    for _ in range(2):
        assert taken(Taking(rights), [(0, (0, 0, 1))] * 2) == [True, False]


AMOUNTS = st.tuples(*[st.integers(0, 4)] * 3)
ASKED = st.tuples(*[st.integers(-1, 4)] * 3)  # slots that are given up come off
BOUNDS = st.tuples(*[st.one_of(st.just(UNBOUND), st.integers(0, 6))] * 3)


@st.composite
def trees(draw: Any) -> list[tuple[int, Amounts, Amounts, Amounts, Amounts, Amounts]]:
    """Draw queues of up to three levels, the ones above first."""
    rows: list[Row] = []
    depths: list[int] = []
    for i in range(draw(st.integers(2, 7))):
        may = [NONE, *(q for q in range(i) if depths[q] < 2)]
        above = draw(st.sampled_from(may))
        depths.append(0 if above == NONE else depths[above] + 1)
        has, part = draw(AMOUNTS), draw(AMOUNTS)
        fixed = tuple(map(min, has, part))
        rows.append((above, draw(BOUNDS), draw(BOUNDS), draw(AMOUNTS), has, fixed))
    return rows


@given(st.data())
@settings(max_examples=examples(200))
def test_it_agrees_with_plain_loops(data: st.DataObject) -> None:
    """Whatever the queues are, have and lose."""
    rows = data.draw(trees())
    inner = {above for above, *_ in rows}
    leaves = [q for q in range(len(rows)) if q not in inner]
    mine = data.draw(st.sampled_from(leaves))
    others = [q for q in leaves if q != mine]
    blocks = (
        data.draw(st.lists(st.tuples(st.sampled_from(others), AMOUNTS), max_size=5))
        if others
        else []
    )
    asked, is_fixed = data.draw(ASKED), data.draw(st.booleans())
    patience = data.draw(st.sampled_from([Fraction(1), Fraction(3, 2)]))
    plain: list[reference.Queue] = []
    goals = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    for (above, quota, limit, due, has, fixed), is_only in zip(rows, goals, strict=True):
        up = None if above == NONE else plain[above]
        goal = "quota-only" if is_only else "fair-share"
        plain.append(reference.Queue(up, quota, limit, due, list(has), list(fixed), goal))

    rights = rights_of(rows, Claim(mine, asked, is_fixed), goals)
    taking = Taking(rights)
    spared = data.draw(st.lists(st.sampled_from(blocks), max_size=3)) if blocks else []
    for queue, amounts in spared:
        taking.take(queue, amounts)
    for queue, amounts in reversed(spared):
        taking.spare(queue, amounts)
    may = taken(taking, blocks)

    assert rights.has_claim == reference.has_claim(plain[mine], asked, is_fixed=is_fixed)
    for other in others:
        question = reference.comes_into_question(plain[mine], asked, plain[other])
        assert rights.concerns(other) == question
    lost = [(plain[queue], amounts) for queue, amounts in blocks]
    wanted = reference.take_all(plain[mine], asked, lost, patience)
    assert (may, taking.is_fair(float(patience))) == wanted
