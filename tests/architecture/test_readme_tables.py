"""The generated tables of the READMEs are what the code says now."""

from pathlib import Path

import pytest

from tests.architecture.readme_tables import PAGES, table_rows, with_tables
from tests.support.case import Case, ids

TEXT = "before\n<!-- a:begin -->\nold\n<!-- a:end -->\nafter\n"

# a text -> the same with the table "new"
INSERTED: list[Case[str, str]] = [
    Case("what stood there goes", TEXT, TEXT.replace("old", "new")),
    Case("between bare marks it appears", TEXT.replace("old\n", ""), TEXT.replace("old", "new")),
]


@pytest.mark.parametrize("case", INSERTED, ids=ids)
def test_a_table_is_put_between_its_marks(case: Case[str, str]) -> None:
    """Everything around stays."""
    assert with_tables(case.given, {"a": "new"}) == case.want


@pytest.mark.parametrize("text", ["", TEXT.replace("a:end", "b:end"), TEXT + TEXT])
def test_marks_that_are_not_there_once_are_an_error(text: str) -> None:
    """Otherwise a table could get lost unnoticed."""
    with pytest.raises(ValueError, match="marks of the table a"):
        with_tables(text, {"a": "new"})


def test_rows_make_a_table() -> None:
    """A stroke inside a cell does not end it."""
    assert table_rows("a", "b", body=[["1", "x|y"]]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_current(page: Path) -> None:
    """`python -m tests.architecture.readme_tables` would write what is there already."""
    text = page.read_text()

    assert with_tables(text, PAGES[page]()) == text
