"""The scheduler, wired up: watches, the cycle, and who writes while this process leads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from scheduler.policies.registry import choose
from scheduler.shell.carry import Carrier
from scheduler.shell.choice import choice_of, gpu_resources_of
from scheduler.shell.cycle import Carries, Cycle
from scheduler.shell.evict import Evictor
from scheduler.shell.follow import Follower
from scheduler.shell.pause import Pause
from scheduler.shell.permission import Carrying, Permissions
from scheduler.shell.picture import picture
from scheduler.shell.report import Reporter
from scheduler.shell.rival import Rival
from scheduler.shell.suspend import Suspender
from scheduler.shell.termination import TerminationBound
from scheduler.shell.warden import Warden
from scheduler.state.live import Live
from scheduler.state.terms import Terms
from trainer_kai.api.meta import Key
from trainer_kai.clock import Clock
from trainer_kai.garbage import settle
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import Recorder
from trainer_kai.kube.patience import cancel_all
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import Basis, elector, recorder
from trainer_kai.policy.rivals import places_of
from trainer_kai.settings import SchedulerSettings, listed

__all__ = ["scheduler"]

_WARM_S: Final = 5.0


async def scheduler(run: Runner, basis: Basis, settings: SchedulerSettings) -> None:
    """Start the services."""
    client, metrics, log = basis.client, basis.metrics, basis.log
    live = Live(_terms(basis.clock, settings))
    cycle = Cycle(live, choose(choice_of(settings.policies)), basis.clock, metrics, log)
    follower = Follower(live, cycle)
    follower.start(run, client, basis.seen, basis.health)
    events = recorder(client, settings.scheduler_name, metrics, log)
    run.start("events", events.run, grace_s=5)
    basis.health.picture = lambda: picture(live.cluster)
    leader = settings.leader
    own = Key(leader.namespace or client.access.namespace, leader.name)
    kai = settings.kai
    places = places_of(settings.scheduler_name, listed(kai.namespaces), listed(kai.shards), own)
    rival = Rival(client, places, log)
    basis.health.needs("no other scheduler of our name", lambda: rival.told)
    candidate = elector(client, leader, metrics, log)
    reign = _Reign(basis, settings, live, cycle, rival, events)

    async def stand() -> None:
        await follower.synced()
        live.snapshot()  # the first one takes long, and nobody waits for it yet
        settle()
        await candidate.lead(lambda fence: reign.lead(client.behind(fence)))

    run.start("keep warm", lambda: _keep_warm(live, basis.clock))
    if settings.debug_check_s:
        run.start("check the state", lambda: _check(live, basis.clock, settings.debug_check_s))
    run.start("lead", stand, grace_s=20)


class _Reign(NamedTuple):
    """What is done while this process leads, by whom and with what."""

    basis: Basis
    settings: SchedulerSettings
    live: Live
    cycle: Cycle
    rival: Rival
    events: Recorder

    async def lead(self, fenced: Client) -> None:
        """Schedule, and pause while another scheduler of our name is there."""
        while True:
            if await self.rival.is_there():
                pause = Pause(fenced, self.live, self.events, self.rival.told, self.basis.log)
                await _unless(pause.run(), self.rival.until_gone())
            self.basis.log.info("scheduling begins", pods=len(self.live.cluster.pods))
            try:
                await _unless(self._work(fenced), self.rival.until_there())
            finally:
                self.live.follow(self.basis.clock.monotonic_s())

    async def _work(self, fenced: Client) -> None:
        live, events, metrics, log = self.live, self.events, self.basis.metrics, self.basis.log
        reporter = Reporter(fenced, live, events, metrics, log)
        suspender = Suspender(fenced, live, events, self.cycle, metrics, log)
        evictor = Evictor(fenced, live, suspender, events, metrics, log)
        carrier = Carrier(fenced, live, evictor.depart, self.cycle, metrics, log)
        warden = Warden(fenced, live, evictor.evict, events, self.settings.repair_grace_s, log)
        bound = TerminationBound(fenced, live, self.settings.max_termination_grace_s, log)
        live.on_group, live.on_record = reporter.changed, suspender.noticed
        live.lead()
        async with asyncio.TaskGroup() as group:
            for service in (reporter, suspender, warden, bound):
                group.create_task(service.run())
            group.create_task(self.cycle.run(self._asking(group, carrier), reporter))

    def _asking(self, group: asyncio.TaskGroup, carrier: Carries) -> Carries:
        """Ask which namespaces may use which queues."""
        client, log = self.basis.client, self.basis.log
        asking = Permissions(client, self.live, self.cycle.wake, self.events, log)
        self.live.on_uses = asking.needed
        group.create_task(asking.run())
        return Carrying(carrier, asking.starts)


async def _keep_warm(live: Live, clock: Clock) -> None:
    """Take in what has changed, so that whoever begins to lead has little to take in."""
    while True:
        await clock.sleep(_WARM_S)
        if not live.leads:
            live.snapshot()


async def _check(live: Live, clock: Clock, every_s: float) -> None:
    while True:
        await clock.sleep(every_s)
        live.check()


async def _unless(work: Coroutine[Any, Any, None], end: Coroutine[Any, Any, None]) -> None:
    """Work until the end comes; raise what the work raises."""
    both = asyncio.create_task(work), asyncio.create_task(end)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(both)
        for task in both:
            if not task.cancelled():
                task.result()  # also what it raised because it was to end


def _terms(clock: Clock, settings: SchedulerSettings) -> Callable[[], Terms]:
    gpus = gpu_resources_of(settings.policies)

    def terms() -> Terms:
        return Terms(
            now=int(clock.now().timestamp()),
            scheduler_name=settings.scheduler_name,
            default_queue=settings.default_queue,
            gpu_resources=gpus,
            max_termination_grace_s=int(settings.max_termination_grace_s),
            priority_classes=frozenset(listed(settings.priority_classes)),
            moves_unasked=False,
            kueue=settings.kueue,
            needs_permission=True,
            unannotated=settings.queue_access.unannotated,
        )

    return terms
