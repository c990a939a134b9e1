"""Pieces into lines."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.case import Case, ids
from trainer_kai.kube.lines import LineSplitter

CASES = [
    Case("a line in one piece", [b"one\n"], [b"one"]),
    Case("two lines in one piece", [b"one\ntwo\n"], [b"one", b"two"]),
    Case("a line in three pieces", [b"o", b"n", b"e\n"], [b"one"]),
    Case("an end of its own", [b"one", b"\n", b"two", b"\n"], [b"one", b"two"]),
    Case("a line that is never finished is none", [b"one\ntw", b"o"], [b"one"]),
    Case("empty lines are none", [b"\n\none\n\n"], [b"one"]),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_lines(case: Case[list[bytes], list[bytes]]) -> None:
    """Lines come out as soon as they are whole."""
    lines = LineSplitter()

    assert [line for piece in case.given for line in lines.feed(piece)] == case.want


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_it_does_not_matter_where_a_stream_is_cut(whole: list[bytes], data: st.DataObject) -> None:
    """The same bytes give the same lines, however they arrive."""
    rest = b"".join(line + b"\n" for line in whole)
    lines, found = LineSplitter(), []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += lines.feed(rest[:size])
        rest = rest[size:]

    assert found == whole
