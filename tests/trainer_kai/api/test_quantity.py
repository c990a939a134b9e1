"""Quantities are exact integers, rounded as the API server rounds them."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case import Case, ids
from trainer_kai.api.quantity import (
    MAX,
    Quantity,
    QuantityError,
    canonical_quantity,
    format_bytes,
    format_milli,
    milli,
    whole,
)

# a quantity -> whole units and thousandths; texts are those of Kubernetes' own tests where they say
CASES: list[Case[Quantity, tuple[int, int]]] = [
    Case("more noughts than anybody reads", f"1.{'0' * 120}", (1, 1000)),
    Case("zeros before a number are skipped", f"-{'0' * 120}1.50Ki", (-1536, -1_536_000)),
    Case("and nothing else", f"0.{'0' * 120}", (0, 0)),
    Case("zero is zero", "0", (0, 0)),
    Case("nothing with a small suffix", "0n", (0, 0)),
    Case("a negative zero is zero", "-0", (0, 0)),
    Case("nothing in binary", "0Ki", (0, 0)),
    Case("a number of CPUs is whole units", "1", (1, 1000)),
    Case("half a CPU", "500m", (1, 500)),
    Case("a fraction counts up to a whole unit", "0.5", (1, 500)),
    Case("a fraction without a first digit", ".5", (1, 500)),
    Case("a point without a fraction", "5.", (5, 5000)),
    Case("a point before a suffix", "1.G", (10**9, 10**12)),
    Case("a nano is rounded up", "1n", (1, 1)),
    Case("a micro is rounded up", "100u", (1, 1)),
    Case("less than a nano is rounded up", "0.1n", (1, 1)),
    Case("more than a thousandth is rounded up", "1001u", (1, 2)),
    Case("what is negative is rounded away from zero", "-1500u", (-1, -2)),
    Case("a negative fraction", "-0.5", (-1, -500)),
    Case("a plus sign changes nothing", "+3", (3, 3000)),
    Case("k is a thousand", "1k", (1000, 10**6)),
    Case("M is a million", "50M", (50 * 10**6, 50 * 10**9)),
    Case("G is 10 to the 9th", "1G", (10**9, 10**12)),
    Case("T is 10 to the 12th", "2T", (2 * 10**12, 2 * 10**15)),
    Case("P is 10 to the 15th", "3P", (3 * 10**15, 3 * 10**18)),
    Case("E is 10 to the 18th", "1E", (10**18, MAX)),
    Case("Ki is 2 to the 10th", "1Ki", (1024, 1024_000)),
    Case("Mi is 2 to the 20th", "8Mi", (8 << 20, (8 << 20) * 1000)),
    Case("Gi is 2 to the 30th", "16Gi", (16 << 30, (16 << 30) * 1000)),
    Case("Ti is 2 to the 40th", "1Ti", (1 << 40, (1 << 40) * 1000)),
    Case("Pi is 2 to the 50th", "1Pi", (1 << 50, (1 << 50) * 1000)),
    Case("Ei is 2 to the 60th", "1Ei", (1 << 60, MAX)),
    Case("a fraction of a binary unit", "1.5Gi", (3 << 29, (3 << 29) * 1000)),
    Case("a fraction of a byte is a byte", "0.0001Ki", (1, 103)),
    Case("an exponent multiplies", "1e3", (1000, 10**6)),
    Case("a large exponent letter", "12E6", (12 * 10**6, 12 * 10**9)),
    Case("an exponent with a plus", "1e+2", (100, 10**5)),
    Case("a negative exponent", "1E-3", (1, 1)),
    Case("E alone is exa", "9E", (9 * 10**18, MAX)),
    Case("an exponent of many digits", "1e999999999", (MAX, MAX)),
    Case("an exponent of many digits below zero", "1e-999999999", (1, 1)),
    Case("nothing times much", "0e999999999", (0, 0)),
    Case("the largest number is read exactly", "9223372036854775807", (MAX, MAX)),
    Case("one more than the largest", "9223372036854775808", (MAX, MAX)),
    Case("more than the largest is the largest", "100Ei", (MAX, MAX)),
    Case("less than the smallest is the smallest", "-100Ei", (-MAX, -MAX)),
    Case("leading zeros change nothing", "0000001k", (1000, 10**6)),
    Case("a JSON integer", 8, (8, 8000)),
    Case("a JSON number", 0.5, (1, 500)),
    Case("a JSON number that binary cannot hold", 0.1, (1, 100)),
    Case("a large JSON number", 1e21, (MAX, MAX)),
]

# no quantity -> the message
RIGHT = 'write one such as "2", "500m", "1.5", "16Gi" or "1e3"'
SUFFIXES = "valid suffixes are n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei"
WRONG: list[Case[object, str]] = [
    Case("an empty text is refused", "", f"'' is not a quantity; {RIGHT}"),
    Case("a space before", " 1", f"' 1' is not a quantity; {RIGHT}"),
    Case("a space after", "1 ", f"'1 ' is not a quantity; {RIGHT}"),
    Case("two points are refused", "1.1.M", f"'1.1.M' is not a quantity; {RIGHT}"),
    Case("a sum is refused", "1+1.0M", f"'1+1.0M' is not a quantity; {RIGHT}"),
    Case("a small suffix with an i", "0.1mi", f"'0.1mi' ends in 'mi'; {SUFFIXES}"),
    Case("two suffixes are refused", "0.1am", f"'0.1am' ends in 'am'; {SUFFIXES}"),
    Case("a word is refused", "aoeu", f"'aoeu' is not a quantity; {RIGHT}"),
    Case("an i alone", ".5i", f"'.5i' ends in 'i'; {SUFFIXES}"),
    Case("a K alone is none", "1K", f"'1K' ends in 'K'; {SUFFIXES}"),
    Case("an exponent without a number", "1e", f"'1e' ends in 'e'; {SUFFIXES}"),
    Case("half an exponent", "-3.01e-", f"'-3.01e-' is not a quantity; {RIGHT}"),
    Case("a suffix after an exponent", "1e3k", f"'1e3k' is not a quantity; {RIGHT}"),
    Case("a point alone is refused", ".", f"'.' is not a quantity; {RIGHT}"),
    Case("a sign alone is refused", "-", f"'-' is not a quantity; {RIGHT}"),
    Case("two signs are refused", "--1", f"'--1' is not a quantity; {RIGHT}"),
    Case("a hexadecimal number is refused", "0x10", f"'0x10' is not a quantity; {RIGHT}"),
    Case("digits of another script", "\u0661", f"'\u0661' is not a quantity; {RIGHT}"),
    Case("an underscore is refused", "1_0", f"'1_0' is not a quantity; {RIGHT}"),
    Case("a line break", "1\n", f"'1\\n' is not a quantity; {RIGHT}"),
    Case("too many digits", "9" * 101, f"'{'9' * 20}…' is not a quantity; {RIGHT}"),
    Case("true is refused", True, f"True is not a quantity; {RIGHT}"),
    Case("null is refused", None, f"None is not a quantity; {RIGHT}"),
    Case("not a number", float("nan"), f"'nan' is not a quantity; {RIGHT}"),
    Case("infinity is refused", float("inf"), f"'inf' is not a quantity; {RIGHT}"),
]

# thousandths -> as the API server writes them
MILLI_SPELLINGS = [
    Case("zero is written as 0", 0, "0"),
    Case("half a unit is written in thousandths", 500, "500m"),
    Case("whole units have no suffix", 2000, "2"),
    Case("a thousand is written as 1k", 1_000_000, "1k"),
    Case("more than a thousand", 1_500_000, "1500"),
    Case("a negative part", -1, "-1m"),
]

# bytes -> as the API server writes them
BYTE_SPELLINGS = [
    Case("no bytes are written as 0", 0, "0"),
    Case("a round decimal is not round in binary", 1000, "1000"),
    Case("1024 bytes are written as 1Ki", 1024, "1Ki"),
    Case("no suffix is used that does not divide", 3 << 29, "1536Mi"),
    Case("nothing is written above Ei", 1 << 70, "1024Ei"),
]

# a quantity -> as Trainer and JobSet 0.12 wrote it on the real chain
RESPELLINGS: list[Case[Quantity, str]] = [
    Case("a JSON integer", 1000, "1k"),
    Case("a JSON number", 0.5, "500m"),
    Case("thousandths that are whole", "100000m", "100"),
    Case("not a whole thousand", "1500", "1500"),
    Case("a larger suffix", "1500000", "1500k"),
    Case("a smaller suffix", "1.5k", "1500"),
    Case("a fraction becomes thousandths", "0.25", "250m"),
    Case("three digits after nought", "0.125", "125m"),
    Case("three digits after a number stay", "2.125", "2.125"),
    Case("so do those before a suffix", "1.500k", "1.500k"),
    Case("and six of them", "123456789.123456", "123456789.123456"),
    Case("but not noughts alone", "1.000", "1"),
    Case("a point without a fraction stays", "1.", "1."),
    Case("a plus stays", "+5", "+5"),
    Case("nano is the smallest", "0.1n", "1n"),
    Case("what is below is rounded up", "1.0000000001", "1000000001n"),
    Case("zero loses its suffix", "0Gi", "0"),
    Case("a binary number", "1024Mi", "1Gi"),
    Case("one that is not round", "1000Ki", "1000Ki"),
    Case("a binary fraction", "1.5Gi", "1536Mi"),
    Case("less than a kibi", "0.5Ki", "512"),
    Case("a fraction of a byte", "1.1Ki", "1126400m"),
    Case("the largest is capped and written out", "8Ei", "9223372036854775807"),
    Case("decimal beside binary", "1024k", "1024k"),
    Case("an exponent stays an exponent", "1e3", "1e3"),
    Case("a large letter", "1E+3", "1E+3"),
    Case("an exponent that is no thousand", "1e4", "10e3"),
    Case("one below zero", "12e-1", "1200e-3"),
    Case("one that is gone", "1.5e3", "1500"),
    Case("one of nothing", "1e0", "1e0"),
    Case("a text that is no quantity stays as it is", "two", "two"),
]


@pytest.mark.parametrize("case", RESPELLINGS, ids=ids)
def test_respelling(case: Case[Quantity, str]) -> None:
    """Canonical as far as Go's own shortcut lets it."""
    assert canonical_quantity(case.given) == case.want


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_quantities(case: Case[Quantity, tuple[int, int]]) -> None:
    assert (whole(case.given), milli(case.given)) == case.want


