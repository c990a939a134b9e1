"""Which names lead to which others, and back: whom it concerns when something changes."""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

__all__ = ["Links"]

A = TypeVar("A")
B = TypeVar("B")


class Links(Generic[A, B]):
    """From each of the former to any number of the latter."""

    def __init__(self) -> None:
        self._to: Final[dict[A, tuple[B, ...]]] = {}
        self._back: Final[dict[B, dict[A, None]]] = {}

    def put(self, one: A, others: Iterable[B]) -> None:
        """Let one lead to these, and to nobody else."""
        for before in self._to.pop(one, ()):
            of = self._back[before]
            del of[one]
            if not of:
                del self._back[before]
        to = tuple(dict.fromkeys(others))
        if to:
            self._to[one] = to
        for other in to:
            self._back.setdefault(other, {})[one] = None

    def of(self, other: B) -> tuple[A, ...]:
        """Return who leads here."""
        return tuple(self._back.get(other, ()))
