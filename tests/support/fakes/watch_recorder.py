"""A watch handler that checks the contract of a watch: every net change exactly once."""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from trainer_kai.api.meta import Key, Object
from trainer_kai.kube.rest.response import ApiError
from trainer_kai.kube.watch import Delta, DeltaType, UnreadableObject

T = TypeVar("T", bound=Object)

_PATIENCE_S: Final = 120.0


class WatchRecorder(Generic[T]):
    """Everything a watch told; it fails the test as soon as a change is told twice or too late."""

    def __init__(self) -> None:
        self.state: dict[Key, T] = {}
        self.changes: list[Delta[T]] = []
        self.synced = 0
        self.reads: list[str] = []
        self.failures: list[str] = []
        self.skipped: list[UnreadableObject] = []
        self._has_changed = asyncio.Event()

    def change(self, change: Delta[T]) -> None:
        """Take a change, if it can follow what came before it."""
        before = self.state.get(change.key)
        if change.type is DeltaType.DELETED:
            assert before is not None, f"{change} of an object that was not there"
            assert before.metadata.uid == change.uid
            del self.state[change.key]
        else:
            assert change.object is not None
            if change.type is DeltaType.ADDED:
                assert before is None, f"{change} of an object that was there"
            else:
                assert before is not None, f"{change} of an object that was not there"
                assert _version(before) < _version(change.object), f"{change} was told before"
            self.state[change.key] = change.object
        self.changes.append(change)
        self._has_changed.set()

    def has_synced(self) -> None:
        """Take note of a list that was told whole."""
        self.synced += 1
        self._has_changed.set()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something to become true."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not condition():
                    self._has_changed.clear()
                    await self._has_changed.wait()
        except TimeoutError:
            names = sorted(map(str, self.state))
            message = f"not within {_PATIENCE_S:g} s: {what}; troubles {self.failures}; {names}"
            raise AssertionError(message) from None

    def watch_read(self, _resource: str, event: str) -> None:
        """Take note of an event."""
        self.reads.append(event)
        self._has_changed.set()

    def watch_ended(self, _resource: str, trouble: str, _error: ApiError | None) -> None:
        """Take note of a failure."""
        if trouble:
            self.failures.append(trouble)
        self._has_changed.set()

    def watch_skipped(self, _resource: str, unreadable: UnreadableObject) -> None:
        """Take note of an object that cannot be read."""
        self.skipped.append(unreadable)


def _version(found: Object) -> int:
    return int(found.metadata.resource_version)