@pytest.mark.parametrize("case", WRONG, ids=ids)
def test_what_is_no_quantity(case: Case[object, str]) -> None:
    """The message says what would be right."""
    for read in (whole, milli):
        with pytest.raises(QuantityError) as caught:
            read(case.given)
        assert str(caught.value) == case.want


@pytest.mark.parametrize("case", MILLI_SPELLINGS, ids=ids)
def test_spelling_thousandths(case: Case[int, str]) -> None:
    """Canonical: no fraction, and the largest suffix that loses nothing."""
    assert format_milli(case.given) == case.want


@pytest.mark.parametrize("case", BYTE_SPELLINGS, ids=ids)
def test_spelling_bytes(case: Case[int, str]) -> None:
    assert format_bytes(case.given) == case.want


UNITS = {
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate(["", *"kMGTPE"])},
    **{suffix: Fraction(10) ** (-3 * power) for power, suffix in enumerate("mun", 1)},
    **{f"{suffix}i": Fraction(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", 1)},
    **{
        f"{e}{power}": Fraction(10) ** int(power) for e in "eE" for power in ("0", "-3", "+12", "7")
    },
}


@given(
    st.sampled_from(["", "+", "-"]),
    st.text("0123456789", max_size=20),
    st.none() | st.text("0123456789", max_size=20),
    st.sampled_from(sorted(UNITS)),
)
def test_quantities_are_what_fractions_say(
    sign: str, before: str, after: str | None, unit: str
) -> None:
    """Exact arithmetic, then away from zero, then the limits of 64 bits; respelled or not."""
    if not before and not after:
        before = "0"
    text = f"{sign}{before}{'' if after is None else '.' + after}{unit}"
    exact = Fraction(f"{before or '0'}.{after or '0'}") * UNITS[unit]

    for read, scale in ((whole, 1), (milli, 1000)):
        scaled = exact * scale
        away = min(-(-scaled.numerator // scaled.denominator), MAX)
        assert read(text) == (-away if sign == "-" else away)
        assert read(canonical_quantity(text)) == read(text)


@given(st.integers(-MAX, MAX))
def test_what_is_written_is_read_as_it_was(number: int) -> None:
    """Both spellings lose nothing."""
    assert milli(format_milli(number)) == number
    assert whole(format_bytes(number)) == number


@given(st.text())
def test_any_text_is_a_quantity_or_an_error(text: str) -> None:
    """Nothing else is raised, whatever is written."""
    with contextlib.suppress(QuantityError):
        assert abs(whole(text)) <= MAX
