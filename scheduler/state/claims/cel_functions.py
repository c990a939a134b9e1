"""What Kubernetes adds to CEL for devices: quantities and versions.

CEL knows neither, so both are maps with one entry; the functions read it.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from trainer_kai.api.quantity import QuantityError, milli

QUANTITY: Final = "quantity"
VERSION: Final = "semver"
_THOUSAND: Final = 1000
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
CelMap: TypeAlias = dict[str, int | str]
_VersionOrder: TypeAlias = tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]


class CelFunction(NamedTuple):
    """*takes* and *returns* are type names: map, string, int, bool or double."""

    name: str
    takes: tuple[str, ...]
    returns: str
    is_member: bool
    call: Callable[..., object]


def quantity(text: str | float) -> CelMap:
    """Return a quantity, in thousandths; an invalid one is an error of the expression."""
    return {QUANTITY: milli(text)}


def semver(text: str) -> CelMap:
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{text!r} is not a semantic version")
    return {VERSION: text}


def _is_valid(read: Callable[[str], CelMap]) -> Callable[[str], bool]:
    def is_valid(text: str) -> bool:
        try:
            read(text)
        except (ValueError, QuantityError):
            return False
        return True

    return is_valid


def _compare(one: CelMap, other: CelMap) -> int:
    if QUANTITY in one and QUANTITY in other:
        left, right = int(one[QUANTITY]), int(other[QUANTITY])
        return (left > right) - (left < right)
    first, second = _order(one), _order(other)
    return (first > second) - (first < second)


def _order(version: CelMap) -> _VersionOrder:
    if VERSION not in version:
        raise ValueError("a quantity cannot be compared with a version")
    matched = _VERSION.fullmatch(str(version[VERSION]))
    if matched is None:
        raise ValueError(f"{version[VERSION]!r} is not a semantic version")
    *numbers, before = matched.groups()
    parts = [
        (not it.isdigit(), int(it) if it.isdigit() else 0, it)
        for it in (before.split(".") if before else ())
    ]
    return tuple(map(int, numbers)), before is None, tuple(parts)


def _part(position: int) -> Callable[[CelMap], int]:
    return lambda version: _order(version)[0][position]


def _amount(it: CelMap) -> int:
    if QUANTITY not in it:
        raise ValueError("a version is no quantity")
    return int(it[QUANTITY])


def _as_integer(it: CelMap) -> int:
    if _amount(it) % _THOUSAND:
        raise ValueError("the quantity is not a whole number")
    return _amount(it) // _THOUSAND


def _sum(sign: int) -> Callable[[CelMap, CelMap], CelMap]:
    return lambda one, other: {QUANTITY: _amount(one) + sign * _amount(other)}


def _of(name: str, returns: str, call: Callable[..., object], *more: str) -> CelFunction:
    return CelFunction(name, ("map", *more), returns, True, call)  # noqa: FBT003 - a member


def _from_text(name: str, returns: str, call: Callable[..., object]) -> CelFunction:
    return CelFunction(name, ("string",), returns, False, call)  # noqa: FBT003 - no member


FUNCTIONS: Final = (
    _from_text("quantity", "map", quantity),
    _from_text("isQuantity", "bool", _is_valid(quantity)),
    _from_text("semver", "map", semver),
    _from_text("isSemver", "bool", _is_valid(semver)),
    _of("compareTo", "int", _compare, "map"),
    _of("isGreaterThan", "bool", lambda one, other: _compare(one, other) > 0, "map"),
    _of("isLessThan", "bool", lambda one, other: _compare(one, other) < 0, "map"),
    _of("sign", "int", lambda it: (_amount(it) > 0) - (_amount(it) < 0)),
    _of("isInteger", "bool", lambda it: _amount(it) % _THOUSAND == 0),
    _of("asInteger", "int", _as_integer),
    _of("asApproximateFloat", "double", lambda it: _amount(it) / _THOUSAND),
    _of("add", "map", _sum(1), "map"),
    _of("sub", "map", _sum(-1), "map"),
    _of("major", "int", _part(0)),
    _of("minor", "int", _part(1)),
    _of("patch", "int", _part(2)),
)
