"""What a watch has told its consumer so far, so that it tells every net change exactly once. Pure.

It keeps no object: only which version of which object the consumer was told last. That is enough
to find, in a list read after a gap, what was added, changed or deleted in the meantime.

    empty ──begin──▶ listing ──listed…──▶ listing ──end──▶ following ──happened…──▶ following
                        ▲                                      │
                        └──────────────begin (after a gap)─────┘
"""

from collections.abc import Iterator
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from trainer_kai.api.meta import Key, Meta, Object

__all__ = ["Change", "Known", "What"]

T = TypeVar("T", bound=Object)


class What(Enum):
    """What became of an object."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class Change(NamedTuple, Generic[T]):
    """One net change of one object.

    A deletion has the last state of the object, or None if it happened while nobody watched.
    """

    what: What
    key: Key
    uid: str
    object: T | None


class _Told(NamedTuple):
    version: str
    uid: str


class Known(Generic[T]):
    """Key → version (and uid: a successor of the same name is a deletion and an addition)."""

    def __init__(self) -> None:
        self._told: dict[Key, _Told] = {}
        self._missing: dict[Key, _Told] = {}

    def __len__(self) -> int:
        return len(self._told)

    def begin(self) -> None:
        """Begin a list: whatever it does not show is gone. An unfinished one may be begun anew."""
        self._missing.update(self._told)
        self._told = {}

    def listed(self, found: T) -> Iterator[Change[T]]:
        """Take one object of the list; yield what is new about it."""
        before = self._missing.pop(found.metadata.key, None)
        yield from self._now(found, before)

    def end(self) -> Iterator[Change[T]]:
        """End the list; yield the deletions it shows by silence."""
        gone, self._missing = self._missing, {}
        for key, told in gone.items():
            yield Change(What.DELETED, key, told.uid, None)

    def happened(self, current: T) -> Iterator[Change[T]]:
        """Take an object that was added or modified; yield what is new about it."""
        yield from self._now(current, self._told.get(current.metadata.key))

    def vanished(self, meta: Meta, last: T | None) -> Iterator[Change[T]]:
        """Take an object that is no more, with its last state if that can be read."""
        told = self._told.pop(meta.key, None) or self._missing.pop(meta.key, None)
        if told is not None:
            yield Change(What.DELETED, meta.key, told.uid, last)

    def _now(self, current: T, before: _Told | None) -> Iterator[Change[T]]:
        meta = current.metadata
        key = meta.key
        self._told[key] = _Told(meta.resource_version, meta.uid)
        if before is None:
            yield Change(What.ADDED, key, meta.uid, current)
        elif before.uid != meta.uid:
            yield Change(What.DELETED, key, before.uid, None)
            yield Change(What.ADDED, key, meta.uid, current)
        elif before.version != meta.resource_version:
            yield Change(What.MODIFIED, key, meta.uid, current)
