"""The generated tables of the docs are what the code says now."""

from pathlib import Path

import pytest

from tests.architecture.readme_tables import PAGES, with_tables


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_current(page: Path) -> None:
    """`make tables` would write what is there already; marks that are missing are an error."""
    text = page.read_text()

    assert with_tables(text, PAGES[page]()) == text
