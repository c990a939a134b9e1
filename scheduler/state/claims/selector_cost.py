"""How many steps an expression may take on one device, at most: from its text alone.

A step is about a microsecond. The library bounds only how often one evaluation repeats a part, and
neither how long that part is nor how long a text becomes that is joined to itself again and again.
"""

import re
from typing import Final

LOOPS: Final = re.compile(r"\b(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
_LONGER_TEXTS: Final = re.compile(r"\b(?:replace|join|format|quote)\s*\(")
_REUSED: Final = re.compile(r"\b(?:bind|map)\s*\(")  # with + each can double what it was given
_MOST_REPETITIONS: Final = 10_000  # as the library has it
_ATTRIBUTES: Final = 64  # more than a device has
_LEAST: Final = 50
_COPIED: Final = 10  # characters in a step


def most_steps(text: str, bare: str, *, reads_all: bool) -> int:
    """Return the bound; *bare* is the text without its literals, *reads_all* as its attributes."""
    doubles = len(_REUSED.findall(bare)) if "+" in bare else 0
    growth = doubles + len(_LONGER_TEXTS.findall(bare))
    size = (len(text) // (growth + 1) + 1) ** (growth + 1)  # of the longest value
    items = bare.count(",") + 1
    if reads_all:
        items = max(items, _ATTRIBUTES)
    if doubles or "split" in bare:
        items = max(items, size)
    repetitions = 1
    for _ in LOOPS.findall(bare):
        repetitions = min(repetitions * items, _MOST_REPETITIONS)
    steps = len(text) + (size // _COPIED if growth else 0)
    return _LEAST + repetitions * steps
