"""The webhook as a process: `python -m webhook`. Every replica answers; nobody leads."""

import sys
from collections.abc import Callable
from typing import TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key, Object
from trainer_kai.health import Health
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError
from trainer_kai.kube.known import Change, What
from trainer_kai.kube.observed import Observed
from trainer_kai.kube.request import Target
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import Basis, run_process
from trainer_kai.kube.watch import Watch
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import Tls, WebhookSettings
from webhook.app import Desk, Server, reader
from webhook.cache import CLUSTER_RUNTIMES, NAMESPACES, QUEUES, RUNTIMES, TRAINJOBS, Cache
from webhook.given import CertManager, Files
from webhook.judge import Judge, Strictness, elsewhere
from webhook.keeper import Keeper, Source
from webhook.rotate import SelfManaged
from webhook.stored import Stored

__all__ = ["follow", "keeper_of", "webhook"]

T = TypeVar("T", bound=Object)


def follow(run: Runner, client: Client, cache: Cache, seen: Observed, health: Health) -> None:
    """Keep a cache from now on.

    Ready means that everything was listed once. Later an API server that is away makes a cache old
    and not useless, and whoever must know a TrainJob for sure reads it.
    """

    def keep(
        target: Target[T],
        put: Callable[[T], None],
        drop: Callable[[Key], None],
        listed: Callable[[], None] | None = None,
    ) -> None:
        watch = Watch(client, target, seen)

        def change(it: Change[T]) -> None:
            if it.what is not What.DELETED and it.object is not None:
                put(it.object)
            else:
                drop(it.key)

        name = target.resource.plural
        if listed is None:
            health.needs(f"{name} listed", lambda: None if watch.synced else watch.missing())
        run.start(f"watch {name}", lambda: watch.run(change, listed or (lambda: None)))

    keep(Target(TRAINJOBS), cache.put_trainjob, cache.drop_trainjob)
    keep(Target(RUNTIMES), cache.put_runtime, cache.drop_runtime)
    keep(Target(CLUSTER_RUNTIMES), cache.put_runtime, cache.drop_runtime)
    keep(
        Target(NAMESPACES),
        lambda it: cache.put_namespace(it.metadata),
        lambda key: cache.drop_namespace(key.name),
    )
    # Nothing waits for these: without them a TrainJob is only told less.
    tree = cache.queues
    keep(
        Target(QUEUES),
        lambda it: tree.put(it.metadata.name, it.spec.parent_queue),
        lambda key: tree.drop(key.name),
        tree.all_listed,
    )


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
            try:
                for runtime in await client.list(Target(resource)):
                    cache.put_runtime(runtime)
            except ApiError as error:
                log.warning("runtimes not read", resource=str(resource), error=str(error))


async def webhook(run: Runner, basis: Basis, settings: WebhookSettings) -> None:
    """Wire the process up and start its services."""
    client, clock, log, health = basis.client, basis.clock, basis.log, basis.health
    cache = Cache()
    follow(run, client, cache, basis.seen, health)
    every_s = settings.server.runtimes_s
    run.start("read runtimes anew", lambda: read_anew(client, cache, every_s, log))
    keeper = keeper_of(basis, settings.tls)
    health.needs("certificate loaded", keeper.not_loaded)
    health.needs("certificate trusted", keeper.not_trusted)
    health.needs("certificate valid", keeper.not_valid)
    await keeper.begin()
    rules = Rules(settings.mode, settings.scheduler_name, settings.default_queue)
    desk = Desk(cache, rules, reader(client), clock, basis.metrics, log)
    denies = settings.admission.unknown_queue == "deny"
    strictness = Strictness(rules, settings.queue_permission, denies)
    judge = Judge(cache, strictness, elsewhere(client), clock, basis.metrics, log)
    desk.add("/validate/trainjob", "trainjob", judge.answer)
    shown = keeper.shown.context
    await run.enter("server", Server(desk, settings.server, shown, clock, health.stopping))
    log.info("reviews are answered", address=settings.server.address, port=settings.server.port)
    run.start("keep the certificate", keeper.run)


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
