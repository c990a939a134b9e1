"""One row of a table test: a claim, what is given, and what is wanted."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

G = TypeVar("G")
W = TypeVar("W")


@dataclass(frozen=True)
class Case(Generic[G, W]):
    """A claim about one input; the test compares the whole of *want*."""

    name: str
    given: G
    want: W


def ids(case: Case[Any, Any]) -> str:
    """Name the test after the claim."""
    return case.name
