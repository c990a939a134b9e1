"""Sentences on objects: how long they get."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.text import truncated_message

MESSAGES: list[Case[str, str]] = [
    Case("short", "x", "x"),
    Case("at the limit", "x" * 1024, "x" * 1024),
    Case("above", "x" * 1025, "x" * 1021 + "…"),
    Case("no character is cut in two", "x" * 1020 + "äää", "x" * 1020 + "…"),
    Case("half a character that came from elsewhere", "\udce4", "?"),
]


@pytest.mark.parametrize("case", MESSAGES, ids=ids)
def test_shortened(case: Case[str, str]) -> None:
    """The limit is in bytes."""
    assert truncated_message(case.given) == case.want
    assert len(truncated_message(case.given).encode()) <= 1024
