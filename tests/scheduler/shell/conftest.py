"""A scheduler on an API server in memory, and a clock that the test advances."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.shell.bind.binder import Binder, BinderParts
from scheduler.shell.bind.claims.claim_releaser import ClaimReleaser
from scheduler.shell.bind.claims.claim_step import ClaimStep
from scheduler.shell.bind.claims.claim_writes import ClaimWrites
from scheduler.shell.bind.gpu.reservation_controller import ReservationController
from scheduler.shell.bind.gpu.reservation_manifest import ReservationPodOptions
from scheduler.shell.bind.gpu.reserve_device import (
    OwnImage,
    ReservationPods,
    ReservationPodSource,
)
from scheduler.shell.bind.gpu.share_step import GpuShareStep, ShareOptions
from scheduler.shell.bind.kept_nodes import NodeKeeping
from scheduler.shell.bind.steps import BindStep, BindSteps
from scheduler.shell.bind.volumes import VolumeStep
from scheduler.shell.bind.writes import LimitedWrites
from scheduler.shell.cycle import CommandExecutor, Cycle
from scheduler.shell.evict.evictor import Evictor, TerminationGraceLimiter
from scheduler.shell.evict.refused_pods import RefusedPodController
from scheduler.shell.evict.stale_gang_observer import StaleGangController
from scheduler.shell.evict.suspend_resume import Suspender
from scheduler.shell.evict.whole_workload import WorkloadEvictor
from scheduler.shell.queue_access import NotifyingExecutor, QueueAccessReviews
from scheduler.shell.report.status import StatusReporter
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.support.fakes.fake_cluster import FakeCluster, Fields
from tests.support.state.objects import queue
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GPU
from trainer_kai.kube.client import RetryPolicy
from trainer_kai.kube.events import EventApi, EventRecorder, EventSettings
from trainer_kai.policy.podgroups.avoided_nodes import AvoidTimes
from trainer_kai.service.log import logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import UnannotatedAccess

ALLOCATION_S = 40.0  # that a reservation pod may take to have its device
MOST_GRACE_S = 600.0  # that an evicted pod may take to terminate


class SchedulerHarness:
    """All controllers of a scheduler."""

    def __init__(
        self,
        api: FakeCluster | None = None,
        unannotated: UnannotatedAccess | None = None,
        selector_steps: int = 0,
    ) -> None:
        """With *unannotated* it reviews which namespaces may use which queues."""
        self.api = api or FakeCluster()
        self.metrics = Metrics()
        self.reviews_access = unannotated is not None
        self.avoid_times = AvoidTimes(300, 14_400)
        self.cache = ClusterCache(
            lambda: StateOptions(
                now=int(self.api.clock.now().timestamp()),
                default_queue="q",
                observes_staleness=True,
                places_gpu_shares=True,
                relocates_by_default=False,
                needs_permission=self.reviews_access,
                default_access=unannotated or "open",
                avoid_times=self.avoid_times,
                selector_steps=selector_steps,
            )
        )
        self.share_options = ShareOptions(gpu_resources=(GPU,))
        self.more_steps: Sequence[BindStep] = ()  # after those of the product
        self.while_planning: Callable[[], None] = lambda: None
        self.keeps_nodes = False
        self.keep_annotations: Callable[[Key], Mapping[str, str]] = lambda _group: {}
        self.plan_starts_s: list[float] = []
        """When plans were begun."""
        self.planning_s = 0.0
        log = logger("test")
        policies = build_policies(PolicySelection())
        self.cycle = Cycle(self.cache, policies, self.api.clock, self.metrics, log, self._offload)
        self._create_controllers()
        if api is None:
            self.api.put(queue())

    def _create_controllers(self) -> None:
        client, cache, metrics, log = self.api.client, self.cache, self.metrics, logger("test")
        settings = EventSettings("test", "test")
        self.recorder = EventRecorder(EventApi(client), settings, self.api.clock, log)
        writes = LimitedWrites(client.clock)
        self.reporter = StatusReporter(client, cache, self.recorder, writes, metrics, log)
        self.suspender = Suspender(client, cache, self.recorder, self.cycle, metrics, log)
        evictor = Evictor(client, cache, self.suspender, self.recorder, metrics, log)
        options = ReservationPodOptions("image", "nvidia", "trainer-kai")
        source = ReservationPodSource(OwnImage(client, None, "image"), options, ALLOCATION_S)
        unlimited = client.with_retry_policy(RetryPolicy(waits_when_throttled=False))
        pods = ReservationPods(unlimited, cache, source, writes, metrics, log)
        self.shares = GpuShareStep(client, cache, pods, writes, self.share_options, log)
        claim_writes = ClaimWrites(unlimited, cache.cluster.device_classes, writes)
        self.releaser = ClaimReleaser(client, cache, claim_writes, log)
        claims = ClaimStep(cache, claim_writes)
        steps = BindSteps((VolumeStep(client, cache), self.shares, claims, *self.more_steps), log)
        self.keeping = NodeKeeping(client, cache, log)
        parts = BinderParts(evictor.evict_all, steps, writes, self.recorder, self._keeps)
        self.binder = Binder(client, cache, parts, self.cycle, metrics, log)
        workloads = WorkloadEvictor(cache, client.clock, self.shares.gpus_of, self.binder.execute)
        self.reservations = ReservationController(
            client, cache, self.shares, workloads, self.recorder, log
        )
        self.refused_pods = RefusedPodController(client, cache, workloads, self.recorder, log)
        self.stale_gangs = StaleGangController(client, cache, self.cycle.wake, self.recorder, log)
        self.termination_limiter = TerminationGraceLimiter(client, cache, MOST_GRACE_S, log)

    def _keeps(self, pod: Key, group: Key) -> Mapping[str, str]:
        keeps = self.keeping.annotations(pod, group) if self.keeps_nodes else {}
        return {**keeps, **self.keep_annotations(group)}

    def _with_queue_access(self) -> tuple[CommandExecutor, list[Coroutine[Any, Any, None]]]:
        if not self.reviews_access:
            return self.binder, []
        wake, log = self.cycle.wake, logger("test")
        queue_access = QueueAccessReviews(self.api.client, self.cache, wake, self.recorder, log)
        self.cache.on_access_questions = queue_access.set_uses
        return NotifyingExecutor(self.binder, queue_access.record_start), [queue_access.run()]

    def lead_again(self) -> "SchedulerHarness":
        """Lead once more, with what is known, as after the Lease was lost for a moment."""
        self._create_controllers()
        return self

    @property
    def plans(self) -> int:
        return len(self.plan_starts_s)

    def successor(self) -> "SchedulerHarness":
        return SchedulerHarness(self.api)

    async def _offload(self, decide: Callable[..., Any], *arguments: Any) -> Any:
        self.plan_starts_s.append(self.api.clock.monotonic_s())
        if self.planning_s:
            await self.api.clock.sleep(self.planning_s)
        result = decide(*arguments)
        self.while_planning()
        await asyncio.sleep(0)
        return result

    def events(self) -> list[tuple[str, str]]:
        """Return the objects of Events, and their reasons, but for those of `pod_events`."""
        return [
            (f"{it['involvedObject']['kind']} {it['involvedObject']['name']}", it["reason"])
            for it in self.api.events
            if it["reason"] != "FailedScheduling"
        ]

    def pod_events(self) -> list[tuple[str, Fields]]:
        """Return the Events on waiting pods, by the names of the pods."""
        return [
            (it["involvedObject"]["name"], it)
            for it in self.api.events
            if it["reason"] == "FailedScheduling"
        ]

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Schedule, inside."""
        self.api.deliver_to(self.cache, self.cycle)
        self.cache.on_podgroup_change = self.reporter.podgroup_changed
        self.cache.suspended_workloads.on_record_change = self.suspender.record_changed
        self.cache.start_leading()
        binder, queue_access = self._with_queue_access()
        services = (
            *queue_access,
            self.recorder.run(),
            self.reporter.run(),
            self.suspender.run(),
            self.stale_gangs.run(),
            self.termination_limiter.run(),
            self.reservations.run(),
            self.refused_pods.run(),
            self.releaser.run(),
            self.keeping.run(),
            self.cycle.run(binder, self.reporter),
        )
        tasks = [asyncio.create_task(service) for service in services]
        try:
            await self.advance(0.1)
            yield
            assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
            self.cache.check()
        finally:
            self.cache.stop_leading(self.api.clock.monotonic_s())
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def advance(self, seconds: float) -> None:
        await self.api.clock.advance(seconds)


@pytest.fixture
def harness() -> SchedulerHarness:
    return SchedulerHarness()
