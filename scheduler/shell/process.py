"""The scheduler, wired up: watches, the cycle, and who writes while this process leads."""

import asyncio
from collections.abc import Callable

from scheduler.policies.registry import choose
from scheduler.shell.carry import Carrier
from scheduler.shell.choice import choice_of, gpu_resources_of
from scheduler.shell.claims import Claims
from scheduler.shell.cycle import Cycle
from scheduler.shell.evict import Evictor
from scheduler.shell.follow import Follower
from scheduler.shell.report import Reporter
from scheduler.shell.suspend import Suspender
from scheduler.shell.warden import Warden
from scheduler.state.live import Live
from scheduler.state.terms import Terms
from trainer_kai.clock import Clock
from trainer_kai.kube.client import Client
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
    candidate = elector(client, settings.leader, metrics, log)

    async def lead(fenced: Client) -> None:
        await follower.synced()
        log.info("scheduling begins", nodes=len(live.cluster.nodes), pods=len(live.cluster.pods))
        reporter = Reporter(fenced, live, events, metrics, log)
        suspender = Suspender(fenced, live, events, metrics, log)
        evictor = Evictor(fenced, live, suspender, events, log)
        warden = Warden(fenced, live, evictor.evict, events, settings.repair_grace_s, log)
        carrier = Carrier(fenced, live, Claims(live.cluster), cycle.again, metrics, log)
        live.on_group = reporter.changed
        try:
            async with asyncio.TaskGroup() as group:
                for service in (reporter, suspender, warden):
                    group.create_task(service.run())
                group.create_task(cycle.run(carrier, reporter))
        finally:
            live.on_group = None

    run.start("lead", lambda: candidate.lead(lambda fence: lead(client.behind(fence))), grace_s=20)


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
