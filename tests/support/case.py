"""One row of a table test: a claim, what is given, and what is wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

__all__ = ["Case", "ids", "soaked"]

G = TypeVar("G")
W = TypeVar("W")


@dataclass(frozen=True)
class Case(Generic[G, W]):
    """A claim about one input; the test compares the whole of *want*."""

    name: str
    given: G
    want: W


def soaked(cases: Sequence[Case[Any, Any]], *names: str) -> list[Any]:
    """Return the cases for `parametrize`; those that are named run in a soak only."""
    return [pytest.param(it, marks=pytest.mark.soak) if it.name in names else it for it in cases]


def ids(case: Case[Any, Any]) -> str:
    """Name the test after the claim."""
    return case.name
