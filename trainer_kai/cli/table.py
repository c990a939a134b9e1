"""Columns for people, in plain text: it can be copied, searched and piped."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["WIDEST", "cut", "fitted", "screen_width", "table", "without_uids", "wrapped"]

WIDEST: Final = 100
_NARROWEST: Final = 60
_LEAST: Final = 16  # to which a name is cut
_GAP: Final = "   "
_UID: Final = re.compile(r"([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def screen_width() -> int:
    """Return how wide the terminal is, between what is too narrow and what is too wide to read."""
    if not sys.stdout.isatty():
        return WIDEST
    return min(max(shutil.get_terminal_size((WIDEST, 0)).columns, _NARROWEST), WIDEST)


def wrapped(text: str, indent: str, width: int) -> list[str]:
    """Return the lines of a text, two columns in, and from the second on as far as *indent*."""
    return textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; each column is as wide as it must be."""
    lines = [tuple(headings), *(tuple(map(in_one_line, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def in_one_line(text: str) -> str:
    """Return a text with what would break its line, or cannot be seen, written as in Python."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def without_uids(text: str) -> str:
    """Return a name with only the beginning of the uids in it."""
    return _UID.sub(r"\1…", text)


def cut(text: str, width: int) -> str:
    """Return a text that is not wider than so many columns."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def fitted(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; where it would be too wide, its first column is cut."""
    text = table(headings, rows)
    over = max(map(len, text.splitlines())) - WIDEST
    if over <= 0:
        return text
    width = max(max(len(row[0]) for row in rows) - over, _LEAST)
    return table(headings, [(cut(row[0], width), *row[1:]) for row in rows])
