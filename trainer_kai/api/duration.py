"""Durations in the format of Go, such as "1h30m" or "-1s", as exact nanoseconds."""

import re
from typing import Final

from trainer_kai.errors import TrainerKaiError

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MAX: Final = 2**63
_LONGEST: Final = 64
_PART: Final = re.compile(r"(?=\.?[0-9])([0-9]*)\.?([0-9]*)([^0-9.]+)")
_RIGHT: Final = 'write a duration such as "90s", "10m" or "1h30m"; units are ns, us, ms, s, m and h'


class DurationError(TrainerKaiError):
    """An invalid duration; the message has the valid format."""


def nanoseconds(text: str) -> int:
    """Return a duration in nanoseconds; fractions of a nanosecond are dropped."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0
    if not unsigned or len(text) > _LONGEST:
        raise DurationError(f"{text[:_LONGEST]!r} is not a duration; {_RIGHT}")
    total = 0
    at = 0
    while at < len(unsigned):
        part = _PART.match(unsigned, at)
        if part is None or part[3] not in _UNITS:
            raise DurationError(f"{text!r} is not a duration; {_RIGHT}")
        before, after, unit = part.groups()
        total += int(before + after) * _UNITS[unit] // 10 ** len(after)
        at = part.end()
    negative = text[0] == "-"
    if total >= _MAX + negative:
        raise DurationError(f"{text!r} is longer than 292 years; write a shorter one")
    return -total if negative else total
