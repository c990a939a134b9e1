"""Checks whether namespaces may use the queues that their pods name, and caches the answers.

Any user of a namespace can write its labels, PodGroups and pods, so the SubjectAccessReview asks
whether all service accounts of the namespace may: verb `use` on the queue, in that namespace.

1. A review is sent as soon as a snapshot holds a PodGroup of a namespace and a queue that is not
   annotated as open, at once again when that queue is closed, and again every 60 s, or every 10 s
   where PodGroups wait because of a refusal. No plan waits for an answer: a PodGroup that needs one
   waits for the next plan.
2. While no review can be made the last answer holds.
3. The answers about closed queues go to the cluster cache, which starts no PodGroup without a
   grant.
4. A queue without the annotation that is open is used all the same. When the first PodGroup of a
   namespace without a grant starts in it, one Warning explains how to close the queue.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.core.model.rejections import ClusterEvent
from scheduler.shell.cycle import CommandExecutor
from scheduler.shell.event_objects import event_object, workload_object
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PodGroupCommands
from scheduler.state.inputs import Permit
from scheduler.state.queues.access import AccessQuestion
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS, QUEUE, RUN_AI
from trainer_kai.api.resources import PODGROUPS, PODS, QUEUES
from trainer_kai.kube.client import AccessRequest, Client, RetryPolicy, review_access
from trainer_kai.kube.events import EventObject, EventRecorder
from trainer_kai.kube.rest.response import ApiError, Unauthorized
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings
from trainer_kai.policy.queueing.queue_access import close_command, service_accounts_group

_VALID_S: Final = 60.0  # of an answer
_REFUSED_S: Final = 10.0  # of a refusal for which PodGroups wait
_PATIENCE: Final = RetryPolicy(timeout_s=5.0, total_s=5.0)
_SETTINGS: Final = WorkQueueSettings("permissions", workers=8, retry_first_s=0.5, retry_cap_s=15.0)


class NotifyingExecutor:
    def __init__(self, binder: CommandExecutor, notify: Callable[[PodGroupCommands], None]) -> None:
        self._binder = binder
        self._notify = notify

    async def execute(self, commands: PodGroupCommands) -> bool:
        self._notify(commands)
        return await self._binder.execute(commands)


class QueueAccessReviews:
    """Reviews access while this process leads; earlier answers stay until asked anew."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        wake: Callable[[ClusterEvent, str], None],
        recorder: EventRecorder,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client.with_retry_policy(_PATIENCE)
        self._cache = cache
        self._wake = wake
        self._recorder = recorder
        self._log = log
        self._uses: AbstractSet[AccessQuestion] = frozenset()
        self._requested: set[AccessQuestion] = set()  # reviews, sent or queued
        self._grants: dict[Key, bool] = {}
        self._first_started: dict[Key, EventObject] = {}  # of pairs without an answer yet
        self._warned: set[Key] = set()
        self._is_failing = False
        self._queue: WorkQueue[Key] = WorkQueue(self._review, _SETTINGS, client.clock, log)

    async def run(self) -> None:
        """Review as long as this process leads; begin with the pairs known from before."""
        self.set_uses(
            {AccessQuestion(pair, is_closed=True) for pair in self._cache.cluster.permits}
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._forget_deleted())

    def set_uses(self, uses: AbstractSet[AccessQuestion]) -> None:
        """Take note of which namespaces use which queues; this must not wait."""
        self._uses = uses
        for use in uses - self._requested:
            self._requested.discard(use._replace(is_closed=not use.is_closed))
            self._requested.add(use)
            self._queue.add(use.namespace_and_queue)

    def record_start(self, commands: PodGroupCommands) -> None:
        """Take note of a start: the first of a namespace in an unannotated queue gets a Warning."""
        started = self._pair_and_object(commands) if commands.binds else None
        if started is None:
            return
        pair, regarding = started
        if AccessQuestion(pair, is_closed=False) not in self._uses or pair in self._warned:
            return
        is_granted = self._grants.get(pair)
        if is_granted is None:
            self._first_started.setdefault(pair, regarding)
        elif not is_granted:
            self._warn(pair, regarding)

    def _pair_and_object(self, commands: PodGroupCommands) -> tuple[Key, EventObject] | None:
        cluster, namespace = self._cache.cluster, commands.group.namespace
        group = cluster.pod_groups.get(commands.group)
        if group is not None:
            workload = workload_object(self._cache, group)
            regarding = workload or event_object(PODGROUPS, group.metadata)
            return Key(namespace, group.spec.queue), regarding
        pod = cluster.pods.get(commands.binds[0].pod)
        if pod is None:
            return None
        queue = pod.metadata.labels.get(QUEUE) or self._cache.default_queue
        return Key(namespace, queue), event_object(PODS, pod.metadata)

    def _warn(self, pair: Key, regarding: EventObject) -> None:
        self._warned.add(pair)
        message = (
            f"Queue {pair.name} admits pods of every namespace, including {pair.namespace}: the "
            f"queue and its parents do not have the annotation {ACCESS}. To close the queue to "
            f"namespaces that do not use it now: {close_command(pair.name)}"
        )
        self._recorder.post(regarding, "QueueOpen", message, "Warning")

    async def _review(self, pair: Key) -> Requeue | None:
        uses = [AccessQuestion(pair, is_closed) for is_closed in (True, False)]
        is_closed = uses[0] in self._uses
        if not (is_closed or uses[1] in self._uses):
            self._requested.difference_update(uses)
            self._grants.pop(pair, None)
            self._first_started.pop(pair, None)
            self._set_permit(pair, None)
            return None
        groups = (service_accounts_group(pair.namespace),)
        question = AccessRequest(
            "use", RUN_AI, QUEUES.plural, pair.name, pair.namespace, groups=groups
        )
        try:
            answer = await review_access(self._client, question)
        except Unauthorized:
            raise
        except ApiError as error:
            self._failed(pair, error, is_closed=is_closed)
            return Requeue.SOON
        self._is_failing = False
        self._answered(pair, is_granted=answer.allowed, is_closed=is_closed)
        return Requeue.after(_REFUSED_S if is_closed and not answer.allowed else _VALID_S)

    def _failed(self, pair: Key, error: ApiError, *, is_closed: bool) -> None:
        if not self._is_failing:
            self._log.warning(
                "access review failed", namespace=pair.namespace, queue=pair.name, error=str(error)
            )
        self._is_failing = True
        if is_closed and self._cache.cluster.permits.get(pair) is None:
            self._set_permit(pair, Permit.UNANSWERED)

    def _answered(self, pair: Key, *, is_granted: bool, is_closed: bool) -> None:
        self._grants[pair] = is_granted
        regarding = self._first_started.pop(pair, None)
        if not (regarding is None or is_granted or is_closed):
            self._warn(pair, regarding)
        permit = Permit.GRANTED if is_granted else Permit.REFUSED
        self._set_permit(pair, permit if is_closed else None)

    def _set_permit(self, pair: Key, permit: Permit | None) -> None:
        self._wake(self._cache.set_permit(pair, permit), pair.namespace)

    async def _forget_deleted(self) -> None:
        while True:
            await self._client.clock.sleep(_VALID_S)
            cluster = self._cache.cluster
            self._warned = {
                pair
                for pair in self._warned
                if pair.name in cluster.queues and pair.namespace in cluster.namespaces
            }
