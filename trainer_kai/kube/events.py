"""The event recorder: Kubernetes Events about objects, correlated so that few are written.

`EventRecorder.post` returns at once, never fails and never waits; `run` is the service that sends.
An Event is a courtesy: what cannot be written is counted and dropped, and nothing may rely on its
being read.

`EventCorrelator`, which is pure, decides what is written:

1. The same message about the same object is one Event with a count that grows.
2. More than `similar_most` different messages for one reason, none later than `similar_s` after the
   one before, become one Event, which begins with "(combined …)" and holds the last ones.
3. Each object may cause `object_burst` writes at once and one more each `object_refill_s`. Further
   messages are counted and show up with the next write; `post` returns False for them.
4. An Event that waits to be written is not written twice: it is written with its last count.
5. No more than `remembered` of anything is remembered; the longest unused is forgotten, and what
   still waits to be written is not. When all of it waits, nothing new is taken.

The recorder sends it:

1. A 429, a 5xx or no response is tried again, later and later, until the process stops.
2. An Event that the API server has forgotten is made anew, with its count.
3. Where an Event may not or cannot be made (no permission, no namespace any more) it is dropped;
   the first one of each namespace is logged.
4. When the service is cancelled it sends what waits, for as long as its grace.
5. A new Event waits while `is_busy` says that more urgent writes are sent, for ten seconds at most.

These are Events of the core group with a count, as KAI and the controllers of Kubernetes write
them: `kubectl describe` and `kubectl get events` show count and age of these, and the message of an
Event that repeats can be changed. Those of events.k8s.io can only have their series changed, which
the columns of `kubectl get events` do not show.
"""

import asyncio
import random
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.api.resources import EVENTS
from trainer_kai.api.text import truncated_message
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.tasks import cancel_all, finish_within
from trainer_kai.kube.rest.response import (
    AlreadyExists,
    ApiError,
    NotFound,
    Unauthorized,
    is_retryable,
)
from trainer_kai.kube.workqueue import Backoff
from trainer_kai.service.clock import Clock

K = TypeVar("K")
V = TypeVar("V")
EventType: TypeAlias = Literal["Normal", "Warning"]
EventOutcome: TypeAlias = Literal["posted", "dropped", "failed"]

_COMBINED: Final = "(combined from similar events): "
_LONGEST_NAME: Final = 230  # characters of the object's name in that of its Event
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 60.0
_BUSY_POLL_S: Final = 0.5
_MAX_BUSY_S: Final = 10.0  # that a new Event waits while more urgent writes are sent
_LOGGED: Final = 1000  # namespaces for which the first failure is logged


@dataclass(frozen=True)
class EventLimits:
    object_burst: int = 25
    object_refill_s: float = 300.0
    similar_most: int = 10
    similar_s: float = 600.0
    remembered: int = 4096


class EventObject(NamedTuple):
    api_version: str
    kind: str
    namespace: str  # "" for those that have none
    name: str
    uid: str


class NewEvent(NamedTuple):
    regarding: EventObject
    reason: str
    message: str
    type: EventType
    annotations: Mapping[str, str] = {}


_Similar: TypeAlias = tuple[EventObject, str, EventType]
_Key: TypeAlias = tuple[_Similar, str]


@dataclass
class CorrelatedEvent:
    name: str
    latest: NewEvent
    first: datetime
    last: datetime
    count: int = 0
    exists: bool = False  # the API server has it, so only the count and the words change

    @property
    def namespace(self) -> str:
        """Return where it is written: beside its object, or in default."""
        return self.latest.regarding.namespace or "default"

    def body(self, component: str, instance: str) -> dict[str, Any]:
        regarding = self.latest.regarding
        metadata: dict[str, Any] = {"namespace": self.namespace, "name": self.name}
        if self.latest.annotations:
            metadata["annotations"] = dict(self.latest.annotations)
        involved = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": {field: text for field, text in involved.items() if text},
            "reason": self.latest.reason,
            "type": self.latest.type,
            "firstTimestamp": _time(self.first),
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": instance,
            **self.changed_fields(),
        }

    def changed_fields(self) -> dict[str, Any]:
        """Return what differs from one write to the next."""
        message, last = self.latest.message, _time(self.last)
        return {"message": message, "count": self.count, "lastTimestamp": last}


@dataclass
class TokenBucket:
    """So many at once, and one more each so many seconds."""

    capacity: int
    refill_s: float
    tokens: float = -1.0
    updated_s: float = 0.0

    def take(self, now_s: float) -> float:
        """Take one and return 0, or return how long to wait for the next one."""
        if self.tokens < 0:
            self.tokens, self.updated_s = float(self.capacity), now_s
        refilled = self.tokens + (now_s - self.updated_s) / self.refill_s
        self.tokens = min(refilled, float(self.capacity))
        self.updated_s = now_s
        if self.tokens < 1 - 1e-9:
            return (1 - self.tokens) * self.refill_s
        self.tokens = max(self.tokens - 1, 0.0)
        return 0.0


