"""Tables in plain text, which can be copied, searched and piped."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

MAX_WIDTH: Final = 100
_MIN_WIDTH: Final = 60
_MIN_NAME_WIDTH: Final = 16  # the least width of a shortened name
_GAP: Final = "   "
_UID: Final = re.compile(r"([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def screen_width() -> int:
    if not sys.stdout.isatty():
        return MAX_WIDTH
    return min(max(shutil.get_terminal_size((MAX_WIDTH, 0)).columns, _MIN_WIDTH), MAX_WIDTH)


def wrapped_lines(text: str, indent: str, width: int) -> list[str]:
    """Return the lines of a wrapped text: two spaces before the first, *indent* before others."""
    return textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(headings), *(tuple(map(escaped, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def is_coloured() -> bool:
    """Say whether the output is a terminal whose user wants colours (NO_COLOR is not set)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def with_coloured_column(text: str, heading: str, colours: Mapping[str, int]) -> str:
    """Return a table whose cells below a heading have the colours of their words, by SGR code."""
    if not colours:
        return text
    first, *lines = text.splitlines()
    start = first.index(heading)
    coloured = [first]
    for line in lines:
        word = line[start:].split(_GAP, 1)[0].rstrip()
        end = start + len(word)
        code = colours.get(word)
        cell = f"\x1b[{code}m{word}\x1b[0m" if code is not None else word
        coloured.append(f"{line[:start]}{cell}{line[end:]}")
    return "\n".join(coloured)


def escaped(text: str) -> str:
    """Return a text with line breaks and invisible characters escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def without_uids(text: str) -> str:
    return _UID.sub(r"\1…", text)


def truncated(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def fitted_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; if it is too wide, its first column is shortened."""
    text = table(headings, rows)
    excess = max(map(len, text.splitlines())) - MAX_WIDTH
    if excess <= 0:
        return text
    width = max(max(len(row[0]) for row in rows) - excess, _MIN_NAME_WIDTH)
    return table(headings, [(truncated(row[0], width), *row[1:]) for row in rows])
