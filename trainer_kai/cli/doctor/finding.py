"""What a check says, and what could not be found out."""

from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar

from trainer_kai.errors import TrainerKaiError

__all__ = [
    "CannotTell",
    "Fact",
    "Finding",
    "State",
    "Unread",
    "fault",
    "known",
    "ok",
    "unknown",
    "warning",
]

T = TypeVar("T")


class State(Enum):
    """How it is, the worst last."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"


class Finding(NamedTuple):
    """What one check found: what is, and what would be right where it is not."""

    check: str
    state: State
    is_so: str
    right: str = ""


class Unread(NamedTuple):
    """What nobody could read, and why."""

    why: str


Fact: TypeAlias = T | Unread


class CannotTell(TrainerKaiError):
    """A check needs what could not be read."""


def known(fact: Fact[T]) -> T:
    """Return a fact; where it could not be read, the check that asks for it cannot tell."""
    if isinstance(fact, Unread):
        raise CannotTell(fact.why)
    return fact


def ok(check: str, is_so: str) -> Finding:
    """Say that something is as it should be."""
    return Finding(check, State.OK, is_so)


def warning(check: str, is_so: str, right: str) -> Finding:
    """Say that something works, and may not be what was meant."""
    return Finding(check, State.WARNING, is_so, right)


def fault(check: str, is_so: str, right: str) -> Finding:
    """Say that something does not work."""
    return Finding(check, State.FAULT, is_so, right)


def unknown(check: str, error: CannotTell) -> Finding:
    """Say that a check cannot tell, and why."""
    return Finding(check, State.UNKNOWN, f"cannot tell: {error}")
