"""Read, write and release one Lease, each with a time limit, and the Lease on a real API server.

`trainer_kai.kube.leader.elector` decides what is written when. `LeaseApi` patches our fields and
leaves all others unchanged; the patch names the version that the API server must compare. Nothing
is read from a cache.
"""

from collections.abc import Awaitable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import LEASES
from trainer_kai.kube.client import Client
from trainer_kai.kube.leader.lease import LeaseRecord, LeaseTiming, micro_time
from trainer_kai.kube.process.tasks import within
from trainer_kai.kube.rest.errors import ErrorDetails, Forbidden, NotFound, Unavailable
from trainer_kai.service.clock import Clock

A = TypeVar("A")


class LeaseStore(Protocol):
    """A Lease as the API server has it; errors are those of `trainer_kai.kube.rest.errors`."""

    async def read(self) -> LeaseRecord | None:
        """Return the current state, never from a cache; None if the Lease does not exist."""
        ...

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        """Create the Lease and return it with its version; `AlreadyExists` if it exists."""
        ...

    async def update(self, record: LeaseRecord, version: str) -> LeaseRecord:
        """Overwrite exactly this version and return the new one; else `Conflict`."""
        ...


class WrittenLease(NamedTuple):
    """The Lease after a write, and when that write was sent."""

    record: LeaseRecord
    sent_s: float


class LeaseClient:
    """Reads and writes one Lease for one candidate."""

    def __init__(self, store: LeaseStore, identity: str, timing: LeaseTiming, clock: Clock) -> None:
        self.identity = identity
        self.timing = timing
        self.clock = clock
        self._store = store

    async def read(self, limit_s: float) -> LeaseRecord | None:
        """Return the current Lease."""
        return await self._within(limit_s, self._store.read())

    async def write(
        self, current: LeaseRecord | None, record: LeaseRecord, limit_s: float
    ) -> WrittenLease:
        """Write a record over the current one; create the Lease if it does not exist."""
        sent_s = self.clock.monotonic_s()
        if current is None:
            written = await self._within(limit_s, self._store.create(record))
        else:
            written = await self._within(limit_s, self._store.update(record, current.version))
        return WrittenLease(written, sent_s)

    async def release(self, record: LeaseRecord) -> None:
        """Clear the holder in the last known version."""
        renewed = micro_time(self.clock.now(), record.renewed)
        empty = record._replace(holder="", duration_s=1, renewed=renewed)
        await self._within(self.timing.request_s, self._store.update(empty, record.version))

    def next_record(self, current: LeaseRecord | None) -> LeaseRecord:
        """Return the record to write: a new acquisition, or a renewal."""
        now = self.clock.now()
        renewed = micro_time(now, current.renewed if current else "")
        acquired, transitions = renewed, current.transitions + 1 if current else 0
        if current is not None and current.holder == self.identity:
            acquired, transitions = current.acquired, current.transitions
        return LeaseRecord(self.identity, self.timing.lease_s, acquired, renewed, transitions)

    async def _within(self, seconds: float, request: Coroutine[Any, Any, A]) -> A:
        """Wait for a response with a time limit, whatever the client does meanwhile."""
        try:
            return await within(self.clock, seconds, request)
        except TimeoutError as error:
            details = ErrorDetails("lease", 0, "", f"no response within {seconds:g} s")
            raise Unavailable(details) from error


class LeaseApi:
    """A Lease by its key."""

    def __init__(self, client: Client, key: Key) -> None:
        self._client = client
        self._key = key

    async def read(self) -> LeaseRecord | None:
        """Return the current state; None if the Lease does not exist."""
        try:
            return _record(await self._allowed(self._client.get(LEASES, self._key)))
        except NotFound:
            return None

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        """Create the Lease; `AlreadyExists` if it exists."""
        metadata = {"namespace": self._key.namespace, "name": self._key.name}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        request = self._client.create(LEASES, self._key.namespace, body | {"spec": _spec(record)})
        return _record(await self._allowed(request))

    async def update(self, record: LeaseRecord, version: str) -> LeaseRecord:
        """Overwrite exactly this version; else `Conflict`."""
        fields = {"metadata": {"resourceVersion": version}, "spec": _spec(record)}
        return _record(await self._allowed(self._client.merge_patch(LEASES, self._key, fields)))

    async def _allowed(self, request: Awaitable[A]) -> A:
        try:
            return await request
        except Forbidden as error:
            namespace, name = self._key
            needs = (
                f"leader election needs get, create and patch on {LEASES} in namespace {namespace}"
            )
            message = f"{error.details.message}; {needs}, at least for {name}"
            raise Forbidden(error.details._replace(message=message)) from error


def _record(lease: Lease) -> LeaseRecord:
    spec = lease.spec
    return LeaseRecord(
        spec.holder_identity,
        spec.lease_duration_seconds,
        spec.acquire_time,
        spec.renew_time,
        spec.lease_transitions,
        lease.metadata.resource_version,
    )


def _spec(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquired or None,
        "renewTime": record.renewed or None,
        "leaseTransitions": record.transitions,
    }
