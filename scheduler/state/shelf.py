"""Objects of one kind, and which of them have been told anew since somebody last asked."""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

__all__ = ["Shelf"]

K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """By name; it only keeps what it is told, so that telling costs next to nothing."""

    def __init__(self) -> None:
        self.known: Final[dict[K, V]] = {}
        self._told: dict[K, V | None] = {}  # in the order of telling

    def tell(self, key: K, one: V | None) -> None:
        """Take an object as it is now; None where there is none any more."""
        if one is not None:
            self.known[key] = one
        elif self.known.pop(key, None) is None:
            return
        self._told[key] = one

    def tell_all(self, objects: Mapping[K, V]) -> None:
        """Take many objects."""
        self.known.update(objects)
        self._told.update(objects)

    def drain(self) -> dict[K, V | None]:
        """Return what has changed, None for what has gone, and begin anew."""
        told, self._told = self._told, {}
        return told
