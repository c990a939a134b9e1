"""How long to wait before the next try."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case import Case, ids
from trainer_kai.kube.workqueue.backoff import Backoff

# chance from 0 to 1, floors asked for one after the other -> waits, beginning with 1 s, at most 5 s
CASES = [
    Case("doubles up to the cap", (1.0, [None] * 5), [1.0, 2.0, 4.0, 5.0, 5.0]),
    Case("chance takes away half at most", (0.0, [None] * 4), [0.5, 1.0, 2.0, 2.5]),
    Case("a floor below the wait changes nothing", (0.0, [None, 0.5]), [0.5, 1.0]),
    Case("a floor outranks the cap", (0.0, [9.0, 9.0]), [9.0, 9.0]),
    Case("the same floor is not one instant", (0.5, [9.0]), [9.5]),
    Case("a floor of nothing is no floor", (1.0, [0.0, 0.0]), [1.0, 2.0]),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_waits(case: Case[tuple[float, list[float | None]], list[float]]) -> None:
    """Each wait is a part of a step that doubles, and never less than was asked for."""
    share, floors = case.given
    backoff = Backoff(1.0, 5.0, lambda: share)

    assert [backoff.next_s(floor) for floor in floors] == case.want


def test_success_begins_again() -> None:
    """After a reset the first step comes again, and the tries are counted anew."""
    backoff = Backoff(1.0, 60.0, lambda: 1.0)
    first = [backoff.next_s(), backoff.next_s()], backoff.tries

    backoff.reset()

    assert first == ([1.0, 2.0], 2)
    assert (backoff.tries, backoff.next_s()) == (0, 1.0)


@given(st.integers(), st.lists(st.none() | st.floats(0, 100), max_size=2000))
def test_any_chance_stays_within_bounds(seed: int, floors: list[float | None]) -> None:
    """Whatever happens, a wait is at least half of the first step and as long as asked for."""
    backoff = Backoff(0.1, 30.0, random.Random(seed).random)

    for floor in floors:
        wait_s = backoff.next_s(floor)

        assert 0.05 <= wait_s <= max(30.0, (floor or 0.0) + 0.1)
        assert wait_s >= (floor or 0.0)
