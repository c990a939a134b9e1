"""Objects of one kind, and which of them have been told anew since somebody last asked."""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

__all__ = ["ObjectStore"]

K = TypeVar("K")
V = TypeVar("V")


class ObjectStore(Generic[K, V]):
    """By name; it only keeps what it is told, so that telling costs next to nothing."""

    def __init__(self) -> None:
        self.objects: Final[dict[K, V]] = {}
        self._changes: dict[K, V | None] = {}  # in the order of telling

    def put(self, key: K, obj: V | None) -> None:
        """Take an object as it is now; None where there is none any more."""
        if obj is not None:
            self.objects[key] = obj
        elif self.objects.pop(key, None) is None:
            return
        self._changes[key] = obj

    def put_all(self, objects: Mapping[K, V]) -> None:
        """Take many objects."""
        self.objects.update(objects)
        self._changes.update(objects)

    def drain_changes(self) -> dict[K, V | None]:
        """Return what has changed, None for what has gone, and begin anew."""
        changes, self._changes = self._changes, {}
        return changes
