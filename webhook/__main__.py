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
from trainer_kai.garbage import freeze_known_objects
from trainer_kai.health import Health
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError
from trainer_kai.kube.known import Delta, DeltaType
from trainer_kai.kube.observed import ClientObserver
from trainer_kai.kube.request import ListTarget
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import ProcessContext, run_process
from trainer_kai.kube.watch import Watch
from trainer_kai.metrics import Metrics
from trainer_kai.policy.groups import GroupingRules
from trainer_kai.settings import TlsSettings, WebhookSettings
from webhook.app import ReviewRouter, Route, WebhookServer, trainjob_reader
from webhook.bounds import CLUSTER_RUNTIME_TEXTS, RUNTIME_TEXTS, ClusterObjects
from webhook.cache import CLUSTER_RUNTIMES, NAMESPACES, RUNTIMES, TRAINJOBS, AdmissionCache
from webhook.given import CertManagerCertificate, FileCertificate
from webhook.judge import AdmissionPolicy, TrainJobHandler, live_lookups
from webhook.keeper import CertificateSource, ServingCertificate
from webhook.kept import BoundedStore
from webhook.linted import LintPolicy
from webhook.queuetree import QueueTree
from webhook.rotate import SelfManagedCertificate
from webhook.stored import CertificateStore

__all__ = ["follow", "serving_certificate", "webhook"]

T = TypeVar("T", bound=Object)

_PAGE: Final = 50  # runtimes: each may have 1.5 MB, and one page is read at a time

_LIVE_READS: Final = 16  # objects of 1.5 MB at a time


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


async def webhook(run: Runner, basis: ProcessContext, settings: WebhookSettings) -> None:
    """Wire the process up and start its services."""
    client, clock, log, health = basis.client, basis.clock, basis.log, basis.health
    cache = AdmissionCache()
    follow(run, client, cache, basis.observer, health)
    _register_metrics(cache, basis.metrics)
    every_s = settings.server.runtimes_s
    run.start("read runtimes anew", lambda: relist_runtimes(client, cache, every_s, log))
    certificate = serving_certificate(basis, settings.tls)
    health.add_condition("certificate loaded", certificate.not_loaded)
    health.add_condition("certificate trusted", certificate.not_trusted)
    health.add_condition("certificate valid", certificate.not_valid)
    await certificate.wait_until_loaded()
    read_limit = asyncio.Semaphore(_LIVE_READS)
    rules = GroupingRules(
        settings.mode, settings.scheduler_name, settings.default_queue, kueue=settings.kueue
    )
    router = ReviewRouter(
        cache, rules, trainjob_reader(client, read_limit), clock, basis.metrics, log
    )
    admission_policy = _admission_policy(settings, rules)
    trainjob_handler = TrainJobHandler(
        cache, admission_policy, live_lookups(client, read_limit), clock, basis.metrics, log
    )
    router.add_route(
        "/validate/trainjob",
        Route("trainjob", trainjob_handler.answer, trainjob_handler.fails_closed),
    )
    tls_context = certificate.tls.context
    await run.enter(
        "server", WebhookServer(router, settings.server, tls_context, clock, health.stopping)
    )
    log.info("reviews are answered", address=settings.server.address, port=settings.server.port)
    run.start("keep the certificate", certificate.run)


def _register_metrics(cache: AdmissionCache, metrics: Metrics) -> None:
    kept, left_out = metrics.admission_kept_bytes, metrics.admission_left_out
    for kind, store in cache.stores.items():
        kept.labels(kind).set_function(partial(_held_bytes, store))
        left_out.labels(kind).set_function(partial(_left_out, store))


def _held_bytes(store: BoundedStore[Any]) -> float:
    return store.held_bytes


def _left_out(store: BoundedStore[Any]) -> float:
    return store.left_out


def _admission_policy(settings: WebhookSettings, rules: GroupingRules) -> AdmissionPolicy:
    admission = settings.admission
    lint = LintPolicy(
        admission.lint != "off", admission.lint == "deny", admission.cluster == "grows"
    )
    unannotated = settings.queue_access.unannotated
    return AdmissionPolicy(rules, unannotated, admission.unknown_queue == "deny", lint)


def serving_certificate(basis: ProcessContext, settings: TlsSettings) -> ServingCertificate:
    """Return who keeps the certificate, from where the settings say."""
    clock, log = basis.clock, basis.log
    certificate_store = CertificateStore(basis.client, settings)
    source: CertificateSource
    match settings.source:
        case "self-managed":
            source = SelfManagedCertificate(certificate_store, settings, clock, log)
        case "cert-manager":
            source = CertManagerCertificate(certificate_store)
        case "files":
            source = FileCertificate(settings.certificate_file, settings.key_file)
    return ServingCertificate(source, certificate_store, settings, clock, basis.metrics, log)


if __name__ == "__main__":
    sys.exit(run_process("webhook", WebhookSettings, webhook))
