"""Quantities and durations as exact integers: `500m` of CPU, `1Ki` of memory, `1h30m`.

A fraction of the unit of a quantity is rounded away from zero, as the API server does, so that a
small request is not lost. A value beyond 64 bits becomes the largest 64-bit number. A duration has
no such limit: one that is too long is refused.
"""

import re
from functools import lru_cache
from typing import Final, TypeAlias

from trainer_kai.api.bounds import DURATION_CHARACTERS, NUMBER_DIGITS, QUANTITY_CHARACTERS
from trainer_kai.errors import TrainerKaiError

Quantity: TypeAlias = str | int | float  # a string in built-in kinds; in a CRD JSON numbers too

MAX: Final = 2**63 - 1
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_SUFFIXES: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SHAPE: Final = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)([A-Za-z]{0,2}|[eE][+-]?[0-9]+)")
_QUANTITIES: Final = 'such as "2", "500m", "1.5", "16Gi" or "1e3"'
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
_PART: Final = re.compile(r"(?=\.?[0-9])([0-9]*)\.?([0-9]*)([^0-9.]+)")
_DURATIONS: Final = (
    'write a duration such as "90s", "10m" or "1h30m"; units are ns, us, ms, s, m and h'
)


class QuantityError(TrainerKaiError):
    """An invalid quantity; the message has the valid format."""


class DurationError(TrainerKaiError):
    """An invalid duration; the message has the valid format."""


# A cluster has few different quantities, and reads them repeatedly.
@lru_cache(maxsize=8192, typed=True)
def whole(quantity: Quantity) -> int:
    """Bytes, pods or devices."""
    return _rounded(quantity, 0)


@lru_cache(maxsize=8192, typed=True)
def milli(quantity: Quantity) -> int:
    """Thousandths of a CPU or a GPU."""
    return _rounded(quantity, 3)


def is_whole(quantity: Quantity) -> bool:
    """Say whether a quantity is a whole number of units, of any size."""
    _, number, two, ten = _parts(quantity)
    if number == 0 or ten >= 0:
        return True
    return ten > -2 * NUMBER_DIGITS and (number << two) % 10**-ten == 0


def format_milli(thousandths: int) -> str:
    if thousandths % 1000:
        return f"{thousandths}m"
    return _largest(thousandths // 1000, 1000, ("", "k", "M", "G", "T", "P", "E"))


def format_bytes(count: int) -> str:
    return _largest(count, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))


def canonical_quantity(quantity: Quantity) -> str:
    """Write a quantity as Go programs pass it on; an invalid one is returned unchanged.

    A decimal text is unchanged if its last digit counts in powers of a thousand.
    """
    text = str(quantity)
    try:
        sign, number, two, ten = _parts(quantity)
    except QuantityError:
        return text
    minus = "-" if sign < 0 else ""
    if two:
        units = _rounded(quantity, 0) * sign
        if is_whole(quantity) and units >= 1024:
            return minus + format_bytes(units)
        return minus + _decimal(number << two, ten)
    if number % 1000 and ten % 3 == 0 and ten >= -9 and re.match(r"[+-]?0*[1-9]", text):
        return text
    return minus + _decimal(number, ten, exponent=text[-1].isdigit() and "e" in text.lower())


def _decimal(number: int, ten: int, *, exponent: bool = False) -> str:
    """Write number times ten to the power, with the suffix or exponent of a power of a thousand."""
    if number == 0:
        return "0"
    if ten < -9:
        number, ten = (1 if ten < -2 * NUMBER_DIGITS else -(-number // 10 ** (-9 - ten))), -9
    while number % 10 == 0:
        number, ten = number // 10, ten + 1
    number, ten = number * 10 ** (ten % 3), ten - ten % 3
    if exponent or ten not in _SUFFIXES:
        return f"{number}e{ten}" if ten else str(number)
    return f"{number}{_SUFFIXES[ten]}"


def _largest(count: int, base: int, suffixes: tuple[str, ...]) -> str:
    step = 0
    while count and count % base == 0 and step < len(suffixes) - 1:
        count //= base
        step += 1
    return f"{count}{suffixes[step]}"


def _rounded(quantity: Quantity, digits: int) -> int:
    """Return the quantity times 10 to the power of *digits*, rounded away from zero."""
    sign, number, two, ten = _parts(quantity)
    ten += digits
    if number == 0:
        return 0
    if ten > NUMBER_DIGITS:
        return sign * MAX
    if ten < -2 * NUMBER_DIGITS:
        return sign
    dividend: int = (number << two) * 10 ** max(ten, 0)
    divisor: int = 10 ** max(-ten, 0)
    return sign * min(-(-dividend // divisor), MAX)


def _parts(quantity: Quantity) -> tuple[int, int, int, int]:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise QuantityError(f"{quantity!r} is not a quantity; write one {_QUANTITIES}")
    text = quantity if isinstance(quantity, str) else repr(quantity)
    matched = _SHAPE.fullmatch(text) if len(text) <= QUANTITY_CHARACTERS else None
    if matched is None:
        raise QuantityError(f"{_truncated(text)} is not a quantity; write one {_QUANTITIES}")
    sign, before, after, suffix = matched.groups()
    if len(text) > NUMBER_DIGITS:
        before, after = before.lstrip("0"), after.rstrip("0")
        if len(before) + len(after) > NUMBER_DIGITS:
            raise QuantityError(f"{_truncated(text)} is not a quantity; write one {_QUANTITIES}")
    two, ten = _powers(suffix, text)
    return -1 if sign == "-" else 1, int(before + after or "0"), two, ten - len(after)


def _powers(suffix: str, text: str) -> tuple[int, int]:
    if suffix in _DECIMAL:
        return 0, _DECIMAL[suffix]
    if suffix in _BINARY:
        return _BINARY[suffix], 0
    if suffix[0] in "eE" and suffix[1:]:
        try:
            return 0, int(suffix[1:])
        except ValueError:
            pass
    known = ", ".join(filter(None, [*_DECIMAL, *_BINARY]))
    raise QuantityError(f"{_truncated(text)} ends in {suffix!r}; valid suffixes are {known}")


def _truncated(text: str) -> str:
    return repr(text if len(text) <= NUMBER_DIGITS else f"{text[:20]}…")


def nanoseconds(text: str) -> int:
    """Fractions of a nanosecond are dropped."""
    unsigned = text[1:] if text.startswith(("+", "-")) else text
    if unsigned == "0":
        return 0
    if not unsigned or len(text) > DURATION_CHARACTERS:
        raise DurationError(f"{text[:DURATION_CHARACTERS]!r} is not a duration; {_DURATIONS}")
    total = 0
    at = 0
    while at < len(unsigned):
        part = _PART.match(unsigned, at)
        if part is None or part[3] not in _UNITS:
            raise DurationError(f"{text!r} is not a duration; {_DURATIONS}")
        before, after, unit = part.groups()
        total += int(before + after) * _UNITS[unit] // 10 ** len(after)
        at = part.end()
    negative = text[0] == "-"
    if total > MAX + negative:
        raise DurationError(f"{text!r} is longer than 292 years; write a shorter one")
    return -total if negative else total
