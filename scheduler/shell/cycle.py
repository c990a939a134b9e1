"""One turn after the other: drain, snapshot, plan, assume, execute, report.

A turn begins as soon as something happened that may change what the last plan said: at once on a
quiet cluster, and under a burst when it pauses, or after 50 ms. What turns cost is not made more by
many of them: after one that left news behind comes a rest of three times its length, but no news
waits for more than 50 ms, or for the end of the turn that is on.
The plan is made in a thread: what it is made from is frozen, and watches, lease and health go on
meanwhile. Nothing is executed before the plan is complete, and nothing of it that relies on what
has changed in the meantime.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from structlog.typing import FilteringBoundLogger

from scheduler.core.decision import Plan
from scheduler.core.model import Kind
from scheduler.core.plan import Limits, plan
from scheduler.core.policy import Policies
from scheduler.shell.breaker import Breaker, evictions_of
from scheduler.shell.verdicts import Told, read_told
from scheduler.state.encode import Encoded
from scheduler.state.leaving import Departures
from scheduler.state.live import Live
from scheduler.state.news import ANY, MORE, Topics
from scheduler.state.orders import Orders, UnitOrders, read_orders
from scheduler.state.terms import Stray
from scheduler.state.unmade import Lack
from trainer_kai.api.meta import Key
from trainer_kai.clock import Clock
from trainer_kai.garbage import undisturbed
from trainer_kai.metrics import Metrics

__all__ = ["Beside", "Carries", "Cycle", "Reports"]

Beside: TypeAlias = Callable[..., Awaitable[Any]]

_PAUSE_S: Final = 0.004  # without news: a burst pauses
_BURST_S: Final = 0.05  # so long it may last before a turn begins
_REST: Final = 3.0  # times the turn before
_TICK_S: Final = 1e-4  # a shorter time is none
_LOOK_S: Final = 1.0  # what nobody waits for is looked at this often, if there is any
_ANYWAY: Final = 5  # looks, after which those who wait are looked at again: time passes


class Carries(Protocol):
    """Whoever does what was decided for one unit."""

    async def carry(self, orders: UnitOrders) -> None:
        """Do it; what fails is forgotten."""
        ...


class Reports(Protocol):
    """Whoever says what was decided."""

    def told(self, told: Told) -> None:
        """Take note of what a plan says; it must not wait."""
        ...


class _Given(NamedTuple):
    """What a plan is made from."""

    encoded: Encoded
    leaving: Mapping[Key, Departures]
    lacks: Mapping[Key, Lack]
    limits: Limits


class Cycle:
    """What is due, and the turns."""

    def __init__(
        self,
        live: Live,
        policies: Policies,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
        beside: Beside = asyncio.to_thread,
    ) -> None:
        """Plan *beside* the event loop, which stands still for nothing."""
        self._breaker = Breaker(clock)
        self._has_taken_over = False  # what was evicted before we led
        self._live = live
        self._beside = beside
        self._policies = policies
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._due = asyncio.Event()
        self._last_s = 0.0  # when there was news
        self._first_s = 0.0  # when it began to be due
        self._rested_s = 0.0  # when there has been enough rest after the last turn
        self._wakes_on: Topics = ANY
        self._faults: set[tuple[bool, str]] = set()  # of queues, nodes and groups, that were told
        self._is_withheld = False  # claims wait because enough was taken
        self._is_stale = False  # the last plan is wrong about numbers, and nobody waits for them
        self._taken_s = 0.0  # when the last plan was told what is so
        # news while it was made, of which it knows nothing, and since when
        self._meanwhile: dict[Topics, float] = {}

    def wake(self, topics: Topics) -> None:
        """Take note of news; of what helps nobody there is none."""
        now_s = self._clock.monotonic_s()
        if topics and topics is not ANY:
            self._meanwhile.setdefault(topics, now_s)
        if topics is not ANY and not topics & self._wakes_on:
            self._is_stale = self._is_stale or topics is MORE or "room" in topics
            return
        self._last_s = now_s
        self._set_due(now_s)

    def again(self) -> None:
        """Ask for a turn."""
        self.wake(ANY)

    def give_back(self, gpus: int) -> None:
        """Take note that some were not taken after all."""
        self._breaker.take(-gpus)

    def _set_due(self, since_s: float) -> None:
        self._first_s = min(self._first_s, since_s) if self._due.is_set() else since_s
        self._due.set()

    async def run(self, carrier: Carries, reports: Reports) -> None:
        """Take turns, as long as we lead; what is under way is waited for at the end."""
        self._has_taken_over = False
        self.again()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            while True:
                await self._until_due()
                for unit in self._live.kept_places():
                    group.create_task(carrier.carry(unit))
                orders, told = await self._turn()
                for unit in self._assumed(orders):
                    group.create_task(carrier.carry(unit))
                reports.told(told)

    async def _until_due(self) -> None:
        await self._due.wait()
        while True:
            now_s = self._clock.monotonic_s()
            quiet_s = max(self._last_s + _PAUSE_S, self._rested_s)
            pause_s = min(quiet_s, self._first_s + _BURST_S) - now_s
            if pause_s < _TICK_S:
                break
            await self._clock.sleep(pause_s)
        self._due.clear()

    async def _turn(self) -> tuple[Orders, Told]:
        began_s = self._clock.monotonic_s()
        encoded = self._live.snapshot()
        self._meanwhile, self._is_stale = {}, False
        self._taken_s = taken_s = self._clock.monotonic_s()
        live = self._live
        given = _Given(encoded, live.leaving.now(), live.refusals.lacks, self._limits(encoded))
        made, orders, told = await self._beside(self._decide, given)
        ended_s = self._clock.monotonic_s()
        self._wakes_on = _wakes_on(made)
        heard_s = [it for topics, it in self._meanwhile.items() if topics & self._wakes_on]
        self._meanwhile = {}
        if heard_s:
            self._set_due(min(heard_s))
        rest = _REST if self._due.is_set() else 0.0
        self._rested_s = ended_s + rest * (ended_s - began_s)
        self._metrics.snapshot_seconds.observe(taken_s - began_s)
        self._metrics.plan_seconds.observe(ended_s - taken_s)
        self._metrics.cycle_milliseconds.set((ended_s - began_s) * 1000)
        self._log.debug("planned", admitted=made.stats.admitted, rejected=made.stats.rejected)
        self._note_withheld(made.stats.withheld)
        self._note_faults(encoded.strays)
        return orders, told

    def _limits(self, encoded: Encoded) -> Limits:
        gpus = encoded.snapshot.total[Kind.GPU]
        if not self._has_taken_over:
            self._has_taken_over = True
            groups = self._live.cluster.pod_groups.values()
            self._breaker.take_over(evictions_of(groups), gpus)
        return Limits(evictable_gpus=self._breaker.left(gpus))

    def _decide(self, given: _Given) -> tuple[Plan, Orders, Told]:
        encoded, leaving, lacks, limits = given
        with undisturbed():
            made = plan(encoded.snapshot, self._policies, limits)
            orders = read_orders(encoded, made)
            return made, orders, read_told(encoded, made, orders, leaving, lacks)

    def _note_withheld(self, count: int) -> None:
        """Say, when it begins, that enough is taken for now."""
        if count and not self._is_withheld:
            self._log.warning("evictions held back", claims=count)
        self._is_withheld = bool(count)
        self._metrics.claims_withheld.set(count)

    def _note_faults(self, strays: Iterable[Stray]) -> None:
        """Say once what is left aside, where no verdict says it, or counts otherwise."""
        faults = {(it.counts, it.message) for it in strays if it.counts or not it.group.namespace}
        for counts, message in sorted(faults - self._faults):
            if counts:
                self._log.warning("counts otherwise", what=message)
            else:
                self._log.warning("left aside", what=message)
        self._faults = faults

    def _assumed(self, orders: Orders) -> list[UnitOrders]:
        """Assume what still holds, and return it."""
        kept = []
        for unit in orders.units:
            if self._live.leaving.is_open(unit):
                continue  # that is known in a moment, and planned for then
            if self._live.moved(unit):
                self._set_due(self._taken_s)
                continue
            kept.append(unit)
        kept = [self._live.assume(unit) for unit in kept]
        self._breaker.take(sum(it.gpus for unit in kept for it in unit.departures))
        self._is_stale = self._is_stale or bool(kept)  # what queues have has yet to be said
        return kept

    async def _tick(self) -> None:
        for look in count(1):
            await self._clock.sleep(_LOOK_S)
            late = self._live.expire(self._clock.monotonic_s())
            if late:
                self._log.warning("not seen in time", objects=[str(key) for key in late[:8]])
            if late or self._is_stale or (self._wakes_on and look % _ANYWAY == 0):
                self.again()


def _wakes_on(made: Plan) -> Topics:
    """Return whatever somebody waits for, without rows: those mean nothing after this plan."""
    words = {word.partition(":")[0] for it in made.rejections for word in it.wakes_on}
    if "unit" in words:
        words.add("pods")
    if any(it.nominations for it in made.decisions):
        words.add("room")  # which is promised, and is still to be left
    return frozenset(words)
