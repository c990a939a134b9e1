"""Durations mean what Go means by them, to the nanosecond."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case import Case, ids
from trainer_kai.api.quantity import DurationError, nanoseconds

SECOND = 10**9

CASES = [
    Case("nothing needs no unit", "0", 0),
    Case("nothing with a unit", "0s", 0),
    Case("a negative zero is zero", "-0", 0),
    Case("s are seconds", "90s", 90 * SECOND),
    Case("m are minutes", "10m", 600 * SECOND),
    Case("several units are added up", "1h30m5s", 5405 * SECOND),
    Case("units in any order", "5s1h", 3605 * SECOND),
    Case("a fraction of an hour counts", "1.5h", 5400 * SECOND),
    Case("a fraction without a first digit", ".5s", SECOND // 2),
    Case("a point without a fraction", "5.s", 5 * SECOND),
    Case("ms are milliseconds", "250ms", SECOND // 4),
    Case("us are microseconds", "3us", 3000),
    Case("microseconds with the micro sign", "3\u00b5s", 3000),
    Case("microseconds with the Greek letter", "3\u03bcs", 3000),
    Case("ns are nanoseconds", "7ns", 7),
    Case("less than a nanosecond is cut off", "0.9ns", 0),
    Case("a negative duration is read as such", "-1s", -SECOND),
    Case("a plus sign changes nothing", "+2m", 120 * SECOND),
    Case("the longest duration is read exactly", "9223372036854775807ns", 2**63 - 1),
    Case("the most negative", "-9223372036854775808ns", -(2**63)),
]

WRONG = [
    Case("an empty text is refused", "", "'' is not a duration"),
    Case("a number without a unit", "5", "'5' is not a duration"),
    Case("a unit without a number", "s", "'s' is not a duration"),
    Case("an unknown unit", "1d", "'1d' is not a duration"),
    Case("a space is refused", "1 s", "'1 s' is not a duration"),
    Case("a space at the end", "1s ", "'1s ' is not a duration"),
    Case("two points are refused", "1.2.3s", "'1.2.3s' is not a duration"),
    Case("two signs are refused", "--1s", "'--1s' is not a duration"),
    Case("a sign within", "1h-5m", "'1h-5m' is not a duration"),
    Case("a sign alone", "-", "'-' is not a duration"),
    Case("a point alone", ".s", "'.s' is not a duration"),
    Case(
        "more than 292 years is refused",
        "9223372036854775808ns",
        "'9223372036854775808ns' is longer than 292 years",
    ),
    Case("digits of another script", "\u0661s", "'\u0661s' is not a duration"),
]

UNITS = {"h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": 10**6, "us": 1000, "ns": 1}


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_durations(case: Case[str, int]) -> None:
    assert nanoseconds(case.given) == case.want


@pytest.mark.parametrize("case", WRONG, ids=ids)
def test_what_is_no_duration(case: Case[str, str]) -> None:
    """The message says what would be right."""
    with pytest.raises(DurationError) as caught:
        nanoseconds(case.given)

    assert str(caught.value).startswith(f"{case.want}; write ")


@given(
    st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=6)
)
def test_the_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    """In any order, and negative as a whole."""
    text = "".join(f"{number}{unit}" for number, unit in parts)
    total = sum(number * UNITS[unit] for number, unit in parts)

    assert (nanoseconds(text), nanoseconds(f"-{text}")) == (total, -total)


@given(st.text())
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    """Nothing else is raised, whatever is written."""
    with contextlib.suppress(DurationError):
        assert abs(nanoseconds(text)) <= 2**63
