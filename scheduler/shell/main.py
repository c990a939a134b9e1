"""The scheduler process, wired up: watches, the cycle, and the writers while this process leads.

Every kind that a plan needs is watched: a change goes to the cache, then to the cycle. The settings
become policies and options here; unknown names are rejected where the settings are read. The dump
of the cache is a List that `trainer-kai simulate` reads; assumed binds and evictions are part of
it, because it is what the next plan would be made from.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from scheduler.core.model.line import LineSettings
from scheduler.core.model.rejections import ClusterEvent
from scheduler.core.model.result import Policies
from scheduler.policies.registry import PluginSelection, PolicySelection, build_policies
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
from scheduler.shell.duplicate_guard import DuplicateSchedulerGuard
from scheduler.shell.evict.evictor import Evictor, TerminationGraceLimiter
from scheduler.shell.evict.refused_pods import RefusedPodController
from scheduler.shell.evict.stale_gang_observer import StaleGangController
from scheduler.shell.evict.suspend_resume import Suspender
from scheduler.shell.evict.whole_workload import WorkloadEvictor
from scheduler.shell.queue_access import NotifyingExecutor, QueueAccessReviews
from scheduler.shell.report.asks import AskPolicy
from scheduler.shell.report.provisioning_requests import ProvisioningRequests
from scheduler.shell.report.status import PauseReporter, StatusReporter
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.failed_starts import FIELD_SELECTOR as FAILED_STARTS
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.podgroups.node_asks import AskLimits
from scheduler.state.queues.access import access_review
from trainer_kai.api.decode import encode
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import ACCESS_REVIEWS, DEVICE_KINDS, EVENTS, Resource
from trainer_kai.api.scheduler_names import ACTIONS
from trainer_kai.kube.client import Client, RetryPolicy
from trainer_kai.kube.events import EventRecorder
from trainer_kai.kube.process.context import (
    ClientObserver,
    ProcessContext,
    event_recorder,
    leader_elector,
)
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.process.tasks import cancel_all
from trainer_kai.kube.rest.request import ListTarget, Selection
from trainer_kai.kube.watch import NO_BOOKMARKS, Delta, DeltaType, Watch
from trainer_kai.policy.duplicate_scheduler import duplicate_scheduler_objects
from trainer_kai.policy.leaving_nodes import LeavingSigns
from trainer_kai.policy.podgroups.avoided_nodes import AvoidTimes
from trainer_kai.policy.pods.creation_failures import FIELD_SELECTOR
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE, watch_name
from trainer_kai.service.clock import Clock
from trainer_kai.service.garbage_collection import freeze_known_objects
from trainer_kai.service.health import Health
from trainer_kai.service.setting_checks import read_gpu_replicas, split_names
from trainer_kai.service.settings import AutoscalingSettings, PolicySettings, SchedulerSettings

_BATCH: Final = 200  # objects of a dump that are encoded at once: a few milliseconds
_KEEP_WARM_S: Final = 5.0
_SELECTOR_STEPS: Final = 200_000  # of CEL for a snapshot: about a tenth of a second


async def scheduler(run: Runner, context: ProcessContext, settings: SchedulerSettings) -> None:
    client, metrics, log = context.client, context.metrics, context.log
    cache = ClusterCache(state_options(context.clock, settings))
    cycle = Cycle(cache, policies_of(settings), context.clock, metrics, log)
    cycle.ask_policy = ask_policy(settings)
    informers = ClusterInformers(cache, cycle)
    informers.start(run, client, context.observer, context.health)
    events = event_recorder(client, settings.scheduler_name, metrics, log)
    run.start("events", events.run, grace_s=5)
    context.health.snapshot_source = lambda: dump_cluster(cache.cluster)
    leader = settings.leader
    own = Key(leader.namespace or client.rest_config.namespace, leader.name)
    kai = settings.kai
    locations = duplicate_scheduler_objects(
        settings.scheduler_name, split_names(kai.namespaces), split_names(kai.shards), own
    )
    duplicate_guard = DuplicateSchedulerGuard(client, locations, log)
    context.health.add_condition(
        "no other scheduler of our name", lambda: duplicate_guard.pause_reason
    )
    candidate = leader_elector(client, leader, metrics, log)
    leadership = _Leadership(context, settings, cache, cycle, duplicate_guard, events)

    async def lead_when_synced() -> None:
        await informers.synced()
        cache.snapshot()  # the first one takes long, and no pod waits for it yet
        freeze_known_objects()
        await candidate.lead(lambda fence: leadership.lead(client.with_fence(fence)))

    run.start("keep warm", lambda: _keep_warm(cache, context.clock))
    if settings.debug_check_s:
        run.start(
            "check the state", lambda: _check_cache(cache, context.clock, settings.debug_check_s)
        )
    run.start("lead", lead_when_synced, grace_s=20)


class _Leadership(NamedTuple):
    context: ProcessContext
    settings: SchedulerSettings
    cache: ClusterCache
    cycle: Cycle
    duplicate_guard: DuplicateSchedulerGuard
    event_recorder: EventRecorder

    async def lead(self, fenced: Client) -> None:
        """Schedule, and pause while another scheduler with our name exists."""
        while True:
            if await self.duplicate_guard.is_present():
                pause = PauseReporter(
                    fenced,
                    self.cache,
                    self.event_recorder,
                    self.duplicate_guard.pause_reason,
                    self.context.log,
                )
                await _run_until(pause.run(), self.duplicate_guard.wait_until_gone())
            self.context.log.info("scheduling begins", pods=len(self.cache.cluster.pods))
            try:
                await _run_until(self._work(fenced), self.duplicate_guard.wait_until_present())
            finally:
                self.cache.stop_leading(self.context.clock.monotonic_s())

    async def _work(self, fenced: Client) -> None:
        cache, events = self.cache, self.event_recorder
        metrics, log = self.context.metrics, self.context.log
        writes = LimitedWrites(fenced.clock)
        reporter = StatusReporter(fenced, cache, events, writes, metrics, log)
        suspender = Suspender(fenced, cache, events, self.cycle, metrics, log)
        evictor = Evictor(fenced, cache, suspender, events, metrics, log)
        shares = _gpu_shares(fenced, cache, self.settings, writes, self.context)
        unlimited = fenced.with_retry_policy(RetryPolicy(waits_when_throttled=False))
        claim_writes = ClaimWrites(unlimited, cache.cluster.device_classes, writes)
        bind_steps: list[BindStep] = [  # in the order in which a pod is prepared
            VolumeStep(fenced, cache),
            shares,
            ClaimStep(cache, claim_writes),
        ]
        keeping = NodeKeeping(fenced, cache, log, leaving_signs(self.settings))
        provisioning = ProvisioningRequests(fenced, cache, self.cycle.wake, log)
        annotations = _bind_annotations(self.settings.autoscaling, keeping, provisioning)
        steps = BindSteps(bind_steps, log)
        parts = BinderParts(evictor.evict_all, steps, writes, events, annotations)
        binder = Binder(fenced, cache, parts, self.cycle, metrics, log)
        workloads = WorkloadEvictor(cache, fenced.clock, shares.gpus_of, binder.execute)
        reservations = ReservationController(fenced, cache, shares, workloads, events, log)
        refused = RefusedPodController(fenced, cache, workloads, events, log)
        stale_gangs = StaleGangController(fenced, cache, self.cycle.wake, events, log)
        claims = ClaimReleaser(fenced, cache, claim_writes, log)
        grace_limiter = TerminationGraceLimiter(
            fenced, cache, self.settings.max_termination_grace_s, log
        )
        cache.on_podgroup_change = _podgroup_changed(reporter, provisioning)
        cache.suspended_workloads.on_record_change = suspender.record_changed
        cache.start_leading()
        async with asyncio.TaskGroup() as group:
            for service in (reporter, suspender, stale_gangs, grace_limiter):
                group.create_task(service.run())
            for controller in (reservations, refused, claims):
                group.create_task(controller.run())
            group.create_task(keeping.run())
            self._start_provisioning(group, provisioning)
            group.create_task(self.cycle.run(self._with_queue_access(group, binder), reporter))

    def _start_provisioning(
        self, group: asyncio.TaskGroup, provisioning: ProvisioningRequests
    ) -> None:
        autoscaling = self.settings.autoscaling
        is_on = autoscaling.enabled and autoscaling.provisioning_requests
        self.cycle.provisioning = provisioning if is_on else None
        if is_on:
            watch = provisioning.watch(self.context.observer)
            group.create_task(watch.run(provisioning.changed, provisioning.synced))
            group.create_task(provisioning.run())

    def _with_queue_access(
        self, group: asyncio.TaskGroup, binder: CommandExecutor
    ) -> CommandExecutor:
        """Start the queue access reviews; return a binder that notifies them of each start."""
        client, log = self.context.client, self.context.log
        queue_access = QueueAccessReviews(
            client, self.cache, self.cycle.wake, self.event_recorder, log
        )
        self.cache.on_access_questions = queue_access.set_uses
        group.create_task(queue_access.run())
        return NotifyingExecutor(binder, queue_access.record_start)


def _podgroup_changed(
    reporter: StatusReporter, provisioning: ProvisioningRequests
) -> Callable[[Key], None]:
    def changed(group: Key) -> None:
        reporter.podgroup_changed(group)
        provisioning.podgroup_changed(group)

    return changed


def _bind_annotations(
    autoscaling: AutoscalingSettings, keeping: NodeKeeping, provisioning: ProvisioningRequests
) -> Callable[[Key, Key], Mapping[str, str]]:
    def annotations(pod: Key, group: Key) -> Mapping[str, str]:
        if not autoscaling.enabled:
            return {}
        keeps = keeping.annotations(pod, group) if autoscaling.keep_nodes == "gangs" else {}
        return {**keeps, **provisioning.bind_annotations(group)}

    return annotations


def _gpu_shares(
    client: Client,
    cache: ClusterCache,
    settings: SchedulerSettings,
    writes: LimitedWrites,
    context: ProcessContext,
) -> GpuShareStep:
    pods, sharing = settings.reservation_pods, settings.gpu_sharing
    own = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    source = ReservationPodSource(
        OwnImage(client, Key(*own) if all(own) else None, pods.image),
        ReservationPodOptions("", sharing.runtime_class, pods.priority_class),
        pods.allocation_s,
    )
    unlimited = client.with_retry_policy(RetryPolicy(waits_when_throttled=False))
    reservations = ReservationPods(unlimited, cache, source, writes, context.metrics, context.log)
    options = ShareOptions(
        limits_memory=sharing.memory_limits == "hami-core",
        cdi=pods.cdi,
        gpu_resources=gpu_resources(settings.policies),
    )
    return GpuShareStep(unlimited, cache, reservations, writes, options, context.log)


class _WatchedKind(NamedTuple):
    resource: Resource[Any]
    notify: Callable[[Key, Any], ClusterEvent]


class ClusterInformers:
    """Starts the watches; synced means that each has listed all objects of its kind."""

    def __init__(self, cache: ClusterCache, cycle: Cycle) -> None:
        self._cache = cache
        self._cycle = cycle
        self._unsynced: set[str] = set()
        self._synced = asyncio.Event()

    async def synced(self) -> None:
        await self._synced.wait()

    def start(self, run: Runner, client: Client, seen: ClientObserver, health: Health) -> None:
        kinds = [
            _WatchedKind(resource, partial(self._cache.update, resource))
            for resource in self._cache.cluster.by_resource()
        ]
        self._unsynced = {watch_name(kind.resource) for kind in kinds}
        optional_kinds = {*self._cache.cluster.workload_objects, *DEVICE_KINDS}
        for kind in kinds:
            name = watch_name(kind.resource)
            workload_kind = KIND_OF_RESOURCE.get(kind.resource)
            labels = workload_kind.selection if workload_kind is not None else ""
            target = ListTarget(kind.resource, selection=Selection(labels=labels))
            # A cluster need not serve each kind of workload, nor of devices.
            is_optional = kind.resource in optional_kinds
            watch: Watch[Any] = Watch(client, target, seen, optional=is_optional)
            health.add_condition(f"{name} followed", watch.not_synced_reason)
            run.start(f"watch {name}", self._watch_service(watch, kind))
        # These Events only explain why pods are missing, so no sync waits for them.
        kind = _WatchedKind(EVENTS, self._cache.creation_failures.update)
        creation_failures: Watch[Any] = Watch(
            client,
            ListTarget(EVENTS, selection=Selection(fields=FIELD_SELECTOR)),
            seen,
            timing=NO_BOOKMARKS,
        )
        run.start(f"watch {EVENTS.plural}", self._watch_service(creation_failures, kind))
        kind = _WatchedKind(EVENTS, self._cache.failed_starts.update)
        failed_starts: Watch[Any] = Watch(
            client,
            ListTarget(EVENTS, selection=Selection(fields=FAILED_STARTS)),
            seen,
            timing=NO_BOOKMARKS,
        )
        run.start(f"watch {EVENTS.plural} of pods", self._watch_service(failed_starts, kind))

    def _watch_service(
        self, watch: Watch[Any], kind: _WatchedKind
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        def change(it: Delta[Any]) -> None:
            is_deleted = it.type is DeltaType.DELETED or it.object is None
            seen = None if is_deleted else it.object
            self._cycle.wake(kind.notify(it.key, seen), it.key.namespace)

        return lambda: watch.run(change, partial(self._note_synced, watch_name(kind.resource)))

    def _note_synced(self, name: str) -> None:
        self._unsynced.discard(name)
        if not self._unsynced:
            self._synced.set()


async def _keep_warm(cache: ClusterCache, clock: Clock) -> None:
    """Read changes into the state, so that the first cycle as leader has few to read."""
    while True:
        await clock.sleep(_KEEP_WARM_S)
        if not cache.is_leading:
            cache.snapshot()


async def _check_cache(cache: ClusterCache, clock: Clock, every_s: float) -> None:
    while True:
        await clock.sleep(every_s)
        cache.check()


async def _run_until(work: Coroutine[Any, Any, None], end: Coroutine[Any, Any, None]) -> None:
    tasks = asyncio.create_task(work), asyncio.create_task(end)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises also what the task raised while it was cancelled


def state_options(clock: Clock, settings: SchedulerSettings) -> Callable[[], StateOptions]:
    gpus = gpu_resources(settings.policies)
    replicas = tuple(read_gpu_replicas(settings.policies.gpu_replicas).items())
    signs, avoided = leaving_signs(settings), settings.avoided_nodes
    avoid_times = AvoidTimes(avoided.first_s, avoided.most_s)
    minds_fragments = any(build_policies(policy_selection(settings.policies)).minds_fragments)

    def options() -> StateOptions:
        return StateOptions(
            now=int(clock.now().timestamp()),
            scheduler_name=settings.scheduler_name,
            default_queue=settings.default_queue,
            gpu_resources=gpus,
            gpu_replicas=replicas,
            max_termination_grace_s=int(settings.max_termination_grace_s),
            staleness_grace_s=settings.staleness_grace_s,
            observes_staleness=True,
            ungrouped_wait_s=int(settings.ungrouped_wait_s),
            priority_classes=frozenset(split_names(settings.priority_classes)),
            relocates_by_default=False,
            kueue=settings.kueue,
            needs_permission=True,
            default_access=settings.queue_access.unannotated,
            restricts_nodes=settings.restrict_node_scheduling,
            places_gpu_shares=settings.gpu_sharing.enabled,
            selector_steps=_SELECTOR_STEPS,
            counts_ended_pods=minds_fragments,
            leaving=signs,
            keeps_non_preemptible=settings.leaving_nodes.non_preemptible == "keep",
            avoid_times=avoid_times,
        )

    return options


def leaving_signs(settings: SchedulerSettings) -> LeavingSigns:
    leaving = settings.leaving_nodes
    return LeavingSigns(tuple(split_names(leaving.taints)), tuple(split_names(leaving.conditions)))


def ask_policy(settings: SchedulerSettings) -> AskPolicy | None:
    autoscaling = settings.autoscaling
    if not autoscaling.enabled:
        return None
    return AskPolicy(
        AskLimits(autoscaling.wait_s, autoscaling.pause_s),
        is_within_quota=autoscaling.up_to == "quota",
        startup_taints=tuple(split_names(autoscaling.startup_taints)),
        gpu_resources=gpu_resources(settings.policies),
    )


def gpu_resources(settings: PolicySettings) -> tuple[str, ...]:
    return tuple(split_names(settings.gpu_resources))


def policies_of(settings: SchedulerSettings) -> Policies:
    kept = settings.kept_room
    line = LineSettings(kept.after_s, kept.max_percent, kept.back_off_s)
    return build_policies(replace(policy_selection(settings.policies), line=line))


def policy_selection(settings: PolicySettings) -> PolicySelection:
    plugins = {name: PluginSelection(enabled=False) for name in split_names(settings.disabled)}
    actions = split_names(settings.actions)
    return PolicySelection(
        plugins,
        settings.gpu_placement,
        settings.cpu_placement,
        {name: name in actions for name in ACTIONS},
        victim_order=settings.victims,
        disruption_budgets=settings.disruption_budgets,
    )


async def dump_cluster(cluster: Cluster) -> AsyncIterator[bytes]:
    """Yield a List of the cached objects in JSON, piece by piece."""
    kinds = [(resource, [*objects.values()]) for resource, objects in cluster.by_resource().items()]
    kinds.append((ACCESS_REVIEWS, [access_review(*it) for it in cluster.permits.items()]))
    yield b'{"apiVersion":"v1","kind":"List","items":['
    is_first = True
    for resource, objects in kinds:
        remaining = iter(objects)
        while batch := [*islice(remaining, _BATCH)]:
            yield (b"" if is_first else b",\n") + b",\n".join(_encoded_objects(resource, batch))
            is_first = False
            await asyncio.sleep(0)
    yield b"]}\n"


def _encoded_objects(resource: Resource[Any], objects: Iterable[Any]) -> Iterable[bytes]:
    head = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()
    return (head + encode(it)[1:] for it in objects)
