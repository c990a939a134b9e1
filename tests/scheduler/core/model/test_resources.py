"""Sums never wrap, are exact as far as they are counted, and the same in any order."""

from random import Random
from typing import Any, Final, TypeAlias

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.resources import SUM_MOST, Ints, cut, exact, sums, total
from tests.support.size import examples

AmountRow: TypeAlias = tuple[int, tuple[int, int], int]  # row, amounts, how often

_SIZE: Final = 3
many: Final = settings(max_examples=examples(200), deadline=None)
amounts: Final = st.one_of(
    st.integers(0, 2**50), st.sampled_from([0, 1, 2**25 - 1, 2**25, 2**45, 2**50])
)
counts: Final = st.one_of(st.integers(0, 9), st.integers(0, 2**31), st.just(3 * 10**6))
rows_of_amounts: Final = st.lists(
    st.tuples(st.integers(0, _SIZE - 1), st.tuples(amounts, amounts), counts), max_size=8
)


def _columns(some: list[AmountRow]) -> tuple[Ints, Ints, Ints]:
    def column(values: Any, width: tuple[int, ...]) -> Ints:
        return np.array(values, dtype=np.int64).reshape(width)

    rows, each, heads = ([victim_order[at] for victim_order in some] for at in range(3))
    return column(rows, (-1,)), column(each, (-1, 2)), column(heads, (-1,))


def _want(some: list[AmountRow]) -> list[list[int]]:
    want = [[0, 0] for _ in range(_SIZE)]
    for row, each, count in some:
        for at, amount in enumerate(each):
            want[row][at] += amount * count
    return want


@many
@given(rows_of_amounts, st.randoms(use_true_random=False))
def test_sums_by_row(some: list[AmountRow], random: Random) -> None:
    """They are those of numbers of any size, cut where these are too large."""
    want = _want(some)
    found = sums(*_columns(some), _SIZE)
    assert exact(*_columns(some), _SIZE) == want
    assert found.tolist() == [[min(amount, SUM_MOST) for amount in row] for row in want]
    random.shuffle(some)
    assert (sums(*_columns(some), _SIZE) == found).all()


@many
@given(st.lists(st.tuples(*[st.integers(-(2**80), 2**80)] * 2), max_size=4))
def test_what_is_cut_is_never_below_zero(some: list[tuple[int, int]]) -> None:
    """Nor is it too large; what is neither stays."""
    found = cut([[*row] for row in some], 2)
    assert found.shape == (len(some), 2)
    assert found.tolist() == [[min(max(it, 0), SUM_MOST) for it in row] for row in some]


@many
@given(st.lists(st.integers(-(2**62), 2**62), max_size=50))
def test_a_total_has_any_size(some: list[int]) -> None:
    """The numbers of many nodes come to more than 64 bits hold."""
    assert total(np.array(some, dtype=np.int64)) == sum(some)
