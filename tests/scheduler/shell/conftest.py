"""A scheduler on an API server in memory, and a clock that runs when told to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from scheduler.policies.registry import Choice, choose
from scheduler.shell.carry import Carrier
from scheduler.shell.cycle import Carries, Cycle
from scheduler.shell.evict import Evictor
from scheduler.shell.permission import Carrying, Permissions
from scheduler.shell.report import Reporter
from scheduler.shell.suspend import Suspender
from scheduler.shell.termination import TerminationBound
from scheduler.state.live import Live
from scheduler.state.terms import Terms
from tests.support.clusters import NOW, queue
from tests.support.fakecluster import FakeCluster
from trainer_kai.kube.events import EventApi, EventSettings, Recorder
from trainer_kai.log import logger
from trainer_kai.metrics import Metrics
from trainer_kai.settings import Unannotated

MOST_GRACE_S = 600.0  # that an evicted pod may take to end


class House:
    """All of it."""

    def __init__(
        self, api: FakeCluster | None = None, unannotated: Unannotated | None = None
    ) -> None:
        """With *unannotated* it asks who may use which queue."""
        self.api = api or FakeCluster()
        self.metrics = Metrics()
        self.asks = unannotated is not None
        self.live = Live(
            lambda: Terms(
                now=NOW,
                default_queue="q",
                moves_unasked=False,
                needs_permission=self.asks,
                unannotated=unannotated or "open",
            )
        )
        self.while_planning: Callable[[], None] = lambda: None
        self.began_s: list[float] = []
        """When plans were begun."""
        self.planning_s = 0.0
        log = logger("test")
        policies = choose(Choice())
        self.cycle = Cycle(self.live, policies, self.api.clock, self.metrics, log, self._beside)
        self._reign()
        if api is None:
            self.api.put(queue())

    def _reign(self) -> None:
        client, live, metrics, log = self.api.client, self.live, self.metrics, logger("test")
        whose = EventSettings("test", "test")
        self.recorder = Recorder(EventApi(client), whose, self.api.clock, log)
        self.reporter = Reporter(client, live, self.recorder, metrics, log)
        self.suspender = Suspender(client, live, self.recorder, self.cycle, metrics, log)
        evictor = Evictor(client, live, self.suspender, self.recorder, metrics, log)
        self.carrier = Carrier(client, live, evictor.depart, self.cycle, metrics, log)
        self.bound = TerminationBound(client, live, MOST_GRACE_S, log)

    def _asking(self) -> tuple[Carries, list[Coroutine[Any, Any, None]]]:
        if not self.asks:
            return self.carrier, []
        wake, log = self.cycle.wake, logger("test")
        asking = Permissions(self.api.client, self.live, wake, self.recorder, log)
        self.live.on_uses = asking.needed
        return Carrying(self.carrier, asking.starts), [asking.run()]

    def again_in_this_process(self) -> "House":
        """Lead once more, with what is known, as after the Lease was lost for a moment."""
        self._reign()
        return self

    @property
    def plans(self) -> int:
        """Return how many plans were begun."""
        return len(self.began_s)

    def again(self) -> "House":
        """Return another one before the same API server."""
        return House(self.api)

    async def _beside(self, decide: Callable[..., Any], *given: Any) -> Any:
        self.began_s.append(self.api.clock.monotonic_s())
        if self.planning_s:
            await self.api.clock.sleep(self.planning_s)
        made = decide(*given)
        self.while_planning()
        await asyncio.sleep(0)
        return made

    def events(self) -> list[tuple[str, str]]:
        """Return of whom Events were made, and why."""
        return [
            (f"{it['involvedObject']['kind']} {it['involvedObject']['name']}", it["reason"])
            for it in self.api.events
        ]

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Schedule, inside."""
        self.api.heard_by(self.live, self.cycle)
        self.live.on_group = self.reporter.changed
        self.live.on_record = self.suspender.noticed
        self.live.lead()
        carrier, asking = self._asking()
        works = (
            *asking,
            self.recorder.run(),
            self.reporter.run(),
            self.suspender.run(),
            self.bound.run(),
            self.cycle.run(carrier, self.reporter),
        )
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await self.passes(0.1)
            yield
            assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
            self.live.check()
        finally:
            self.live.follow(self.api.clock.monotonic_s())
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        await self.api.clock.advance(seconds)


@pytest.fixture
def house() -> House:
    """Return a scheduler that has not begun."""
    return House()
