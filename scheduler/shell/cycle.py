"""The scheduling cycle, again and again: wait, snapshot, plan, assume, execute, report.

A cycle begins as soon as an event may change the result of the last plan: at once on a quiet
cluster; in a burst of events when the burst pauses, or after 50 ms. After a cycle during which
events arrived comes a rest of three times its length, but no event waits for more than 50 ms, or
for the end of the cycle that runs.

The plan is made in a thread: its snapshot is frozen, and watches, Lease and health checks continue
meanwhile. Nothing is executed before the plan is complete, and no part of a plan is executed that
relies on an object that has changed in the meantime.

The events of a namespace that started many plans for nothing wait a little longer. A user who
relabels waiting pods without end would have the scheduler plan without end, and the gangs of others
would wait for these plans. So a plan that only events of some namespaces started, and that changed
nothing, is charged to these (`PlanBudget`). A namespace that has used up its budget starts a plan a
few times a second, and of long plans one after a pause of three times their length; its events are
in every plan that anything else starts. A bind gives the namespace of the pod one plan back: the
pods of a gang come one by one, and the plans before the last of them change nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from scheduler.core.actions.leave_nodes import next_departure_at
from scheduler.core.actions.stale_gang import next_stale_at
from scheduler.core.model.rejections import NO_EVENT, CheckedRemedy, ClusterEvent
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.result import Plan, Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import PlanLimits, plan
from scheduler.shell.evict.rate_limit import EvictionRateLimiter, recorded_evictions
from scheduler.shell.report.asks import NO_ASKS, AskInput, AskPolicy, restored_asks
from scheduler.shell.report.plan_report import PlanReport, plan_report
from scheduler.shell.report.unusable_gpu_gauges import UnusableGpuGauges
from scheduler.shell.report.wait_gauges import WaitGauges
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.creation_failures import CreationFailure
from scheduler.state.cache.evictions import PlannedEvictions
from scheduler.state.commands import Commands, PodGroupCommands, commands_from_plan
from scheduler.state.inputs import ObjectWarning
from scheduler.state.podgroups.provisioning import RequestState, provisioning_classes
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.meta import Key
from trainer_kai.kube.process.tasks import within
from trainer_kai.service.clock import Clock
from trainer_kai.service.garbage_collection import without_collection
from trainer_kai.service.metrics import Metrics

_PAUSE_S: Final = 0.004  # without an event: the burst pauses
_BURST_S: Final = 0.05  # how long a burst may last before a cycle begins
_REST_FACTOR: Final = 3.0  # times the length of the cycle before
_TICK_S: Final = 1.0  # between two checks for overdue assumptions and stale numbers
_FULL_REPLAN_TICKS: Final = 5  # ticks after which waiting PodGroups are planned again anyway
_RETRIES_ALL: Final = ClusterEvent.ANY | ClusterEvent.TIME_PASSED
_CHANGES_NUMBERS: Final = (  # that are reported, though no PodGroup may wait for the event
    ClusterEvent.RESOURCES_FREED
    | ClusterEvent.FOREIGN_POD_ASSIGNED
    | ClusterEvent.PODGROUP_INCOMPLETE
)
_BUDGET_INTERVAL_S: Final = 0.3  # between two plans for nothing, in the long run
_BUDGET_PAUSE_FACTOR: Final = 3  # the same for long plans, as a multiple of their length
_BUDGET_BURST: Final = 8  # of such plans that may follow each other at once
_MAX_NAMESPACES: Final = 4096  # with more, those within their budget are forgotten
_NEGLIGIBLE_S: Final = 1e-4  # a shorter time is none

Offload: TypeAlias = Callable[..., Awaitable[Any]]


class CommandExecutor(Protocol):
    async def execute(self, commands: PodGroupCommands) -> bool:
        """Execute the commands; what fails is forgotten. Return whether nothing failed."""
        ...


class ReportReceiver(Protocol):
    def publish(self, report: PlanReport) -> None:
        """Take the report of a plan; this must not wait."""
        ...


class Provisioning(Protocol):
    """ProvisioningRequests, where queues ask by them."""

    states: dict[Key, RequestState]  # by PodGroup

    def publish(self, report: PlanReport) -> None: ...


class _PlanInput(NamedTuple):
    encoded: EncodedSnapshot
    in_flight_evictions: Mapping[Key, PlannedEvictions]
    creation_failures: Mapping[Key, CreationFailure]
    limits: PlanLimits
    asks: AskInput | None


class Cycle:
    def __init__(
        self,
        cache: ClusterCache,
        policies: Policies,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        """*offload* runs a plan in a thread, so that it does not block the event loop."""
        self.ask_policy: AskPolicy | None = None  # where an autoscaler adds nodes
        self.provisioning: Provisioning | None = None
        self._asks = NO_ASKS
        self._rate_limiter = EvictionRateLimiter(clock)
        self._has_restored_evictions = False  # evictions from before this process led
        self._cache = cache
        self._offload = offload
        self._policies = policies
        self._clock = clock
        self._metrics = metrics
        self._unusable_gpus = UnusableGpuGauges(metrics)
        self._waits = WaitGauges(cache, clock, metrics)
        self._log = log
        self._due = asyncio.Event()
        self._last_event_s = 0.0  # when the last event arrived
        self._due_since_s = 0.0  # since when a cycle is due
        self._rest_until_s = 0.0  # until when the rest after the last cycle lasts
        self._retry_on = ClusterEvent.ANY
        self._logged_warnings: set[tuple[bool, str]] = set()
        self._remedies: dict[Key, CheckedRemedy] = {}  # by PodGroup, the longest known first
        self._are_evictions_withheld = False  # preemptors wait for the rate limit
        self._has_stale_numbers = False  # reported numbers are old; no pod waits for them
        # When the grace of a stale gang ends, or one may be moved off its node: epoch seconds.
        self._next_eviction_at: int | None = None
        self._line_at: int | None = None  # when time alone changes the line: epoch seconds
        self._kept_gpus, self._kept_since_s = 0.0, 0.0  # what the last plan keeps
        self._snapshot_s = 0.0  # when the snapshot of the last plan was taken
        # Events that arrived while the plan was made, and that help no PodGroup of the last one;
        # with their namespace, and when the first of each arrived.
        self._events_while_planning: dict[tuple[ClusterEvent, str], float] = {}
        self._budget = PlanBudget(clock)
        self._starters: set[str] = set()  # namespaces that the next cycle is due to; "" is others
        self._planned_for: set[str] = set()  # likewise the one that runs
        self._cycle_s = 0.0  # how long it took

    def wake(self, event: ClusterEvent, namespace: str = "") -> None:
        """Take note of an event; one that can help no waiting PodGroup begins no cycle."""
        if not event:
            return
        now_s = self._clock.monotonic_s()
        if not event & (_RETRIES_ALL | self._retry_on):
            self._events_while_planning.setdefault((event, namespace), now_s)
            self._has_stale_numbers |= bool(event & _CHANGES_NUMBERS)
        elif self._start(namespace, now_s):
            self._last_event_s = now_s

    def _start(self, namespace: str, since_s: float) -> bool:
        """Ask for a cycle for an event of a namespace; say whether its budget allows one now."""
        if not self._budget.may_start(namespace, namespace in self._planned_for):
            return False
        self._starters.add(namespace)
        self._set_due(since_s)
        return True

    def replan(self, namespace: str = "") -> None:
        """Ask for a cycle; a *namespace* has a budget of them."""
        self.wake(ClusterEvent.ANY, namespace)

    def refund(self, gpus: int) -> None:
        self._rate_limiter.record(-gpus)

    def _set_due(self, since_s: float) -> None:
        self._due_since_s = min(self._due_since_s, since_s) if self._due.is_set() else since_s
        self._due.set()

    async def run(self, binder: CommandExecutor, reporter: ReportReceiver) -> None:
        """Run cycles as long as this process leads; at the end wait for commands in flight."""
        self._has_restored_evictions = False
        groups = self._cache.cluster.pod_groups.values()
        self._asks = restored_asks(groups, int(self._clock.now().timestamp()))
        self._kept_gpus = 0.0  # nothing was kept while another process led
        self.replan()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            group.create_task(self._start_deferred())
            while True:
                await self._wait_until_due()
                for podgroup_commands in self._cache.lost_pods.annotations_to_write():
                    group.create_task(binder.execute(podgroup_commands))
                commands, report = await self._plan_once()
                for podgroup_commands in self._assume(commands):
                    group.create_task(binder.execute(podgroup_commands))
                reporter.publish(report)
                if self.provisioning is not None:
                    self.provisioning.publish(report)

    async def _wait_until_due(self) -> None:
        await self._due.wait()
        while True:
            now_s = self._clock.monotonic_s()
            quiet_s = max(self._last_event_s + _PAUSE_S, self._rest_until_s)
            pause_s = min(quiet_s, self._due_since_s + _BURST_S) - now_s
            if pause_s < _NEGLIGIBLE_S:
                break
            await self._clock.sleep(pause_s)
        self._due.clear()

    async def _plan_once(self) -> tuple[Commands, PlanReport]:
        began_s = self._clock.monotonic_s()
        self._planned_for, self._starters = self._starters, set()
        self._budget.forget_deferred()
        encoded = self._cache.snapshot()
        self._events_while_planning, self._has_stale_numbers = {}, False
        self._snapshot_s = taken_s = self._clock.monotonic_s()
        self._next_eviction_at = _next_eviction_at(encoded.snapshot)
        cache = self._cache
        plan_input = _PlanInput(
            encoded,
            cache.in_flight_evictions.current(),
            cache.creation_failures.by_podgroup,
            self._limits(encoded),
            self._ask_input(),
        )
        result, commands, report = await self._offload(self._decide, plan_input)
        self._asks = report.asks
        self._unusable_gpus.planned(encoded.snapshot, result)
        self._waits.planned(encoded, report)
        ended_s = self._clock.monotonic_s()
        self._retry_on = _events_to_retry_on(result)
        self._note_line(result)
        keys = encoded.podgroup_keys
        self._remedies = {keys[row]: it for row, it in result.remedies.items()}
        for (event, namespace), arrived_s in self._events_while_planning.items():
            if event & self._retry_on:
                self._start(namespace, arrived_s)
        self._events_while_planning = {}
        for namespace in encoded.unevaluated_namespaces:  # at their own expense
            self._start(namespace, ended_s)
        self._cycle_s = ended_s - began_s
        backoff = _REST_FACTOR if self._due.is_set() else 0.0
        self._rest_until_s = ended_s + backoff * self._cycle_s
        self._metrics.snapshot_seconds.observe(taken_s - began_s)
        self._metrics.plan_seconds.observe(ended_s - taken_s)
        self._metrics.cycle_milliseconds.set(self._cycle_s * 1000)
        self._log.debug("planned", admitted=result.stats.admitted, rejected=result.stats.rejected)
        self._log_withheld(result.stats.withheld)
        self._log_warnings(encoded.warnings)
        return commands, report

    def _note_line(self, result: Plan) -> None:
        now_s = self._clock.monotonic_s()
        self._metrics.kept_gpu_seconds.inc(self._kept_gpus * (now_s - self._kept_since_s))
        self._kept_since_s, note = now_s, result.line_note
        self._kept_gpus = note.gpus / 1000 if note is not None else 0.0
        self._metrics.kept_gpus.set(self._kept_gpus)
        self._line_at = result.line_at

    def _limits(self, encoded: EncodedSnapshot) -> PlanLimits:
        gpus = encoded.snapshot.total[ResourceKind.GPU]
        if not self._has_restored_evictions:
            self._has_restored_evictions = True
            groups = self._cache.cluster.pod_groups.values()
            self._rate_limiter.restore(recorded_evictions(groups), gpus)
        rows = {}
        if self._remedies:
            rows = {key: row for row, key in enumerate(encoded.podgroup_keys)}
        return PlanLimits(
            evictable_gpus=self._rate_limiter.available(gpus),
            remedies={rows[key]: it for key, it in self._remedies.items() if key in rows},
        )

    def _ask_input(self) -> AskInput | None:
        if self.ask_policy is None:
            return None
        cluster = self._cache.cluster
        given = AskInput.of(self.ask_policy, self._asks, cluster.nodes.values())
        if self.provisioning is None:
            return given
        news = given.news._replace(requests={**self.provisioning.states})
        return given._replace(news=news, classes=provisioning_classes(cluster.queues))

    def _decide(self, plan_input: _PlanInput) -> tuple[Plan, Commands, PlanReport]:
        encoded, in_flight_evictions, creation_failures, limits, asks = plan_input
        with without_collection():
            result = plan(encoded.snapshot, self._policies, limits)
            commands = commands_from_plan(encoded, result, lambda: str(uuid4()))
            report = plan_report(
                encoded, result, commands, in_flight_evictions, creation_failures, asks
            )
            return result, commands, report

    def _log_withheld(self, count: int) -> None:
        if count and not self._are_evictions_withheld:
            self._log.warning("evictions withheld by the rate limit", preemptors=count)
        self._are_evictions_withheld = bool(count)
        self._metrics.claims_withheld.set(count)

    def _log_warnings(self, warnings: Iterable[ObjectWarning]) -> None:
        """Log once each ignored object that has no condition, and each invalid value."""
        found = {
            (it.still_counts, it.message)
            for it in warnings
            if it.still_counts or not it.object_key.namespace
        }
        for counts, message in sorted(found - self._logged_warnings):
            if counts:
                self._log.warning("invalid value replaced", reason=message)
            else:
                self._log.warning("object ignored", reason=message)
        self._logged_warnings = found

    def _assume(self, commands: Commands) -> list[PodGroupCommands]:
        """Assume the commands for objects that have not changed meanwhile, and return them."""
        kept = []
        for podgroup_commands in commands.podgroups:
            if self._cache.in_flight_evictions.is_undecided(podgroup_commands):
                continue  # the next plan sees the outcome
            if self._cache.is_outdated(podgroup_commands):
                self._start(podgroup_commands.group.namespace, self._snapshot_s)
                continue
            kept.append(podgroup_commands)
        self._charge(kept)
        kept = [self._cache.assume(podgroup_commands) for podgroup_commands in kept]
        self._rate_limiter.record(
            sum(it.gpus for podgroup_commands in kept for it in podgroup_commands.evictions)
        )
        self._has_stale_numbers |= bool(kept)  # usage of queues has yet to be reported
        return kept

    def _charge(self, kept: Iterable[PodGroupCommands]) -> None:
        """Charge a plan for nothing to the namespaces whose events started it."""
        if "" not in self._planned_for and not any(map(self._cache.does_something, kept)):
            self._budget.charge(self._planned_for, self._cycle_s)
        self._planned_for = set()
        binds: Counter[str] = Counter()
        for podgroup_commands in kept:
            binds[podgroup_commands.group.namespace] += len(podgroup_commands.binds)
        self._budget.refund(binds)

    async def _start_deferred(self) -> None:
        """Begin a cycle for events of namespaces over their budget, when these may start one."""
        while True:
            due = await self._budget.deferred_namespaces()
            self._starters |= due  # not in one line: that reads the set before it waits
            self._set_due(self._clock.monotonic_s())

    async def _tick(self) -> None:
        for tick in count(1):
            await self._clock.sleep(_TICK_S)
            overdue = self._cache.expire(self._clock.monotonic_s())
            if overdue:
                self._log.warning(
                    "write not seen in time", objects=[str(key) for key in overdue[:8]]
                )
            is_due = self._is_over(self._next_eviction_at) or self._is_over(self._line_at)
            if overdue or self._has_stale_numbers or is_due:
                self.replan()
            elif self._retry_on and tick % _FULL_REPLAN_TICKS == 0:
                self.wake(ClusterEvent.TIME_PASSED)

    def _is_over(self, at: int | None) -> bool:
        return at is not None and at <= self._clock.now().timestamp()


def _next_eviction_at(snapshot: Snapshot) -> int | None:
    times = next_stale_at(snapshot), next_departure_at(snapshot)
    return min((it for it in times if it is not None), default=None)


def _events_to_retry_on(result: Plan) -> ClusterEvent:
    """Return the events that a waiting PodGroup awaits; none if no PodGroup waits."""
    retry_on = NO_EVENT
    for awaited in {it.retry_on for it in result.rejections}:
        retry_on |= awaited
    if any(it.nominations for it in result.allocations):
        # Nominated pods wait until victims terminate.
        retry_on |= ClusterEvent.RESOURCES_FREED | ClusterEvent.FOREIGN_POD_ASSIGNED
    return retry_on


class PlanBudget:
    """The budget of each namespace; the namespace "" has no limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._interval_s = _BUDGET_INTERVAL_S
        self._used: dict[str, tuple[float, float]] = {}  # how many plans, and when that was so
        # Namespaces with events that may not start a plan yet, and from when on they may.
        self._deferred_until_s: dict[str, float] = {}
        self._has_earlier_deferred = asyncio.Event()

    def may_start(self, namespace: str, uncharged: int) -> bool:
        """Say whether an event of a namespace may start a plan; if not, defer it.

        *uncharged* are plans that the namespace has started and that are not complete.
        """
        if not namespace:
            return True
        now_s = self._clock.monotonic_s()
        excess = self._used_now(namespace, now_s) + uncharged - (_BUDGET_BURST - 1)
        if excess <= 0:
            return True
        until_s = now_s + excess * self._interval_s
        if until_s < min(self._deferred_until_s.values(), default=until_s + 1):
            self._has_earlier_deferred.set()
        self._deferred_until_s.setdefault(namespace, until_s)
        return False

    def forget_deferred(self) -> None:
        """Forget all deferred events: a plan begins, and sees their objects."""
        self._deferred_until_s.clear()

    async def deferred_namespaces(self) -> set[str]:
        """Wait until deferred events may start a plan; return their namespaces."""
        while True:
            self._has_earlier_deferred.clear()
            now_s = self._clock.monotonic_s()
            deferred = self._deferred_until_s
            due = {it for it, at_s in deferred.items() if at_s - now_s < _NEGLIGIBLE_S}
            if due:
                for namespace in due:
                    del deferred[namespace]
                return due
            earlier = self._has_earlier_deferred.wait()
            if deferred:
                with suppress(TimeoutError):
                    await within(self._clock, min(deferred.values()) - now_s, earlier)
            else:
                await earlier

    def charge(self, namespaces: Iterable[str], plan_s: float) -> None:
        """Charge a plan that changed nothing to the namespaces whose events started it."""
        self._interval_s = max(_BUDGET_INTERVAL_S, _BUDGET_PAUSE_FACTOR * plan_s)
        now_s = self._clock.monotonic_s()
        for namespace in namespaces:
            used = min(self._used_now(namespace, now_s) + 1, _BUDGET_BURST)
            self._used[namespace] = used, now_s
        if len(self._used) > _MAX_NAMESPACES:
            names = [*self._used]
            self._used = {
                name: self._used[name] for name in names if self._used_now(name, now_s) > 0
            }

    def refund(self, plans: Mapping[str, int]) -> None:
        now_s = self._clock.monotonic_s()
        for namespace, number in plans.items():
            used = self._used_now(namespace, now_s) - number
            if used > 0:
                self._used[namespace] = used, now_s
            else:
                self._used.pop(namespace, None)

    def _used_now(self, namespace: str, now_s: float) -> float:
        used, at_s = self._used.get(namespace, (0.0, now_s))
        return max(0.0, used - (now_s - at_s) / self._interval_s)
