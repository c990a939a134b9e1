"""The event recorder: Kubernetes Events about objects.

`EventRecorder.post` returns at once, never fails and never waits; a task sends. An Event is a
courtesy: what cannot be written is counted and dropped, and nothing may rely on its being read.
They are Events of the core group with a count, as KAI and the controllers of Kubernetes write them:
`kubectl describe` and `kubectl get events` show count and age of these, and the message of an Event
that repeats can be changed. Those of events.k8s.io can only have their series changed, which the
columns of `kubectl get events` do not show.

1. A 429, a 5xx or no response is tried again, later and later, until the process stops.
2. An Event that the API server has forgotten is made anew, with its count.
3. Where an Event may not or cannot be made (no permission, no namespace any more) it is dropped;
   the first one of each namespace is logged.
4. When the service is cancelled it sends what waits, for as long as its grace.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.api.resources import EVENTS
from trainer_kai.kube.client import Client
from trainer_kai.kube.events.correlator import (
    CorrelatedEvent,
    EventCorrelator,
    EventLimits,
    EventObject,
    EventType,
    NewEvent,
    TokenBucket,
)
from trainer_kai.kube.process.tasks import cancel_all, finish_within
from trainer_kai.kube.rest.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    Unauthorized,
    is_retryable,
)
from trainer_kai.kube.workqueue.backoff import Backoff
from trainer_kai.service.clock import Clock

EventOutcome: TypeAlias = Literal["posted", "dropped", "failed"]

_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 60.0
_LOGGED: Final = 1000  # namespaces for which the first failure is logged


class EventStore(Protocol):
    """Where Events are kept; errors are those of `trainer_kai.kube.rest.errors`."""

    async def create(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Make an Event."""
        ...

    async def change(self, key: Key, fields: Mapping[str, Any]) -> None:
        """Set fields of an Event."""
        ...


class EventApi:
    """The Events of a real API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Make an Event."""
        await self._client.create(EVENTS, namespace, body)

    async def change(self, key: Key, fields: Mapping[str, Any]) -> None:
        """Set fields of an Event."""
        await self._client.merge_patch(EVENTS, key, fields)


@dataclass(frozen=True)
class EventSettings:
    """Which component reports, and how much in all."""

    component: str
    """The reporting component: `kubectl describe` shows it as From."""
    instance: str
    """Which of its processes, for instance the name of the pod."""
    burst: int = 100
    """How many writes may come at once, about all objects together."""
    per_s: float = 20.0
    """How many writes a second after that."""
    grace_s: float = 3.0
    """How long the rest may take when the process stops."""


class EventRecorder:
    """Posts Events; `run` is the service."""

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
        """Return how many Events are still to be written."""
        return self._correlator.waiting

    async def run(self) -> None:
        """Send until cancelled, and then the rest."""
        try:
            while True:
                await self._has_waiting.wait()
                self._has_waiting.clear()
                await self._send_all()
        except asyncio.CancelledError:
            await self._send_rest()
            raise

    async def _send_all(self) -> None:
        while (event := self._correlator.first()) is not None:
            while (wait_s := self._rate_limit.take(self._clock.monotonic_s())) > 0:
                await self._clock.sleep(wait_s)
            await self._clock.sleep(await self._send(event))

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
