"""The net changes that a watch reports to its consumer, each exactly once. Pure.

It keeps no object: only which version of which object was reported last. That is enough to find, in
a list read after a gap, what was added, modified or deleted in the meantime.

    empty ──begin──▶ listing ──listed…──▶ listing ──end──▶ following ──updated…──▶ following
                        ▲                                      │
                        └──────────────begin (after a gap)─────┘
"""

from collections.abc import Iterator
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from trainer_kai.api.meta import Key, Meta, Object

T = TypeVar("T", bound=Object)


class DeltaType(Enum):
    """What became of an object."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class Delta(NamedTuple, Generic[T]):
    """One net change of one object.

    A deletion has the last state of the object, or None if it happened in a gap of the watch.
    """

    type: DeltaType
    key: Key
    uid: str
    object: T | None


class _KnownVersion(NamedTuple):
    version: str
    uid: str


class KnownObjects(Generic[T]):
    """Key → version (and uid: a successor of the same name is a deletion and an addition)."""

    def __init__(self) -> None:
        self._known: dict[Key, _KnownVersion] = {}
        self._unlisted: dict[Key, _KnownVersion] = {}

    def __len__(self) -> int:
        return len(self._known)

    def begin(self) -> None:
        """Begin a list: an object that it does not show is deleted. A list may be begun anew."""
        self._unlisted.update(self._known)
        self._known = {}

    def listed(self, current: T) -> Iterator[Delta[T]]:
        """Take one object of the list; yield what is new about it."""
        previous = self._unlisted.pop(current.metadata.key, None)
        yield from self._deltas(current, previous)

    def end(self) -> Iterator[Delta[T]]:
        """End the list; yield the deletions it shows by silence."""
        unlisted, self._unlisted = self._unlisted, {}
        for key, known in unlisted.items():
            yield Delta(DeltaType.DELETED, key, known.uid, None)

    def updated(self, current: T) -> Iterator[Delta[T]]:
        """Take an object that was added or modified; yield what is new about it."""
        yield from self._deltas(current, self._known.get(current.metadata.key))

    def deleted(self, meta: Meta, last: T | None) -> Iterator[Delta[T]]:
        """Take an object that is no more, with its last state if that can be read."""
        known = self._known.pop(meta.key, None) or self._unlisted.pop(meta.key, None)
        if known is not None:
            yield Delta(DeltaType.DELETED, meta.key, known.uid, last)

    def _deltas(self, current: T, previous: _KnownVersion | None) -> Iterator[Delta[T]]:
        meta = current.metadata
        key = meta.key
        self._known[key] = _KnownVersion(meta.resource_version, meta.uid)
        if previous is None:
            yield Delta(DeltaType.ADDED, key, meta.uid, current)
        elif previous.uid != meta.uid:
            yield Delta(DeltaType.DELETED, key, previous.uid, None)
            yield Delta(DeltaType.ADDED, key, meta.uid, current)
        elif previous.version != meta.resource_version:
            yield Delta(DeltaType.MODIFIED, key, meta.uid, current)
