"""Carries out the commands for one PodGroup: reserves places, evicts victims, binds its pods.

1. A bind is sent only after what it relies on is written: reserved places for later pods, and what
   the bind steps write for its pod.
2. A victim is evicted only after its preemptor is nominated and the places of relocated pods are
   reserved, and only if all victims can be evicted.
3. The pods of a PodGroup are bound together. A pod with a refused bind is forgotten, and the next
   plan finds it waiting in a PodGroup that has begun; no other PodGroup is touched.
4. A bind without an answer is sent again for a few seconds, to the same node: it counts once. If
   there is still no answer, the watch shows the result: it is waited for.
5. A write that is refused for good is retried after a backoff that doubles each time; until then
   its place stays assumed.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.steps import BindSteps, PodBind, StepFailed
from scheduler.shell.bind.writes import FIELD_MANAGER, LimitedWrites
from scheduler.shell.event_objects import event_object
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PlannedEviction, PodGroupCommands
from trainer_kai.api.meta import Key
from trainer_kai.api.names import LINE, RESERVED
from trainer_kai.api.resources import PODGROUPS, PODS
from trainer_kai.kube.client import Client, RetryPolicy, bind
from trainer_kai.kube.events import EventRecorder
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError, Conflict, NotFound, Unavailable
from trainer_kai.service.metrics import Metrics

# Evicts the victims of the commands, if the preemptor still exists; returns the evictions that
# failed, and whether to back off before they are tried again.
EvictVictims: TypeAlias = Callable[
    [PodGroupCommands, Callable[[], bool]], Awaitable[tuple[tuple[PlannedEviction, ...], bool]]
]

_WATCH_DEADLINE_S: Final = 15.0  # until a watch must have shown a write
_DELETION_DEADLINE_S: Final = 45.0  # and that pods terminate: other controllers delete them
_BACKOFF_S: Final = 1.0  # of a pod that was refused, the first time
_MAX_BACKOFF_S: Final = 60.0
_BACKOFF_KEPT_S: Final = 3600.0  # a pod that is not refused again for so long is deleted, or bound
_RETRY_DELAYS_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)  # after a bind without an answer
_RESERVE: Final = WriteOptions(field_manager=FIELD_MANAGER)
_NOMINATE: Final = WriteOptions(field_manager=FIELD_MANAGER, subresource="status")


class Replanner(Protocol):
    def replan(self, namespace: str = "") -> None: ...

    def refund(self, gpus: int) -> None:
        """Give GPUs back to the rate limit that were not evicted after all."""
        ...


class BinderParts(NamedTuple):
    """The parts that do what the binder itself does not: it calls them in its order."""

    evict: EvictVictims
    steps: BindSteps
    writes: LimitedWrites
    recorder: EventRecorder
    # What a pod of a PodGroup gets with its bind.
    annotations: Callable[[Key, Key], Mapping[str, str]]


@dataclass
class _CommandQueue:
    """The commands for one PodGroup, one after the other: each relies on the one before."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    failures: int = 0


class _Backoff(NamedTuple):
    """The next backoff of a pod or PodGroup, and when it was refused last."""

    next_s: float
    refused_s: float


