"""The Lease of leader election, the term of a leader, and the fence in front of its writes.

`trainer_kai.kube.leader.elector` has the contract, and decides what is written when. `LeaseRecord`,
`LeaderTerm` and `Fence` are pure; `LeaseClient` adds time limits to a `LeaseStore`; `LeaseApi` is
the store on an API server: it patches our fields and leaves all others unchanged, and the patch
names the version that the API server must compare. Nothing is read from a cache.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import LEASES
from trainer_kai.errors import ConfigError, FieldError, TrainerKaiError
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.tasks import within
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import (
    ApiError,
    ApiResponse,
    ErrorDetails,
    Forbidden,
    NotFound,
    Unavailable,
)
from trainer_kai.kube.rest.transport import Transport, unavailable
from trainer_kai.service.clock import Clock

A = TypeVar("A")
_FAILED: Final = 500


class LeaseLost(TrainerKaiError):
    """A write was stopped, because this process may not lead any more."""


class LeaseRecord(NamedTuple):
    """The spec of a Lease that we read and write, and its version."""

    holder: str  # "" for none
    duration_s: int
    acquired: str  # RFC 3339, by the clock of the holder: only for display
    renewed: str  # likewise; "" if it was never held
    transitions: int
    version: str = ""


@dataclass(frozen=True)
class LeaseTiming:
    """The durations of leader election; the defaults are in `LeaderSettings`."""

    lease_s: int  # without changes for so long it may be acquired; whole seconds, as in the API
    renew_deadline_s: float  # a leader that could not renew for so long stops leading
    retry_s: float  # between renewals of a leader, and between reads of a follower
    write_s: float  # the time limit for a write of the leader

    def __post_init__(self) -> None:
        faults = [
            FieldError(name, "must be more than 0")
            for name in ("lease_s", "renew_deadline_s", "retry_s", "write_s")
            if getattr(self, name) <= 0
        ]
        if self.lease_s <= self.renew_deadline_s + self.write_s:
            message = (
                "must be more than renew_deadline_s plus write_s: a write that is sent at the "
                "deadline must finish before the Lease expires"
            )
            faults.append(FieldError("lease_s", message))
        if self.renew_deadline_s <= 1.2 * self.retry_s:
            message = "must be more than 1.2 times retry_s: one failed renewal is no reason to stop"
            faults.append(FieldError("renew_deadline_s", message))
        if faults:
            raise ConfigError(faults)

    @property
    def request_s(self) -> float:
        """Return the time limit for one response: half the deadline, so that two attempts fit."""
        return self.renew_deadline_s / 2


class LeaderTerm:
    """One period of leading, with its end on our own clock.

    A term that began with a Lease of unknown history is settled only by a renewal sent at
    *settles_after_s* or later; before that nothing may be written.
    """

    def __init__(
        self, record: LeaseRecord, until_s: float, settles_after_s: float | None = None
    ) -> None:
        self.record: LeaseRecord | None = record  # as it was last known to be ours; None: missing
        self.until_s = until_s
        self.settles_after_s = settles_after_s  # None: nothing to wait for, or not any more
        self.writes_stopped = False  # no more writes, though the Lease is still ours
        self.ended = False

    @property
    def is_settled(self) -> bool:
        """Say whether no other process can be leading."""
        return self.settles_after_s is None

    def remaining_s(self, now_s: float) -> float:
        """Return the rest of the term if it is not renewed."""
        return 0.0 if self.ended else self.until_s - now_s

    def allows_write(self, now_s: float) -> bool:
        return self.is_settled and not self.writes_stopped and self.remaining_s(now_s) > 0

    def extend(self, record: LeaseRecord, sent_s: float, lasts_s: float, now_s: float) -> None:
        """Extend the term, unless the response came after its end."""
        self.record = record
        if now_s >= self.until_s:
            self.ended = True
        self.until_s = sent_s + lasts_s
        if self.settles_after_s is not None and sent_s >= self.settles_after_s:
            self.settles_after_s = None

    def restart_settling(self, settles_after_s: float) -> None:
        """Begin to settle again, because the term may have been interrupted."""
        if self.settles_after_s is not None:
            self.settles_after_s = settles_after_s

    def end(self) -> None:
        """End the term for good, whatever response still arrives."""
        self.ended = True


@dataclass(eq=False)
class InFlightWrite:
    ends_s: float
    may_still_apply: bool = False  # it may still be executed, though no task waits for it


class Fence:
    """The check before each write of a leader is sent, without an `await` in between.

    Work writes with `client.with_fence(fence)`; `FencedTransport` says why.
    """

    def __init__(self, term: LeaderTerm, write_s: float, now_s: Callable[[], float]) -> None:
        self._term = term
        self.write_s = write_s
        self._now_s = now_s
        self._abandoned_until_s = -math.inf  # like `writes_end_s`, for writes that lost their task
        self._in_flight: set[InFlightWrite] = set()

    @property
    def writes_end_s(self) -> float:
        """Return the time from which on no unanswered write can be in progress."""
        return max([self._abandoned_until_s, *(it.ends_s for it in self._in_flight)])

    @property
    def is_open(self) -> bool:
        """Say whether a write would pass; only for display."""
        return self._term.allows_write(self._now_s())

    @contextmanager
    def write(self) -> Iterator[InFlightWrite]:
        """Let one request pass, and record whether it was answered; else raise `LeaseLost`.

        For `FencedTransport`: the request inside is sent once, and ends within `write_s`.
        """
        write = InFlightWrite(self._now_s() + self.write_s)
        if not self.is_open:
            message = "the Lease expired: another leader may be active"
            raise LeaseLost(message)
        self._in_flight.add(write)
        try:
            yield write
        except BaseException as error:
            write.may_still_apply = not isinstance(error, ApiError) or (
                isinstance(error, Unavailable) and error.was_sent
            )
            raise
        finally:
            self._in_flight.remove(write)
            if write.may_still_apply:
                self._abandoned_until_s = max(self._abandoned_until_s, write.ends_s)


def micro_time(now: datetime, other_than: str = "") -> str:
    """Return a time as the API's MicroTime that differs from *other_than*.

    A write without a change keeps the version, and followers would not notice the renewal.
    """
    text = _micro(now)
    return text if text != other_than else _micro(now + timedelta(microseconds=1))


def _micro(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseStore(Protocol):
    """A Lease as the API server has it; errors are those of `trainer_kai.kube.rest.response`."""

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
    def __init__(self, store: LeaseStore, identity: str, timing: LeaseTiming, clock: Clock) -> None:
        self.identity = identity
        self.timing = timing
        self.clock = clock
        self._store = store

    async def read(self, limit_s: float) -> LeaseRecord | None:
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
    def __init__(self, client: Client, key: Key) -> None:
        self._client = client
        self._key = key

    async def read(self) -> LeaseRecord | None:
        try:
            return _record(await self._allowed(self._client.get(LEASES, self._key)))
        except NotFound:
            return None

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        metadata = {"namespace": self._key.namespace, "name": self._key.name}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        request = self._client.create(LEASES, self._key.namespace, body | {"spec": _spec(record)})
        return _record(await self._allowed(request))

    async def update(self, record: LeaseRecord, version: str) -> LeaseRecord:
        fields = {"metadata": {"resourceVersion": version}, "spec": _spec(record)}
        return _record(await self._allowed(self._client.merge_patch(LEASES, self._key, fields)))

    async def _allowed(self, request: Awaitable[A]) -> A:
        try:
            return await request
        except Forbidden as error:
            namespace, name = self._key
            verbs = f"get, create and patch on {LEASES} in namespace {namespace}"
            needs = f"leader election needs {verbs}, at least for {name}"
            message = f"{error.details.message}; {needs}"
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


class FencedTransport:
    """A transport behind a fence: reads pass, and writes raise `LeaseLost` once it has fallen.

    The client repeats failed requests, waits after a 429 and reads new credentials after a 401, so
    a fence that is checked before the client is called may have fallen long before the request is
    sent. Here it is checked each time that a request is handed to the transport. Access reviews
    pass as well, because they change nothing.

    The transport may then still have to fetch credentials (a plugin is a process) and to connect.
    All of this and the response share one time limit of at most `write_s`, so a write is finished
    before another process leads. Not covered is a process that is stopped within that time: its
    request is sent when it wakes up, if the connection is ready before the time limit is noticed.
    Writes that must not happen twice carry a uid or a version.
    """

    def __init__(self, transport: Transport, fence: Fence, clock: Clock) -> None:
        self._transport = transport
        self._fence = fence
        self._clock = clock

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        if request.method == "GET" or _changes_nothing(request):
            return await self._transport.send(request, timeout_s)
        limit_s = min(timeout_s, self._fence.write_s)
        with self._fence.write() as write:
            try:
                sending = self._transport.send(request, limit_s)
                response = await within(self._clock, limit_s, sending)
            except TimeoutError as error:
                message = f"no response within {limit_s:g} s"
                raise unavailable(request, message, was_sent=True) from error
            # after a 504 the write may still be in progress
            write.may_still_apply = response.status >= _FAILED
            return response

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.stream(request, silence_s)

    async def close(self) -> None:
        """Leave the inner transport open."""


def _changes_nothing(request: Request) -> bool:
    return request.method == "POST" and request.repeatable
