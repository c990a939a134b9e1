"""Fills the cache: one watch for each kind, and runtimes are listed again at an interval."""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import ACCESS
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    QUEUES,
    TOPOLOGIES,
)
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.context import ClientObserver
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.rest.response import ApiError, NotFound
from trainer_kai.kube.watch import Delta, DeltaType, Watch
from trainer_kai.service.garbage_collection import freeze_known_objects
from trainer_kai.service.health import Health
from webhook.cache.admission_cache import TRAINJOBS, AdmissionCache, ClusterObjects, QueueTree
from webhook.cache.runtimes import CLUSTER_RUNTIMES, RUNTIMES

T = TypeVar("T", bound=Object)
_PAGE_SIZE: Final = 50  # runtimes in a page: each may have 1.5 MB


class _Watcher(NamedTuple):
    run: Runner
    client: Client
    observer: ClientObserver
    health: Health

    def watch_kind(
        self,
        target: ListTarget[T],
        put: Callable[[T], None],
        drop: Callable[[Key], None],
        on_listed: Callable[[], None] | None = None,
        *,
        optional: bool = False,
    ) -> None:
        """Watch one kind; readiness does not wait for a kind with *on_listed*.

        An *optional* kind that the API server does not serve counts as listed.

        The objects of all other kinds are frozen once listed, so that the garbage collector does
        not walk them while a review waits.
        """
        watch = Watch(self.client, target, self.observer, optional=optional)

        def apply_delta(it: Delta[T]) -> None:
            if it.type is not DeltaType.DELETED and it.object is not None:
                put(it.object)
            else:
                drop(it.key)

        def freeze_after_first_list() -> None:
            if not watch.synced:
                freeze_known_objects()

        name = target.resource.plural
        if on_listed is None:
            self.health.add_condition(
                f"{name} listed", lambda: None if watch.synced else watch.not_synced_reason()
            )
        on_synced = on_listed or freeze_after_first_list
        self.run.start(f"watch {name}", lambda: watch.run(apply_delta, on_synced))


def start_watches(
    run: Runner, client: Client, cache: AdmissionCache, observer: ClientObserver, health: Health
) -> None:
    """Keep a cache up to date.

    The process is ready when every kind was listed once. If the API server is unavailable later,
    the cache is old but still used; a rule that must know the current TrainJob reads it.
    """
    watcher = _Watcher(run, client, observer, health)
    # Without Trainer there are Jobs and JobSets to admit all the same.
    put_trainjob, drop_trainjob = cache.put_trainjob, cache.drop_trainjob
    watcher.watch_kind(ListTarget(TRAINJOBS), put_trainjob, drop_trainjob, optional=True)
    for resource in (RUNTIMES, CLUSTER_RUNTIMES):
        put, drop = cache.runtimes.put, cache.runtimes.drop
        watcher.watch_kind(ListTarget(resource), put, drop, optional=True)
    watcher.watch_kind(
        ListTarget(NAMESPACES),
        lambda it: cache.put_namespace(it.metadata),
        lambda key: cache.drop_namespace(key.name),
    )
    _watch_lint_objects(watcher, cache.queues, cache.cluster)


def _watch_lint_objects(watcher: _Watcher, queues: QueueTree, cluster: ClusterObjects) -> None:
    """Watch the kinds for lint; until they are listed a TrainJob gets fewer warnings."""

    def put_queue(queue: Queue) -> None:
        meta = queue.metadata
        queues.put(meta.name, queue.spec.parent_queue, meta.annotations.get(ACCESS))
        cluster.put_queue(queue)

    def drop_queue(key: Key) -> None:
        queues.drop(key.name)
        cluster.drop_queue(key)

    def queues_listed() -> None:
        queues.mark_listed()
        cluster.mark_listed(QUEUES.plural)

    def on_listed(plural: str) -> Callable[[], None]:
        return lambda: cluster.mark_listed(plural)

    watch = watcher.watch_kind
    watch(ListTarget(QUEUES), put_queue, drop_queue, queues_listed)
    watch(ListTarget(NODES), cluster.put_node, cluster.drop_node, on_listed(NODES.plural))
    put_class, drop_class = cluster.put_priority_class, cluster.drop_priority_class
    watch(ListTarget(PRIORITY_CLASSES), put_class, drop_class, on_listed(PRIORITY_CLASSES.plural))
    put_topology, drop_topology = cluster.put_topology, cluster.drop_topology
    watch(ListTarget(TOPOLOGIES), put_topology, drop_topology, on_listed(TOPOLOGIES.plural))
    put_device, drop_device = cluster.put_device_class, cluster.drop_device_class
    devices, templates = DEVICE_CLASSES.plural, CLAIM_TEMPLATES.plural
    watch(ListTarget(DEVICE_CLASSES), put_device, drop_device, on_listed(devices), optional=True)
    put, drop = cluster.put_claim_template, cluster.drop_claim_template
    watch(ListTarget(CLAIM_TEMPLATES), put, drop, on_listed(templates), optional=True)


async def relist_runtimes(
    client: Client, cache: AdmissionCache, interval_s: float, log: FilteringBoundLogger
) -> None:
    """List all runtimes at an interval, although they are watched.

    When a field is added to their CRD, a watch that is already open leaves the field out for about
    two minutes, and sends no later event for the runtimes that have it.
    """
    while True:
        await client.clock.sleep(interval_s)
        for resource in (RUNTIMES, CLUSTER_RUNTIMES):
            cache.runtimes.begin_list()
            try:
                async for page in client.pages(ListTarget(resource), limit=_PAGE_SIZE):
                    for runtime in page.items:
                        cache.runtimes.put_listed(runtime)
            except NotFound:
                continue  # Trainer is not installed
            except ApiError as error:
                log.warning("runtimes not listed", resource=str(resource), error=str(error))
