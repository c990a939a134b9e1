"""Every change of some kinds of object, from a raw watch, so that a test can assert every moment.

A test that polls sees the end; this sees the way there. It is a witness, so it never repairs
itself: a watch that ends, expires or skips makes the test fail, and nothing is listed a second time
behind its back. It shares no code with the product's client, which it is used to judge.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from e2e.cluster.api import Api
from e2e.cluster.patience import patience_s
from e2e.cluster.resources import Obj, Resource
from e2e.cluster.together import together

_PATIENCE_S: Final = 10.0


class Gap(AssertionError):
    """The record is incomplete, the watch ended or contradicts itself: the test proves nothing."""


class Key(NamedTuple):
    """Which object."""

    resource: Resource
    namespace: str
    name: str


State = Mapping[Key, Obj]


class Moment(NamedTuple):
    """One change: when it reached us, at which version of the store, and the object after it."""

    at_s: float
    version: int
    type: str  # ADDED, MODIFIED, DELETED; LISTED for what was there before
    key: Key
    obj: Obj


class Timeline:
    """The record of a stretch of time; `async with` bounds it and checks that all is there."""

    def __init__(
        self, api: Api, resources: Sequence[Resource], *, namespace: str | None = None
    ) -> None:
        self.moments: list[Moment] = []
        self.state: dict[Key, Obj] = {}
        self._api = api
        self._resources = resources
        self._namespace = namespace
        self._watches: list[asyncio.Task[None]] = []
        self._has_moved = asyncio.Condition()
        self._gap: str | None = None
        self._starts: dict[Resource, int] = {}
        self._recorded: dict[Resource, set[int]] = {}  # the versions of the events that arrived

    async def __aenter__(self) -> Self:
        self._began = time.monotonic()
        lists = [(r, *await self._api.list(r, self._namespace)) for r in self._resources]
        for resource, objects, version in lists:
            for obj in objects:
                self._record("LISTED", resource, obj)
            self.watch_from(resource, version)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.settle()
        finally:
            for watch in self._watches:
                watch.cancel()
            await asyncio.gather(*self._watches, return_exceptions=True)

    def objects(self, resource: Resource) -> list[Obj]:
        """Return the objects of one kind as they are now."""
        return [obj for key, obj in self.state.items() if key.resource == resource]

    def history(self) -> list[Moment]:
        """Return every moment in the order the store saw them, over all kinds."""
        return sorted(self.moments, key=lambda moment: moment.version)

    async def follow(
        self, true_of: Callable[[State], bool], timeout_s: float
    ) -> AsyncIterator[State]:
        """Yield the state now and after every change, until something is true of it.

        The time-out is as long as on a usual machine: `patience_s` makes more of it.
        """
        deadline = time.monotonic() + patience_s(timeout_s)
        seen = -1
        while not true_of(self.state):
            self._check()
            if time.monotonic() > deadline:
                raise TimeoutError  # even when something changes all the time
            if seen != len(self.moments):
                seen = len(self.moments)
                yield dict(self.state)
                continue  # the consumer may have waited: look again before sleeping
            async with asyncio.timeout(deadline - time.monotonic()), self._has_moved:
                if seen == len(self.moments):
                    await self._has_moved.wait()

    async def until(
        self, true_of: Callable[[State], bool], what: str, timeout_s: float = 30.0
    ) -> None:
        """Wait until something is true of the state; fail with *what* was waited for."""
        try:
            async for _ in self.follow(true_of, timeout_s):
                pass
        except TimeoutError:
            message = f"waited {patience_s(timeout_s):g} s in vain for: {what}; {self.describe()}"
            raise AssertionError(message) from None

    def describe(self) -> str:
        """Return the state in words, for a failure."""
        seen = "\n".join(_describe(key, obj) for key, obj in sorted(self.state.items()))
        return f"the state is\n{seen}"

    def never(self, true_of: Callable[[State], bool], what: str) -> None:
        """Fail when something was true at any moment so far."""
        self._check()
        for moment, state in replay(self.history()):
            if true_of(state):
                seen = _describe(moment.key, moment.obj)
                message = f"{what}: so it was at {moment.at_s:.3f} s, after {moment.type} {seen}"
                raise AssertionError(message)

    async def settle(self) -> None:
        """Wait until the record holds every event up to now; fail when one does not come.

        A list cannot tell what came and went meanwhile, so the events since the last one recorded
        are read a second time, on a watch of their own.
        """
        await together(self._settle(resource) for resource in self._starts)
        self._check()

    async def _settle(self, resource: Resource) -> None:
        last = max([self._starts[resource], *self._recorded[resource]])
        _, now = await self._api.list(resource, self._namespace)
        awaited = await self._read_again(resource, last, int(now))
        await self.until(
            lambda _: awaited <= self._recorded[resource],
            f"the last events of {resource.plural}",
            _PATIENCE_S,
        )

    async def _read_again(self, resource: Resource, after: int, until: int) -> set[int]:
        """Return the versions of all events of one kind between two versions of the store."""
        if after >= until:
            return set()
        query = {"watch": "true", "resourceVersion": str(after), "timeoutSeconds": "1"}
        path = resource.path(self._namespace)
        async with self._api.stream(path, query) as lines:
            events = [json.loads(line) async for line in lines]
        for event in events:
            if event["type"] == "ERROR":
                message = f"{resource.plural}: the end cannot be checked: {event['object']}"
                raise Gap(message)
        return {version for e in events if (version := _version(e["object"])) <= until}

    def watch_from(self, resource: Resource, version: str) -> None:
        """Record what happens to one kind of object after a version of the store."""
        self._starts[resource] = int(version)
        self._recorded[resource] = set()
        self._watches.append(asyncio.create_task(self._watch(resource, version)))

    async def _watch(self, resource: Resource, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "86400"}
        ended = "the API server closed the watch"
        try:
            async with self._api.stream(resource.path(self._namespace), query) as lines:
                async for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        ended = f"the watch failed: {event['object'].get('message')}"
                        break
                    self._record(event["type"], resource, event["object"])
                    self._recorded[resource].add(_version(event["object"]))
                    await self._wake()
        except Exception as error:  # noqa: BLE001 -- whatever ends a watch is a gap in the record
            ended = f"the watch broke: {error!r}"
        self._gap = self._gap or f"{resource.plural}: {ended}"
        await self._wake()

    def _record(self, kind: str, resource: Resource, obj: Obj) -> None:
        key, version, known = (
            _key(resource, obj),
            _version(obj),
            self.state.get(_key(resource, obj)),
        )
        if (kind in ("MODIFIED", "DELETED")) != (known is not None):
            self._gap = self._gap or f"{kind} of {_describe(key, obj)} makes no sense here"
        if known is not None and version <= _version(known):
            self._gap = self._gap or f"{_describe(key, obj)} went back to version {version}"
        if kind == "DELETED":
            self.state.pop(key, None)
        else:
            self.state[key] = obj
        self.moments.append(Moment(time.monotonic() - self._began, version, kind, key, obj))

    async def _wake(self) -> None:
        async with self._has_moved:
            self._has_moved.notify_all()

    def _check(self) -> None:
        if self._gap is not None:
            raise Gap(self._gap)


def replay(history: Sequence[Moment]) -> Iterator[tuple[Moment, State]]:
    """Yield each moment with the state right after it, beginning with what was there before.

    The state is one mapping that moves on.
    """
    listed = [moment for moment in history if moment.type == "LISTED"]
    state: dict[Key, Obj] = {moment.key: moment.obj for moment in listed}
    if listed:
        yield listed[-1], state
    for moment in history:
        if moment.type == "LISTED":
            continue
        if moment.type == "DELETED":
            state.pop(moment.key, None)
        else:
            state[moment.key] = moment.obj
        yield moment, state


def _key(resource: Resource, obj: Obj) -> Key:
    metadata = obj["metadata"]
    return Key(resource, metadata.get("namespace", ""), metadata["name"])


def _version(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _describe(key: Key, obj: Obj) -> str:
    phase = obj.get("status", {}).get("phase", "")
    return f"{key.resource.plural} {key.namespace}/{key.name} {phase}".rstrip()
