"""Our hand on a Lease: read it, write our name into it, give it back, each in a bounded time.

It decides nothing; what may be written when is decided by `trainer_kai.kube.leader`.
"""

from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from trainer_kai.clock import Clock
from trainer_kai.kube.errors import ErrorDetails, Unavailable
from trainer_kai.kube.lease import LeaseRecord, LeaseTiming, micro_time
from trainer_kai.kube.patience import within

__all__ = ["LeaseClient", "LeaseStore", "WrittenLease"]

A = TypeVar("A")


class LeaseStore(Protocol):
    """One Lease, as the API server keeps it; errors are those of `trainer_kai.kube.errors`."""

    async def read(self) -> LeaseRecord | None:
        """Return the newest state, never one from a cache; None when there is no such Lease."""
        ...

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        """Make the Lease and return it with its version; `AlreadyExists` when there is one."""
        ...

    async def update(self, record: LeaseRecord, version: str) -> LeaseRecord:
        """Write over exactly this version and return the new one; else `Conflict`."""
        ...


class WrittenLease(NamedTuple):
    """What the Lease is after a write, and when that write was sent."""

    record: LeaseRecord
    sent_s: float


class LeaseClient:
    """One candidate's hand on one Lease."""

    def __init__(self, store: LeaseStore, identity: str, timing: LeaseTiming, clock: Clock) -> None:
        self.identity = identity
        self.timing = timing
        self.clock = clock
        self._store = store

    async def read(self, limit_s: float) -> LeaseRecord | None:
        """Return the Lease as it is."""
        return await self._within(limit_s, self._store.read())

    async def write(
        self, current: LeaseRecord | None, record: LeaseRecord, limit_s: float
    ) -> WrittenLease:
        """Write an entry over what was found; make the Lease when there was none."""
        sent_s = self.clock.monotonic_s()
        if current is None:
            written = await self._within(limit_s, self._store.create(record))
        else:
            written = await self._within(limit_s, self._store.update(record, current.version))
        return WrittenLease(written, sent_s)

    async def release(self, record: LeaseRecord) -> None:
        """Say that nobody holds it, over the version that we last saw."""
        renewed = micro_time(self.clock.now(), record.renewed)
        empty = record._replace(holder="", duration_s=1, renewed=renewed)
        await self._within(self.timing.request_s, self._store.update(empty, record.version))

    def next_record(self, current: LeaseRecord | None) -> LeaseRecord:
        """Return what to write: taking it anew, or going on with what is ours."""
        now = self.clock.now()
        renewed = micro_time(now, current.renewed if current else "")
        acquired, transitions = renewed, current.transitions + 1 if current else 0
        if current is not None and current.holder == self.identity:
            acquired, transitions = current.acquired, current.transitions
        return LeaseRecord(self.identity, self.timing.lease_s, acquired, renewed, transitions)

    async def _within(self, seconds: float, request: Coroutine[Any, Any, A]) -> A:
        """Wait so long for an answer and no longer, whatever the client does meanwhile."""
        try:
            return await within(self.clock, seconds, request)
        except TimeoutError as error:
            details = ErrorDetails("lease", 0, "", f"no answer within {seconds:g} s")
            raise Unavailable(details) from error
