"""Informers for every kind that a plan needs: a change goes to the cache, then the cycle.

`resource_tables` lists those kinds with their objects; the dump of the cluster reads the same list.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from scheduler.shell.cycle import Cycle
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.cluster_events import ClusterEvent
from scheduler.state.inputs import Cluster
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import (
    EVENTS,
    JOBSETS,
    NAMESPACES,
    NODES,
    PDBS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    QUEUES,
    QUOTAS,
    STORAGE_CLASSES,
    TOPOLOGIES,
    TRAINJOBS,
)
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.client_observer import ClientObserver
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.request import ListTarget, Selection
from trainer_kai.kube.watch.delta import Delta, DeltaType
from trainer_kai.kube.watch.watch import Watch
from trainer_kai.policy.pods.creation_failures import FIELD_SELECTOR
from trainer_kai.service.health import Health

__all__ = [
    "ClusterInformers",
    "resource_tables",
]

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
        kinds = self._watched_kinds()
        self._unsynced = {kind.resource.plural for kind in kinds}
        for kind in kinds:
            name = kind.resource.plural
            watch: Watch[Any] = Watch(client, ListTarget(kind.resource), seen)
            health.add_condition(f"{name} followed", watch.not_synced_reason)
            run.start(f"watch {name}", self._watch_service(watch, kind))
        # These Events only explain why pods are missing, so no sync waits for them.
        kind = _WatchedKind(EVENTS, self._cache.creation_failures.update)
        creation_failures: Watch[Any] = Watch(
            client, ListTarget(EVENTS, selection=Selection(fields=FIELD_SELECTOR)), seen
        )
        run.start(f"watch {EVENTS.plural}", self._watch_service(creation_failures, kind))

    def _watched_kinds(self) -> list[_WatchedKind]:
        cluster = self._cache.cluster
        watched = (*resource_tables(cluster), (TRAINJOBS, cluster.trainjobs))
        kinds = [_WatchedKind(resource, self._put_into(table)) for resource, table in watched]
        return [
            *kinds,
            _WatchedKind(PODGROUPS, self._cache.update_group),
            _WatchedKind(PODS, self._cache.update_pod),
        ]

    def _put_into(self, table: dict[Any, Any]) -> Callable[[Key, Any], ClusterEvent]:
        return lambda key, seen: self._cache.update(table, key, seen)

    def _watch_service(
        self, watch: Watch[Any], kind: _WatchedKind
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        def change(it: Delta[Any]) -> None:
            is_deleted = it.type is DeltaType.DELETED or it.object is None
            self._cycle.wake(kind.notify(it.key, None if is_deleted else it.object))

        def synced() -> None:
            self._unsynced.discard(kind.resource.plural)
            if not self._unsynced:
                self._synced.set()

        return lambda: watch.run(change, synced)


def resource_tables(cluster: Cluster) -> list[tuple[Resource[Any], dict[Any, Any]]]:
    """Return each kind with its objects by name, but for pods, PodGroups and TrainJobs."""
    return [
        (NODES, cluster.nodes),
        (QUEUES, cluster.queues),
        (TOPOLOGIES, cluster.topologies),
        (PRIORITY_CLASSES, cluster.priority_classes),
        (QUOTAS, cluster.quotas),
        (NAMESPACES, cluster.namespaces),
        (PVS, cluster.volumes),
        (STORAGE_CLASSES, cluster.storage_classes),
        (PVCS, cluster.claims),
        (PDBS, cluster.budgets),
        (JOBSETS, cluster.jobsets),
    ]
