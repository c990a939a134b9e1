"""Informers for every kind that a plan needs: a change goes to the cache, then the cycle."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from scheduler.core.model.cluster_events import ClusterEvent
from scheduler.shell.cycle import Cycle
from scheduler.state.cache.cache import ClusterCache
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import EVENTS
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.client_observer import ClientObserver
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.request import ListTarget, Selection
from trainer_kai.kube.watch.delta import Delta, DeltaType
from trainer_kai.kube.watch.watch import NO_BOOKMARKS, Watch
from trainer_kai.policy.pods.creation_failures import FIELD_SELECTOR
from trainer_kai.service.health import Health

T = TypeVar("T", bound=Object)


class _WatchedKind(NamedTuple):
    """A kind that is watched, and what to call with its changes."""

    resource: Resource[Any]
    notify: Callable[[Key, Any], ClusterEvent]


class ClusterInformers:
    """Starts the watches; synced means that each has listed all objects of its kind."""

    def __init__(self, cache: ClusterCache, cycle: Cycle) -> None:
        self._cache = cache
        self._cycle = cycle
        self._unsynced: set[str] = set()
        self._synced = asyncio.Event()

    async def synced(self) -> None:
        """Wait until each kind is listed."""
        await self._synced.wait()

    def start(self, run: Runner, client: Client, seen: ClientObserver, health: Health) -> None:
        """Start to watch all kinds."""
        kinds = [
            _WatchedKind(resource, partial(self._cache.update, resource))
            for resource in self._cache.cluster.by_resource()
        ]
        self._unsynced = {kind.resource.plural for kind in kinds}
        for kind in kinds:
            name = kind.resource.plural
            watch: Watch[Any] = Watch(client, ListTarget(kind.resource), seen)
            health.add_condition(f"{name} followed", watch.not_synced_reason)
            run.start(f"watch {name}", self._watch_service(watch, kind))
        # These Events only explain why pods are missing, so no sync waits for them.
        kind = _WatchedKind(EVENTS, self._cache.creation_failures.update)
        creation_failures: Watch[Any] = Watch(
            client,
            ListTarget(EVENTS, selection=Selection(fields=FIELD_SELECTOR)),
            seen,
            timing=NO_BOOKMARKS,
        )
        run.start(f"watch {EVENTS.plural}", self._watch_service(creation_failures, kind))

    def _watch_service(
        self, watch: Watch[Any], kind: _WatchedKind
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        def change(it: Delta[Any]) -> None:
            is_deleted = it.type is DeltaType.DELETED or it.object is None
            seen = None if is_deleted else it.object
            self._cycle.wake(kind.notify(it.key, seen), it.key.namespace)

        def synced() -> None:
            self._unsynced.discard(kind.resource.plural)
            if not self._unsynced:
                self._synced.set()

        return lambda: watch.run(change, synced)
