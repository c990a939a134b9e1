"""Facts that may be unread, and what a check says of those that were read."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar

from trainer_kai.errors import TrainerKaiError

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K")


class Unread(NamedTuple):
    """A fact that could not be read, and why."""

    reason: str


Fact: TypeAlias = A | Unread


class CannotTell(TrainerKaiError):
    """A check needs a fact that could not be read."""


def require(fact: Fact[A]) -> A:
    if isinstance(fact, Unread):
        raise CannotTell(fact.reason)
    return fact


def if_read(fact: Fact[A], otherwise: A) -> A:
    return otherwise if isinstance(fact, Unread) else fact


def both(first: Fact[A], second: Fact[B]) -> Fact[tuple[A, B]]:
    """Return two facts as one, which is unread if one of them is."""
    if isinstance(first, Unread):
        return first
    return second if isinstance(second, Unread) else (first, second)


def all_of(facts: Mapping[K, Fact[A]]) -> Fact[dict[K, A]]:
    try:
        return {name: require(it) for name, it in facts.items()}
    except CannotTell as error:
        return Unread(str(error))


class CheckState(Enum):
    """The state of a finding, in ascending severity."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"


class CheckFinding(NamedTuple):
    """What a check observed, and the remedy if something is wrong."""

    state: CheckState
    observed: str
    remedy: str = ""
    check: str = ""  # the title of the check, from the table of checks


Findings: TypeAlias = Iterable[CheckFinding]


def ok(observed: str) -> CheckFinding:
    return CheckFinding(CheckState.OK, observed)


def warning(observed: str, remedy: str) -> CheckFinding:
    """Return a finding: something works, but may not be intended."""
    return CheckFinding(CheckState.WARNING, observed, remedy)


def fault(observed: str, remedy: str) -> CheckFinding:
    return CheckFinding(CheckState.FAULT, observed, remedy)


def unknown(observed: str) -> CheckFinding:
    return CheckFinding(CheckState.UNKNOWN, observed)
