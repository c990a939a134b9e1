"""JSON without levels that are too deep for a recursive parser.

The API server stores objects with 10,000 levels: any user can write such managedFields. No field
that we read is deeper than 100 levels.
"""

import re
from typing import Final

_LEVELS: Final = 100
# A bracket, and the text up to the next one; strings are skipped together with brackets in them.
_BRACKET: Final = re.compile(rb'[{}\[\]](?:[^{}\[\]"]+|"[^"\\]*(?:\\.[^"\\]*)*")*')
_OPENING: Final = b"{["


def without_deep_nesting(text: bytes) -> bytes:
    """Return JSON with null in place of all values below the hundredth level."""
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