@dataclass
class _SimilarMessages:
    hashes: set[int] = field(default_factory=set)
    updated_s: float = 0.0


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """A mapping that forgets what was not used for longest."""

    def get_or_make(self, key: K, make: Callable[[], V], most: int) -> V:
        if key not in self:
            self[key] = make()
            if len(self) > most:
                self.popitem(last=False)
        self.move_to_end(key)
        return self[key]


class EventCorrelator:
    def __init__(self, limits: EventLimits, token: Callable[[], str]) -> None:
        """Take the limits and a source of unique names."""
        self._limits = limits
        self._token = token
        self._buckets: _Recent[EventObject, TokenBucket] = _Recent()
        self._similar: _Recent[_Similar, _SimilarMessages] = _Recent()
        self._entries: OrderedDict[_Key, CorrelatedEvent] = OrderedDict()
        self._waiting: OrderedDict[_Key, CorrelatedEvent] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Return how many Events are to be written."""
        return len(self._waiting)

    def post(self, new_event: NewEvent, now_s: float, now: datetime) -> bool:
        """Take an event; say whether it will be written."""
        key, new_event = self._combine_similar(new_event, now_s)
        event = self._waiting.get(key)
        if event is not None:
            _count_event(event, new_event, now)
            return True
        event = self._entry(key, new_event, now)
        if event is None:
            return False
        _count_event(event, new_event, now)
        return self._queue(key, now_s)

    def first(self) -> CorrelatedEvent | None:
        """Return what waits for longest."""
        return next(iter(self._waiting.values()), None)

    def mark_written(self, event: CorrelatedEvent, count: int, now_s: float) -> None:
        """Note that the API server has an Event with this count, which may have grown meanwhile."""
        event.exists = True
        key = self.stop_waiting(event)
        if event.count > count:
            self._queue(key, now_s)

    def rename(self, event: CorrelatedEvent) -> None:
        """Note that the API server has lost an Event: it is made anew, under another name."""
        event.exists = False
        event.name = self._name(event.latest)

    def stop_waiting(self, event: CorrelatedEvent) -> _Key:
        """Leave an Event as it is; the next one like it goes on from there."""
        key, first = next(iter(self._waiting.items()))
        assert first is event, "only what waits for longest is being written"
        del self._waiting[key]
        self._entries[key] = event
        return key

    def _queue(self, key: _Key, now_s: float) -> bool:
        """Have an Event written, if its object may cause another write."""
        event, limits = self._entries[key], self._limits
        bucket = self._buckets.get_or_make(
            event.latest.regarding,
            lambda: TokenBucket(limits.object_burst, limits.object_refill_s),
            limits.remembered,
        )
        if bucket.take(now_s) > 0:
            return False
        self._waiting[key] = self._entries.pop(key)
        return True

    def _combine_similar(self, new_event: NewEvent, now_s: float) -> tuple[_Key, NewEvent]:
        """Return the key of an event and its message, after a look at similar ones."""
        similar = (new_event.regarding, new_event.reason, new_event.type)
        recent = self._similar.get_or_make(similar, _SimilarMessages, self._limits.remembered)
        if now_s - recent.updated_s > self._limits.similar_s:
            recent.hashes.clear()
        recent.updated_s = now_s
        if len(recent.hashes) <= self._limits.similar_most:
            recent.hashes.add(hash(new_event.message))
        if len(recent.hashes) <= self._limits.similar_most:
            message = truncated_message(new_event.message)
            return (similar, message), new_event._replace(message=message)
        message = truncated_message(_COMBINED + new_event.message)
        return (similar, _COMBINED), new_event._replace(message=message)

    def _entry(self, key: _Key, new_event: NewEvent, now: datetime) -> CorrelatedEvent | None:
        event = self._entries.get(key)
        if event is not None:
            self._entries.move_to_end(key)
            return event
        if len(self._entries) + len(self._waiting) >= self._limits.remembered:
            if not self._entries:
                return None
            self._entries.popitem(last=False)
        self._entries[key] = CorrelatedEvent(self._name(new_event), new_event, now, now)
        return self._entries[key]

    def _name(self, new_event: NewEvent) -> str:
        return f"{new_event.regarding.name[:_LONGEST_NAME].rstrip('-.')}.{self._token()}"


def _count_event(event: CorrelatedEvent, new_event: NewEvent, now: datetime) -> None:
    event.latest = new_event
    event.last = now
    event.count += 1


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class EventStore(Protocol):
    """Where Events are kept; errors are those of `trainer_kai.kube.rest.response`."""

    async def create(self, namespace: str, body: Mapping[str, Any]) -> None: ...

    async def change(self, key: Key, fields: Mapping[str, Any]) -> None: ...


class EventApi:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, namespace: str, body: Mapping[str, Any]) -> None:
        await self._client.create(EVENTS, namespace, body)

    async def change(self, key: Key, fields: Mapping[str, Any]) -> None:
        await self._client.merge_patch(EVENTS, key, fields)


@dataclass(frozen=True)
class EventSettings:
    component: str  # `kubectl describe` shows it as From
    instance: str  # which of its processes, for instance the name of the pod
    burst: int = 100  # writes at once, about all objects together
    per_s: float = 20.0  # writes a second after that
    grace_s: float = 3.0  # for the rest when the process stops


class EventRecorder:
    def __init__(
        self,
        store: EventStore,
        settings: EventSettings,
        clock: Clock,
        log: FilteringBoundLogger,
        *,
        limits: EventLimits | None = None,
        count: Callable[[EventOutcome], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._log = log
        self._count = count
        self._correlator = EventCorrelator(limits or EventLimits(), lambda: secrets.token_hex(8))
        self._rate_limit = TokenBucket(settings.burst, 1 / settings.per_s)
        self._backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S, random.random)
        self._has_waiting = asyncio.Event()
        self.is_busy: Callable[[float], bool] = lambda _now_s: False
        """Says of a moment, in monotonic seconds, whether new Events had better wait."""
        self._logged: set[tuple[str, str]] = set()

    def post(
        self,
        regarding: EventObject,
        reason: str,
        message: str,
        type: EventType = "Normal",  # noqa: A002 - the API's own word
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Post an Event about an object, soon; the same again only counts."""
        new_event = NewEvent(regarding, reason, message, type, annotations or {})
        if self._correlator.post(new_event, self._clock.monotonic_s(), self._clock.now()):
            self._has_waiting.set()
        else:
            self._count("dropped")

    @property
    def waiting(self) -> int:
        return self._correlator.waiting

    async def run(self) -> None:
        try:
            while True:
                await self._has_waiting.wait()
                self._has_waiting.clear()
                await self._send_all(may_wait=True)
        except asyncio.CancelledError:
            await self._send_rest()
            raise

    async def _send_all(self, *, may_wait: bool = False) -> None:
        while (event := self._correlator.first()) is not None:
            while may_wait and self._had_better_wait(event):
                await self._clock.sleep(_BUSY_POLL_S)
            while (wait_s := self._rate_limit.take(self._clock.monotonic_s())) > 0:
                await self._clock.sleep(wait_s)
            await self._clock.sleep(await self._send(event))

    def _had_better_wait(self, event: CorrelatedEvent) -> bool:
        if event.exists or not self.is_busy(self._clock.monotonic_s()):
            return False
        return (self._clock.now() - event.first).total_seconds() < _MAX_BUSY_S

    async def _send_rest(self) -> None:
        sending = asyncio.create_task(self._send_all(), name="send last events")
        try:
            await finish_within(self._clock, self._settings.grace_s, [sending])
        finally:
            await cancel_all([sending])
            error = None if sending.cancelled() else sending.exception()
            if self.waiting:
                self._log.warning("events not sent", events=self.waiting, error=str(error or ""))

    async def _send(self, event: CorrelatedEvent) -> float:
        """Try to write one Event; return how long to wait before anything else is written."""
        count = event.count
        try:
            await self._write(event)
        except AlreadyExists:
            event.exists = True  # by us: its name is ours, and the answer was lost
            return 0.0
        except NotFound as error:
            if event.exists:
                self._correlator.rename(event)  # it has outlived its time
            else:
                self._drop(event, error)
            return 0.0
        except ApiError as error:
            if isinstance(error, Unauthorized):
                raise
            if is_retryable(error):
                return self._backoff.next_s(error.retry_after_s)
            self._drop(event, error)
            return 0.0
        self._backoff.reset()
        self._correlator.mark_written(event, count, self._clock.monotonic_s())
        self._count("posted")
        return 0.0

    async def _write(self, event: CorrelatedEvent) -> None:
        if event.exists:
            await self._store.change(Key(event.namespace, event.name), event.changed_fields())
        else:
            body = event.body(self._settings.component, self._settings.instance)
            await self._store.create(event.namespace, body)

    def _drop(self, event: CorrelatedEvent, error: ApiError) -> None:
        self._correlator.stop_waiting(event)
        self._count("failed")
        kind = (event.namespace, type(error).__name__)
        if kind not in self._logged and len(self._logged) < _LOGGED:
            self._logged.add(kind)
            self._log.warning("event not written", namespace=event.namespace, error=str(error))
