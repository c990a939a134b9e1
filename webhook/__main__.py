"""The webhook as a process: `python -m webhook`. Every replica answers; nobody leads."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import ACCESS
from trainer_kai.api.queue import Queue
from trainer_kai.api.resources import NODES, PRIORITY_CLASSES, QUEUES, TOPOLOGIES
from trainer_kai.garbage import settle
from trainer_kai.health import Health
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError
from trainer_kai.kube.known import Change, What
from trainer_kai.kube.observed import Observed
from trainer_kai.kube.request import Target
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import Basis, run_process
from trainer_kai.kube.watch import Watch
from trainer_kai.metrics import Metrics
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import Tls, WebhookSettings
from webhook.app import Desk, Server, Way, reader
from webhook.bounds import CLUSTER_RUNTIME_TEXTS, RUNTIME_TEXTS, Surroundings
from webhook.cache import CLUSTER_RUNTIMES, NAMESPACES, RUNTIMES, TRAINJOBS, Cache
from webhook.given import CertManager, Files
from webhook.judge import Judge, Strictness, elsewhere
from webhook.keeper import Keeper, Source
from webhook.kept import Kept
from webhook.linted import Strength
from webhook.queuetree import QueueTree
from webhook.rotate import SelfManaged
from webhook.stored import Stored

__all__ = ["follow", "keeper_of", "webhook"]

T = TypeVar("T", bound=Object)

_PAGE: Final = 50  # runtimes: each may have 1.5 MB, and one page is read at a time

_LIVE_READS: Final = 16  # objects of 1.5 MB at a time


class _Follower(NamedTuple):
    """Follows kinds of objects."""

    run: Runner
    client: Client
    seen: Observed
    health: Health

    def keep(
        self,
        target: Target[T],
        put: Callable[[T], None],
        drop: Callable[[Key], None],
        listed: Callable[[], None] | None = None,
    ) -> None:
        """Tell of one kind from now on; who is told that it was listed is not waited for.

        What is waited for lives on from then: its garbage is gone before the first review.
        """
        watch = Watch(self.client, target, self.seen)

        def change(it: Change[T]) -> None:
            if it.what is not What.DELETED and it.object is not None:
                put(it.object)
            else:
                drop(it.key)

        def read() -> None:
            if not watch.synced:
                settle()

        name = target.resource.plural
        if listed is None:
            self.health.needs(f"{name} listed", lambda: None if watch.synced else watch.missing())
        self.run.start(f"watch {name}", lambda: watch.run(change, listed or read))


def follow(run: Runner, client: Client, cache: Cache, seen: Observed, health: Health) -> None:
    """Keep a cache from now on.

    Ready means that everything was listed once. Later an API server that is away makes a cache old
    and not useless, and whoever must know a TrainJob for sure reads it.
    """
    follower = _Follower(run, client, seen, health)
    follower.keep(Target(TRAINJOBS), cache.put_trainjob, cache.drop_trainjob)
    follower.keep(Target(RUNTIMES), cache.put_runtime, cache.drop_runtime)
    follower.keep(Target(CLUSTER_RUNTIMES), cache.put_runtime, cache.drop_runtime)
    follower.keep(
        Target(NAMESPACES),
        lambda it: cache.put_namespace(it.metadata),
        lambda key: cache.drop_namespace(key.name),
    )
    _follow_around(follower, cache.queues, cache.around)


def _follow_around(follower: _Follower, tree: QueueTree, around: Surroundings) -> None:
    """Keep what nothing waits for: without it a TrainJob is only told less."""

    def put_queue(queue: Queue) -> None:
        meta = queue.metadata
        tree.put(meta.name, queue.spec.parent_queue, meta.annotations.get(ACCESS))
        around.put_queue(queue)

    def drop_queue(key: Key) -> None:
        tree.drop(key.name)
        around.drop_queue(key)

    def all_queues() -> None:
        tree.all_listed()
        around.all_listed(QUEUES.plural)

    def listed(plural: str) -> Callable[[], None]:
        return lambda: around.all_listed(plural)

    keep = follower.keep
    keep(Target(QUEUES), put_queue, drop_queue, all_queues)
    keep(Target(NODES), around.put_node, around.drop_node, listed(NODES.plural))
    classes = listed(PRIORITY_CLASSES.plural)
    keep(Target(PRIORITY_CLASSES), around.put_priority, around.drop_priority, classes)
    keep(Target(TOPOLOGIES), around.put_topology, around.drop_topology, listed(TOPOLOGIES.plural))
    for kind in (RUNTIME_TEXTS, CLUSTER_RUNTIME_TEXTS):
        keep(Target(kind), around.put_runtime, around.drop_runtime, listed(kind.plural))


async def read_anew(
    client: Client, cache: Cache, every_s: float, log: FilteringBoundLogger
) -> None:
    """Read all runtimes every now and then, although they are followed.

    A watch that was open when their definition was patched goes on as if it had not been: it leaves
    the new field out, for two minutes, and never tells those runtimes again.
    """
    while True:
        await client.clock.sleep(every_s)
        for resource in (RUNTIMES, CLUSTER_RUNTIMES):
            cache.hear_of_runtimes()
            try:
                async for page in client.pages(Target(resource), limit=_PAGE):
                    for runtime in page.items:
                        cache.put_unheard(runtime)
            except ApiError as error:
                log.warning("runtimes not read", resource=str(resource), error=str(error))


async def webhook(run: Runner, basis: Basis, settings: WebhookSettings) -> None:
    """Wire the process up and start its services."""
    client, clock, log, health = basis.client, basis.clock, basis.log, basis.health
    cache = Cache()
    follow(run, client, cache, basis.seen, health)
    _measure(cache, basis.metrics)
    every_s = settings.server.runtimes_s
    run.start("read runtimes anew", lambda: read_anew(client, cache, every_s, log))
    keeper = keeper_of(basis, settings.tls)
    health.needs("certificate loaded", keeper.not_loaded)
    health.needs("certificate trusted", keeper.not_trusted)
    health.needs("certificate valid", keeper.not_valid)
    await keeper.begin()
    turns = asyncio.Semaphore(_LIVE_READS)
    rules = Rules(
        settings.mode, settings.scheduler_name, settings.default_queue, kueue=settings.kueue
    )
    desk = Desk(cache, rules, reader(client, turns), clock, basis.metrics, log)
    strictness = _strictness(settings, rules)
    judge = Judge(cache, strictness, elsewhere(client, turns), clock, basis.metrics, log)
    desk.add("/validate/trainjob", Way("trainjob", judge.answer, judge.is_needed))
    shown = keeper.shown.context
    await run.enter("server", Server(desk, settings.server, shown, clock, health.stopping))
    log.info("reviews are answered", address=settings.server.address, port=settings.server.port)
    run.start("keep the certificate", keeper.run)


def _measure(cache: Cache, metrics: Metrics) -> None:
    kept, left_out = metrics.admission_kept_bytes, metrics.admission_left_out
    for kind, store in cache.stores.items():
        kept.labels(kind).set_function(partial(_held_bytes, store))
        left_out.labels(kind).set_function(partial(_left_out, store))


def _held_bytes(store: Kept[Any]) -> float:
    return store.held_bytes


def _left_out(store: Kept[Any]) -> float:
    return store.left_out


def _strictness(settings: WebhookSettings, rules: Rules) -> Strictness:
    chosen = settings.admission
    lint = Strength(chosen.lint != "off", chosen.lint == "deny", chosen.cluster == "grows")
    unannotated = settings.queue_access.unannotated
    return Strictness(rules, unannotated, chosen.unknown_queue == "deny", lint)


def keeper_of(basis: Basis, settings: Tls) -> Keeper:
    """Return who keeps the certificate, from where the settings say."""
    clock, log = basis.clock, basis.log
    stored = Stored(basis.client, settings)
    source: Source
    match settings.source:
        case "self-managed":
            source = SelfManaged(stored, settings, clock, log)
        case "cert-manager":
            source = CertManager(stored)
        case "files":
            source = Files(settings.certificate_file, settings.key_file)
    return Keeper(source, stored, settings, clock, basis.metrics, log)


if __name__ == "__main__":
    sys.exit(run_process("webhook", WebhookSettings, webhook))
