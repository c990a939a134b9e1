"""Columns for people, in plain text: it can be copied, searched and piped."""

from collections.abc import Iterable, Sequence

__all__ = ["table"]

_GAP = "   "


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; each column is as wide as it must be."""
    lines = [tuple(headings), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
