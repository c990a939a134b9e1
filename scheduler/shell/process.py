"""The scheduler, wired up: watches, the cycle, and who writes while this process leads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from scheduler.policies.registry import choose
from scheduler.shell.carry import Carrier
from scheduler.shell.choice import choice_of, gpu_resources_of
from scheduler.shell.claims import Claims
from scheduler.shell.cycle import Cycle
from scheduler.shell.evict import Evictor
from scheduler.shell.follow import Follower
from scheduler.shell.picture import picture
from scheduler.shell.report import Reporter
from scheduler.shell.rival import Rival
from scheduler.shell.suspend import Suspender
from scheduler.shell.warden import Warden
from scheduler.state.live import Live
from scheduler.state.terms import Terms
from trainer_kai.api.meta import Key
from trainer_kai.clock import Clock
from trainer_kai.kube.client import Client
from trainer_kai.kube.patience import cancel_all
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import Basis, elector, recorder
from trainer_kai.settings import SchedulerSettings

__all__ = ["scheduler"]


async def scheduler(run: Runner, basis: Basis, settings: SchedulerSettings) -> None:
    """Start the services."""
    client, metrics, log = basis.client, basis.metrics, basis.log
    live = Live(_terms(basis.clock, settings))
    policies = choose(choice_of(settings.policies))
    cycle = Cycle(live, policies, basis.clock, metrics, log)
    follower = Follower(live, cycle)
    follower.start(run, client, basis.seen, basis.health)
    events = recorder(client, settings.scheduler_name, metrics, log)
    run.start("events", events.run, grace_s=5)
    basis.health.picture = lambda: picture(live.cluster)
    leader = settings.leader
    own = Key(leader.namespace or client.access.namespace, leader.name)
    rival = Rival(client, settings.scheduler_name, own, log)
    basis.health.needs("no other scheduler of our name", lambda: rival.told)

    async def work(fenced: Client) -> None:
        carrier = Carrier(fenced, live, Claims(live.cluster), cycle.again, metrics, log)
        reporter = Reporter(fenced, live, events, metrics, log)
        suspender = Suspender(fenced, live, events, metrics, log)
        evictor = Evictor(fenced, live, suspender, events, log)
        warden = Warden(fenced, live, evictor.evict, events, settings.repair_grace_s, log)
        live.on_group = reporter.changed
        async with asyncio.TaskGroup() as group:
            for service in (reporter, suspender, warden):
                group.create_task(service.run())
            group.create_task(cycle.run(carrier, reporter))

    async def lead(fenced: Client) -> None:
        await follower.synced()
        while True:
            await rival.until_gone()
            log.info("scheduling begins", pods=len(live.cluster.pods))
            try:
                await _unless(work(fenced), rival.until_there())
            finally:
                live.on_group = None
                live.assumed.leave(basis.clock.monotonic_s())

    candidate = elector(client, leader, metrics, log)
    run.start("lead", lambda: candidate.lead(lambda fence: lead(client.behind(fence))), grace_s=20)


async def _unless(work: Coroutine[Any, Any, None], end: Coroutine[Any, Any, None]) -> None:
    """Work until the end comes; raise what the work raises."""
    working, ending = asyncio.create_task(work), asyncio.create_task(end)
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in (working, ending):
            if task.done():
                task.result()
    finally:
        await cancel_all((working, ending))


def _terms(clock: Clock, settings: SchedulerSettings) -> Callable[[], Terms]:
    gpus = gpu_resources_of(settings.policies)

    def terms() -> Terms:
        return Terms(
            now=int(clock.now().timestamp()),
            scheduler_name=settings.scheduler_name,
            default_queue=settings.default_queue,
            gpu_resources=gpus,
        )

    return terms
