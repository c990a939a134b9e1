"""Keeps the cache: one watch a kind, and runtimes listed again from time to time."""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import ACCESS
from trainer_kai.api.queue import Queue
from trainer_kai.api.resources import NODES, PRIORITY_CLASSES, QUEUES, TOPOLOGIES
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.client_observer import ClientObserver
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.errors import ApiError
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.watch.delta import Delta, DeltaType
from trainer_kai.kube.watch.watch import Watch
from trainer_kai.service.garbage_collection import freeze_known_objects
from trainer_kai.service.health import Health
from webhook.cache.admission_cache import NAMESPACES, AdmissionCache
from webhook.cache.cluster import CLUSTER_RUNTIME_TEXTS, RUNTIME_TEXTS, ClusterObjects
from webhook.cache.queues import QueueTree
from webhook.cache.runtimes import CLUSTER_RUNTIMES, RUNTIMES
from webhook.cache.trainjobs import TRAINJOBS

__all__ = [
    "follow",
]

T = TypeVar("T", bound=Object)
_PAGE: Final = 50  # runtimes: each may have 1.5 MB, and one page is read at a time


class _Watcher(NamedTuple):
    """Follows kinds of objects."""

    run: Runner
    client: Client
    seen: ClientObserver
    health: Health

    def watch_kind(
        self,
        target: ListTarget[T],
        put: Callable[[T], None],
        drop: Callable[[Key], None],
        listed: Callable[[], None] | None = None,
    ) -> None:
        """Tell of one kind from now on; who is told that it was listed is not waited for.

        What is waited for lives on from then: its garbage is gone before the first review.
        """
        watch = Watch(self.client, target, self.seen)

        def change(it: Delta[T]) -> None:
            if it.type is not DeltaType.DELETED and it.object is not None:
                put(it.object)
            else:
                drop(it.key)

        def read() -> None:
            if not watch.synced:
                freeze_known_objects()

        name = target.resource.plural
        if listed is None:
            self.health.add_condition(
                f"{name} listed", lambda: None if watch.synced else watch.not_synced_reason()
            )
        self.run.start(f"watch {name}", lambda: watch.run(change, listed or read))


def follow(
    run: Runner, client: Client, cache: AdmissionCache, seen: ClientObserver, health: Health
) -> None:
    """Keep a cache from now on.

    Ready means that everything was listed once. Later an API server that is away makes a cache old
    and not useless, and whoever must know a TrainJob for sure reads it.
    """
    watcher = _Watcher(run, client, seen, health)
    watcher.watch_kind(ListTarget(TRAINJOBS), cache.put_trainjob, cache.drop_trainjob)
    watcher.watch_kind(ListTarget(RUNTIMES), cache.put_runtime, cache.drop_runtime)
    watcher.watch_kind(ListTarget(CLUSTER_RUNTIMES), cache.put_runtime, cache.drop_runtime)
    watcher.watch_kind(
        ListTarget(NAMESPACES),
        lambda it: cache.put_namespace(it.metadata),
        lambda key: cache.drop_namespace(key.name),
    )
    _follow_cluster(watcher, cache.queues, cache.cluster)


def _follow_cluster(watcher: _Watcher, queues: QueueTree, cluster: ClusterObjects) -> None:
    """Keep what nothing waits for: without it a TrainJob is only told less."""

    def put_queue(queue: Queue) -> None:
        meta = queue.metadata
        queues.put(meta.name, queue.spec.parent_queue, meta.annotations.get(ACCESS))
        cluster.put_queue(queue)

    def drop_queue(key: Key) -> None:
        queues.drop(key.name)
        cluster.drop_queue(key)

    def all_queues() -> None:
        queues.mark_listed()
        cluster.mark_listed(QUEUES.plural)

    def listed(plural: str) -> Callable[[], None]:
        return lambda: cluster.mark_listed(plural)

    watch_kind = watcher.watch_kind
    watch_kind(ListTarget(QUEUES), put_queue, drop_queue, all_queues)
    watch_kind(ListTarget(NODES), cluster.put_node, cluster.drop_node, listed(NODES.plural))
    classes = listed(PRIORITY_CLASSES.plural)
    watch_kind(ListTarget(PRIORITY_CLASSES), cluster.put_priority, cluster.drop_priority, classes)
    watch_kind(
        ListTarget(TOPOLOGIES),
        cluster.put_topology,
        cluster.drop_topology,
        listed(TOPOLOGIES.plural),
    )
    for kind in (RUNTIME_TEXTS, CLUSTER_RUNTIME_TEXTS):
        watch_kind(ListTarget(kind), cluster.put_runtime, cluster.drop_runtime, listed(kind.plural))


async def relist_runtimes(
    client: Client, cache: AdmissionCache, every_s: float, log: FilteringBoundLogger
) -> None:
    """Read all runtimes every now and then, although they are followed.

    A watch that was open when their definition was patched goes on as if it had not been: it leaves
    the new field out, for two minutes, and never tells those runtimes again.
    """
    while True:
        await client.clock.sleep(every_s)
        for resource in (RUNTIMES, CLUSTER_RUNTIMES):
            cache.begin_runtime_list()
            try:
                async for page in client.pages(ListTarget(resource), limit=_PAGE):
                    for runtime in page.items:
                        cache.put_listed_runtime(runtime)
            except ApiError as error:
                log.warning("runtimes not read", resource=str(resource), error=str(error))
