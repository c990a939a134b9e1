"""A message names a few objects, however many there are."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.text import listed_names

CASES: list[Case[list[str], str]] = [
    Case("none", [], ""),
    Case("one", ["a"], "a"),
    Case("as many as are named", ["a", "b"], "a, b"),
    Case("more", ["a", "b", "c", "d"], "a, b and 2 more"),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_two_are_named(case: Case[list[str], str]) -> None:
    """And the others are counted."""
    assert listed_names(case.given, 2) == case.want
