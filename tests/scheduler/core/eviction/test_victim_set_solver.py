"""Which victims to choose: against all sets there are, as long as those can be counted."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.eviction.victim_set_solver import solve
from tests.scheduler.core.eviction.fake_scenario import Candidate, FakeScenario
from tests.support.case import Case, ids
from tests.support.size import examples


def is_solution(scenario: FakeScenario, ranks: Sequence[int]) -> bool:
    taken = []
    for rank in ranks:
        if not scenario.may_evict(rank):
            break
        scenario.evict(rank)
        taken.append(rank)
    enough = len(taken) == len(ranks) and scenario.fits() and scenario.is_balanced()
    for rank in taken:
        scenario.restore(rank)
    return enough


def leave_room(scenario: FakeScenario, ranks: Sequence[int]) -> bool:
    """Say whether a set leaves room enough, whether it may be taken or not."""
    for rank in ranks:
        scenario.evict(rank)
    enough = scenario.fits()
    for rank in ranks:
        scenario.restore(rank)
    return enough


def all_solutions(scenario: FakeScenario) -> Iterator[tuple[int, ...]]:
    """Yield every set that is enough, and of which no candidate can be spared."""
    count = len(scenario.candidates)
    for number in range(1, count + 1):
        for ranks in combinations(range(count), number):
            fewer = combinations(ranks, number - 1)
            if is_solution(scenario, ranks) and not any(
                leave_room(scenario, some) for some in fewer
            ):
                yield ranks


CANDIDATES = st.builds(
    Candidate,
    st.integers(0, 1),
    st.dictionaries(st.integers(0, 2), st.integers(1, 4), min_size=1, max_size=2),
)
SCENARIOS = st.builds(
    FakeScenario,
    st.lists(CANDIDATES, max_size=8),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    per_candidate=st.integers(1, 3),
    size=st.integers(1, 4),
    tolerance=st.integers(0, 9),
)


@given(SCENARIOS)
@settings(max_examples=examples(200))
def test_of_eight_it_is_the_first_of_all_sets(scenario: FakeScenario) -> None:
    needed_pods = min(all_solutions(scenario), default=None)
    choice = solve(len(scenario.candidates), scenario, scenario.fits)
    assert choice.ranks == needed_pods
    assert not choice.is_truncated


@given(SCENARIOS, st.integers(0, 40))
@settings(max_examples=examples(200))
def test_with_any_limit_it_does(scenario: FakeScenario, limit: int) -> None:
    """What is found is enough, and none of it can be spared."""
    do = sorted(all_solutions(scenario))
    choice = solve(len(scenario.candidates), scenario, scenario.fits, limit)
    assert choice.tried <= limit
    assert choice.ranks is None or choice.ranks in do
    if not choice.is_truncated:
        assert choice.ranks == (do[0] if do else None)


# the candidates, for a seat of four -> the victims
CHOSEN: list[Case[list[Candidate], tuple[int, ...] | None]] = [
    Case("none", [], None),
    Case("the first that is enough", [Candidate(0, {0: 4}), Candidate(0, {1: 4})], (0,)),
    Case("not one that only makes it less", [Candidate(0, {1: 3}), Candidate(0, {0: 4})], (1,)),
    Case(
        "two on one node",
        [Candidate(0, {0: 2}), Candidate(0, {1: 2}), Candidate(0, {0: 2})],
        (0, 2),
    ),
    Case("none where not enough is to be had", [Candidate(0, {0: 2}), Candidate(1, {1: 2})], None),
    Case(
        "the first as one of two, before one alone",
        [Candidate(0, {0: 2}), Candidate(0, {1: 4}), Candidate(0, {0: 2})],
        (0, 2),
    ),
    Case(
        "another one, where the first stands in the way",
        [Candidate(1, {0: 2}), Candidate(1, {1: 4})],
        (1,),
    ),
]


@pytest.mark.parametrize("case", CHOSEN, ids=ids)
def test_which_candidates_are_chosen(case: Case[list[Candidate], tuple[int, ...] | None]) -> None:
    """The first set: smaller ranks before fewer."""
    scenario = FakeScenario(case.given, [100, 1], per_candidate=1, size=4)
    assert solve(len(case.given), scenario, scenario.fits).ranks == case.want


def test_of_thousands_few_sets_are_tried() -> None:
    """Each node is swept once for each of its eight, and only the first one is given up.

    No more than those eight might be taken: that the others are is only to see which is in the way.
    """
    candidates = [Candidate(0, {node: 1}) for _ in range(8) for node in range(500)]
    scenario = FakeScenario(candidates, [8, 0], per_candidate=1, size=8, nodes=500)
    choice = solve(len(candidates), scenario, scenario.fits)
    assert choice.ranks == tuple(range(0, 4000, 500))
    assert scenario.asked <= 2 * 3501
    assert choice.tried == 256
    assert scenario.refused <= 4000 + 256


def test_where_there_is_never_room_nothing_is_tried() -> None:
    """All together free too little: that is proof enough."""
    scenario = FakeScenario([Candidate(0, {0: 1})] * 100, [1000, 0], per_candidate=1, size=101)
    assert solve(100, scenario, scenario.fits) == (None, 0, False)
    assert scenario.asked == 8  # of 1, 2, 4 and so on, and of all


def test_nothing_is_asked_twice() -> None:
    """One that is enough is one question; of two in one queue the first, and both."""
    one = FakeScenario([Candidate(0, {0: 4})], [9, 0], per_candidate=1, size=4)
    assert (solve(1, one, one.fits).ranks, one.asked) == ((0,), 1)
    two = FakeScenario(
        [Candidate(0, {0: 2}), Candidate(0, {0: 2})], [9, 0], per_candidate=1, size=4
    )
    assert (solve(2, two, two.fits).ranks, two.asked) == ((0, 1), 3)  # and the second alone
