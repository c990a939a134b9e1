"""Which names lead to which others, and back: whom it concerns when something changes."""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

__all__ = ["ReverseIndex"]

A = TypeVar("A")
B = TypeVar("B")


class ReverseIndex(Generic[A, B]):
    """From each of the former to any number of the latter."""

    def __init__(self) -> None:
        self._targets: Final[dict[A, tuple[B, ...]]] = {}
        self._sources: Final[dict[B, dict[A, None]]] = {}

    def put(self, source: A, targets: Iterable[B]) -> None:
        """Let one lead to these, and to nobody else."""
        for previous in self._targets.pop(source, ()):
            sources = self._sources[previous]
            del sources[source]
            if not sources:
                del self._sources[previous]
        to = tuple(dict.fromkeys(targets))
        if to:
            self._targets[source] = to
        for target in to:
            self._sources.setdefault(target, {})[source] = None

    def sources_of(self, target: B) -> tuple[A, ...]:
        """Return who leads here."""
        return tuple(self._sources.get(target, ()))