class Binder:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        parts: BinderParts,
        replanner: Replanner,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client.with_retry_policy(RetryPolicy(waits_when_throttled=False))
        self._cache = cache
        self._lost_pods = cache.lost_pods
        self._evict = parts.evict
        self._steps = parts.steps
        self._recorder = parts.recorder
        self._replanner = replanner
        self._metrics = metrics
        self._log = log
        self._writes = parts.writes
        self._annotations = parts.annotations
        self._command_queues: dict[Key, _CommandQueue] = {}
        # of pods and PodGroups that were refused; the one that was refused last is last
        self._backoffs: dict[Key, _Backoff] = {}

    async def execute(self, commands: PodGroupCommands) -> bool:
        """Execute the commands after earlier ones for this PodGroup; what fails is forgotten.

        Return whether nothing failed.
        """
        command_queue = self._command_queues.setdefault(commands.group, _CommandQueue())
        command_queue.waiting += 1
        failures = command_queue.failures
        try:
            async with command_queue.lock:
                if command_queue.failures == failures:
                    await self._execute(commands, command_queue)
                elif commands.reserve_annotation is not None and _only_reserves(commands):
                    self._cache.assumed.forget_line(commands.group)
                    self._lost_pods.retry_annotation(commands.group, commands.reserve_annotation)
                else:  # the plan assumed that the commands that failed meanwhile were executed
                    self._forget(commands)
                return command_queue.failures == failures
        finally:
            command_queue.waiting -= 1
            if not command_queue.waiting:
                self._command_queues.pop(commands.group, None)

    async def _execute(self, commands: PodGroupCommands, command_queue: _CommandQueue) -> None:
        """Carry commands out; a place in the line ends only when all pods are bound."""
        text = commands.line_annotation
        ends_place = text == "" and bool(commands.binds)
        if text is not None and not ends_place:
            await self._write_line(commands.group, text)
        failures = command_queue.failures
        await self._carry_out(commands, command_queue)
        if ends_place and command_queue.failures == failures:
            await self._write_line(commands.group, "")
        elif ends_place:
            self._cache.assumed.forget_line(commands.group)

    async def _carry_out(self, commands: PodGroupCommands, command_queue: _CommandQueue) -> None:
        if commands.reserve_annotation is not None and not await self._write_reservation(
            commands.group, commands.reserve_annotation
        ):
            command_queue.failures += 1
            self._cancel_evictions(commands, commands.evictions)
            pods = [it.pod for it in (*commands.binds, *commands.nominations)]
            if pods:
                self._back_off(commands.group, *pods)
            else:
                self._lost_pods.retry_annotation(commands.group, commands.reserve_annotation)
            return
        failures = await self._steps.reserve(commands)
        if failures:
            command_queue.failures += 1
            self._forget_unreserved(commands, failures)
            return
        async with asyncio.TaskGroup() as group:
            binds = [group.create_task(self._bind(*it, commands)) for it in commands.binds]
            nominated = zip(commands.nominations, commands.uids, strict=True)
            nominations = {it: group.create_task(self._nominate(*it, uid)) for it, uid in nominated}
        if commands.evictions:
            command_queue.failures += not await self._evict_victims(
                commands,
                is_nominated=all(task.result() for it, task in nominations.items() if it.node),
            )
        if not all(task.result() for task in binds):
            command_queue.failures += 1
            # A pod with a refused bind keeps its reserved place.
            self._cache.assumed.restore_reservation(commands.group, commands.reserve_annotation)
        elif commands.release_annotation is not None:
            # If this fails, the place is released when the watch shows the bound pod.
            await self._write_reservation(commands.group, commands.release_annotation)
        self._cache.assumed.await_reservation(commands.group, self._watch_deadline_s())

    async def _evict_victims(self, commands: PodGroupCommands, *, is_nominated: bool) -> bool:
        """Evict the victims if their preemptor is nominated; say whether all are evicted."""
        failed, needs_backoff = commands.evictions, False
        if is_nominated and await self._reserve_relocations(commands.evictions):
            failed, needs_backoff = await self._evict(
                commands, lambda: self._nominated_pods_exist(commands)
            )
        elif is_nominated:
            needs_backoff = True
        now_s = self._client.clock.monotonic_s()
        for eviction in commands.evictions:
            for pod in eviction.pods if eviction not in failed else ():
                self._cache.assumed.await_seen(pod, now_s + _DELETION_DEADLINE_S)
        for eviction in commands.evictions:
            for group, _ in eviction.reserved_annotations:
                self._cache.assumed.await_reservation(group, self._watch_deadline_s())
        self._cache.in_flight_evictions.settle(commands.evictions)
        if not needs_backoff:
            self._backoffs.pop(commands.group, None)
            self._cancel_evictions(commands, failed)
        elif failed:  # the same requests would be refused again at once
            self._back_off(commands.group, *(pod for eviction in failed for pod in eviction.pods))
            self._cache.in_flight_evictions.forget_places(failed)
            self._replanner.refund(sum(eviction.gpus for eviction in failed))
        self._replanner.replan()
        return not failed

    async def _reserve_relocations(self, evictions: tuple[PlannedEviction, ...]) -> bool:
        """Reserve the places of relocated pods; not while their PodGroups are written otherwise."""
        reservations = [it for eviction in evictions for it in eviction.reserved_annotations]
        if any(group in self._command_queues for group, _ in reservations):
            return False
        return all([await self._write_reservation(*it) for it in reservations])

    def _nominated_pods_exist(self, commands: PodGroupCommands) -> bool:
        pods = self._cache.cluster.pods
        nominated = zip(commands.nominations, commands.uids, strict=True)
        found = [(pods.get(it.pod), uid) for it, uid in nominated if it.node]
        return all(
            pod is not None and pod.metadata.uid == uid and not pod.metadata.deletion_timestamp
            for pod, uid in found
        )

    def _cancel_evictions(
        self, commands: PodGroupCommands, evictions: tuple[PlannedEviction, ...]
    ) -> None:
        if evictions:
            self._cache.in_flight_evictions.forget(commands.group, evictions)
            self._replanner.refund(sum(eviction.gpus for eviction in evictions))

    def _forget(self, commands: PodGroupCommands) -> None:
        for pod, _ in commands.binds:
            self._cache.assumed.forget_bind(pod)
        for pod, _ in commands.nominations:
            self._cache.assumed.forget_nomination(pod)
        self._cancel_evictions(commands, commands.evictions)
        self._cache.assumed.forget_reservation(commands.group)
        self._cache.assumed.forget_line(commands.group)
        self._replanner.replan(commands.group.namespace)

    async def _write_line(self, group: Key, text: str) -> None:
        """Write the place of a PodGroup in the line; if that fails, a later plan finds it again."""
        if await self._write_annotation(group, LINE, text):
            self._cache.assumed.await_seen(group, self._watch_deadline_s())
            self._log.info("place in the line written", group=str(group), line=text)
        else:
            self._cache.assumed.forget_line(group)

    async def _write_annotation(self, group: Key, name: str, text: str) -> bool:
        known = self._cache.cluster.pod_groups.get(group)
        if known is None:
            return False
        fields = {"metadata": {"uid": known.metadata.uid, "annotations": {name: text or None}}}
        try:
            await self._writes.send(
                lambda: self._client.merge_patch(PODGROUPS, group, fields, _RESERVE)
            )
        except ApiError as error:
            if name == RESERVED:
                self._log.warning("reserved places not written", group=str(group), error=str(error))
            else:
                self._log.warning("place in line not written", group=str(group), error=str(error))
            return False
        return True

    async def _write_reservation(self, group: Key, text: str) -> bool:
        if not await self._write_annotation(group, RESERVED, text):
            return False
        self._backoffs.pop(group, None)
        if text:
            self._log.info("reserved places written", group=str(group), places=text)
        else:
            self._log.info("reserved places released", group=str(group))
        return True

    def _forget_unreserved(
        self, commands: PodGroupCommands, failures: Mapping[Key, ApiError]
    ) -> None:
        """Forget the commands for pods of which some lack what they need: none of them is bound."""
        for pod, error in failures.items():
            self._metrics.binds.labels("refused").inc()
            self._post_failure(pod, error)
        first, pods = next(iter(failures)), [it.pod for it in commands.binds]
        for pod, _ in commands.nominations:
            self._cache.assumed.forget_nomination(pod)
        self._cancel_evictions(commands, commands.evictions)
        if first in self._backoffs:
            self._back_off(first, *pods)
        else:
            self._set_backoff(first, _BACKOFF_S)
            for pod in pods:
                self._cache.assumed.forget_bind(pod)
        self._cache.assumed.restore_reservation(commands.group, commands.reserve_annotation)
        self._cache.assumed.await_reservation(commands.group, self._watch_deadline_s())
        self._replanner.replan(commands.group.namespace)

    async def _bind(self, pod: Key, node: str, commands: PodGroupCommands) -> bool:
        known = self._cache.cluster.pods.get(pod)
        assumed_meta = self._cache.assumed.bound_metadata(pod)
        if known is None or assumed_meta is None or known.metadata.uid != assumed_meta.uid:
            self._backoffs.pop(pod, None)
            return False  # the pod is gone or recreated, and nothing is assumed any more
        pod_bind = PodBind(pod, node, assumed_meta.uid, commands)
        try:
            prepared = await self._steps.prepare(pod_bind)
        except ApiError as error:
            self._not_bound(pod, node, error)
            return False
        try:
            await self._send_bind(pod_bind)
        except Unavailable:
            self._cache.assumed.await_seen(pod, self._watch_deadline_s())
            return False
        except ApiError as error:
            await self._steps.undo(pod_bind, prepared)
            self._not_bound(pod, node, error)
            return False
        self._backoffs.pop(pod, None)
        self._metrics.binds.labels("bound").inc()
        self._log.info("pod bound", pod=str(pod), node=node)
        return True  # the bind is final, however late a watch shows it

    def _post_failure(self, pod: Key, error: ApiError) -> None:
        """Post why a step failed, if the step says it."""
        known = self._cache.cluster.pods.get(pod)
        if known is not None and isinstance(error, StepFailed):
            concerned = event_object(PODS, known.metadata)
            self._recorder.post(concerned, error.event_reason, error.message, "Warning")

    def _not_bound(self, pod: Key, node: str, error: ApiError) -> None:
        """Forget a bind that was refused; the second time in a row after a while."""
        self._post_failure(pod, error)
        fields = {"pod": str(pod), "node": node, "error": str(error)}
        if isinstance(error, NotFound | Conflict):
            self._log.info("pod not bound", **fields)
            self._metrics.binds.labels("refused").inc()
            if pod not in self._backoffs:
                self._set_backoff(pod, _BACKOFF_S)
                self._cache.assumed.forget_bind(pod)
                self._replanner.replan(pod.namespace)
                return  # a watch may show why
        else:
            self._log.warning("pod not bound", **fields)
            self._metrics.binds.labels("failed").inc()
        self._back_off(pod)

    async def _send_bind(self, pod_bind: PodBind) -> None:
        pod, node = pod_bind.pod, pod_bind.node
        delays_s = iter(_RETRY_DELAYS_S)
        is_repeated = False
        while True:
            try:
                await self._writes.send(lambda: self._bind_as_assumed(pod_bind))
            except Conflict:
                if not is_repeated:
                    raise
                # The earlier request has bound it, or the pod has changed: a watch shows which.
                self._cache.assumed.await_seen(pod, self._watch_deadline_s())
                return
            except Unavailable as error:
                self._log.warning(
                    "pod bind not answered", pod=str(pod), node=node, error=str(error)
                )
                delay_s = next(delays_s, None)
                if delay_s is None:
                    raise
                is_repeated = True
                await self._client.clock.sleep(delay_s)
            else:
                return

    async def _bind_as_assumed(self, pod_bind: PodBind) -> None:
        """Bind a pod in the version that was planned: with the same queue and PodGroup."""
        pod, node, uid, commands = pod_bind
        assumed_meta = self._cache.assumed.bound_metadata(pod)
        version = assumed_meta.resource_version if assumed_meta else ""
        annotations = self._annotations(pod, commands.group)
        await bind(self._client, pod, node, uid=uid, version=version, annotations=annotations)

    async def _nominate(self, pod: Key, node: str, uid: str) -> bool:
        known = self._cache.cluster.pods.get(pod)
        if known is None or known.metadata.uid != uid:
            return False
        if not self._cache.assumed.is_nominated(pod):
            return True  # the pod has this nomination already
        fields = {
            "metadata": {"uid": known.metadata.uid},
            "status": {"nominatedNodeName": node},
        }
        try:
            await self._writes.send(lambda: self._client.merge_patch(PODS, pod, fields, _NOMINATE))
        except (NotFound, Conflict):
            self._cache.assumed.forget_nomination(pod)
            self._replanner.replan(pod.namespace)
            return False
        except ApiError as error:
            self._log.warning("pod not nominated", pod=str(pod), node=node, error=str(error))
            self._back_off(pod)
            return False
        self._cache.assumed.await_seen(pod, self._watch_deadline_s())
        return True

    def _back_off(self, refused: Key, *others: Key) -> None:
        """Keep the assumptions for a while; then they are forgotten, and planned anew."""
        known = self._backoffs.get(refused)
        backoff_s = known.next_s if known else _BACKOFF_S
        self._set_backoff(refused, min(2 * backoff_s, _MAX_BACKOFF_S))
        for key in (refused, *others):
            self._cache.assumed.await_seen(key, self._client.clock.monotonic_s() + backoff_s)

    def _set_backoff(self, refused: Key, next_s: float) -> None:
        """Note the next backoff, and drop those of objects that nothing is planned for any more."""
        now_s = self._client.clock.monotonic_s()
        self._backoffs.pop(refused, None)
        self._backoffs[refused] = _Backoff(next_s, now_s)
        for key in [*itertools.takewhile(lambda it: self._is_old(it, now_s), self._backoffs)]:
            del self._backoffs[key]

    def _is_old(self, key: Key, now_s: float) -> bool:
        return self._backoffs[key].refused_s < now_s - _BACKOFF_KEPT_S

    def _watch_deadline_s(self) -> float:
        return self._client.clock.monotonic_s() + _WATCH_DEADLINE_S


def _only_reserves(commands: PodGroupCommands) -> bool:
    return not (commands.binds or commands.nominations or commands.evictions)
