"""The result of a check, and facts that could not be read."""

from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar

from trainer_kai.errors import TrainerKaiError

T = TypeVar("T")


class CheckState(Enum):
    """The state of a finding, in ascending severity."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"


class CheckFinding(NamedTuple):
    """What a check observed, and the remedy if something is wrong."""

    check: str
    state: CheckState
    observed: str
    remedy: str = ""


class Unread(NamedTuple):
    """A fact that could not be read, and why."""

    reason: str


Fact: TypeAlias = T | Unread


class CannotTell(TrainerKaiError):
    """A check needs a fact that could not be read."""


def require(fact: Fact[T]) -> T:
    """Return a fact; raise `CannotTell` if it could not be read."""
    if isinstance(fact, Unread):
        raise CannotTell(fact.reason)
    return fact


def ok(check: str, observed: str) -> CheckFinding:
    """Return a finding: something is as it should be."""
    return CheckFinding(check, CheckState.OK, observed)


def warning(check: str, observed: str, remedy: str) -> CheckFinding:
    """Return a finding: something works, but may not be intended."""
    return CheckFinding(check, CheckState.WARNING, observed, remedy)


def fault(check: str, observed: str, remedy: str) -> CheckFinding:
    """Return a finding: something does not work."""
    return CheckFinding(check, CheckState.FAULT, observed, remedy)


def unknown(check: str, error: CannotTell) -> CheckFinding:
    """Return a finding: the check has no result, and why."""
    return CheckFinding(check, CheckState.UNKNOWN, str(error))
