"""JSON without what is nested too deep for a parser that calls itself for each level.

The API server stores objects with 10,000 levels: any user may write the managedFields of an object
of their own. Nothing that we read lies deeper than 100.
"""

import re
from typing import Final

__all__ = ["without_deep_nesting"]

_LEVELS: Final = 100
# A bracket, and what follows it up to the next: texts are passed over with the brackets in them.
_BRACKET: Final = re.compile(rb'[{}\[\]](?:[^{}\[\]"]+|"[^"\\]*(?:\\.[^"\\]*)*")*')
_OPENING: Final = b"{["


def without_deep_nesting(text: bytes) -> bytes:
    """Return JSON with null in place of what lies below the hundredth level."""
    depth = kept_to = cut_from = 0
    pieces = []
    for bracket in _BRACKET.finditer(text):
        at = bracket.start()
        if text[at] in _OPENING:
            depth += 1
            if depth == _LEVELS + 1:
                cut_from = at
        else:
            if depth == _LEVELS + 1:
                pieces += [text[kept_to:cut_from], b"null"]
                kept_to = at + 1
            depth -= 1
    return b"".join((*pieces, text[kept_to:]))
