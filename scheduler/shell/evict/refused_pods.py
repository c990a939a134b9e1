"""Writes down which nodes refused pods of a PodGroup, and has a gang that lacks them start anew.

A Job counts a pod that its kubelet refused as a failure, and a few of these fail it for good. Its
`podFailurePolicy` may ignore pods with the condition DisruptionTarget: each refused pod gets it at
once, before the Job controller looks at it, which waits a second. Most Jobs have no such policy. So
the workload of a gang that is below its minimum is suspended as a whole, its Jobs with refused pods
are recreated, and it is resumed: its counters are what they were. A PodGroup that has its minimum
goes on, and so does one of which no controller recreates the Jobs: the pod that replaces the
refused one gets another node. A suspension that fails is tried again a few times, as long as the
gang lacks a refused pod: nothing else would, because a refused pod does not change any more.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.shell.event_objects import post_event
from scheduler.shell.evict.evictor import DISRUPTION_TARGET_WRITE, disruption_target
from scheduler.shell.evict.whole_workload import WorkloadEvictor
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.node_refusals import NodeRefusal
from scheduler.state.podgroups.attributes import owning_workload, suspend_refusal
from scheduler.state.podgroups.missing_pods import is_below_minimum
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import AVOIDED_NODES
from trainer_kai.api.pod import kubelet_refusal
from trainer_kai.api.resources import PODGROUPS, PODS
from trainer_kai.api.text import counted, listed_names
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventRecorder
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError, NotFound
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings

_ACTION: Final = "noderefusedpod"
_QUEUE: Final = WorkQueueSettings(name="refused-pods", workers=4, retry_cap_s=30.0)
_WRITE: Final = WriteOptions(field_manager=FIELD_MANAGER)
_WATCH_DEADLINE_S: Final = 15.0  # until a watch must have shown a write
_MOST_NAMED: Final = 3  # nodes in one Event
_FIRST_RETRY_S: Final = 60.0  # of a suspension that failed; doubled each time, as its back-off is
_MOST_TRIES: Final = 6  # in half an hour


class _Undone(NamedTuple):
    """A suspension that failed."""

    refusal: NodeRefusal
    tries: int
    again_s: float


class RefusedPodController:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        workloads: WorkloadEvictor,
        recorder: EventRecorder,
        log: FilteringBoundLogger,
    ) -> None:
        self._client: Final = client
        self._cache: Final = cache
        self._workloads: Final = workloads
        self._recorder: Final = recorder
        self._log: Final = log
        self._reported: Final[dict[Key, list[NodeRefusal]]] = {}
        self._undone: Final[dict[Key, _Undone]] = {}
        self._queue: Final = WorkQueue[Key](self._reconcile, _QUEUE, client.clock, log)

    async def run(self) -> None:
        self._cache.node_refusals.on_change = self._queue.add
        self._cache.node_refusals.start()
        await self._queue.run()

    async def _reconcile(self, key: Key) -> Requeue | None:
        for pod in self._cache.node_refusals.take_unmarked(key):
            await self._mark(pod)
        group = self._cache.cluster.pod_groups.get(key)
        refusals = self._reported.pop(key, []) + self._cache.node_refusals.take(key)
        if group is None:
            self._undone.pop(key, None)
            return None
        new = [it for it in refusals if not it.is_known]
        if new and not await self._write(group):
            self._reported[key] = refusals
            return Requeue.SOON
        if new:
            self._report(group, new)
        return await self._start_anew(key, [it for it in refusals if it.is_of_pod])

    async def _mark(self, key: Key) -> None:
        """Write on a refused pod that it was disrupted: the policy of its Job may ignore that."""
        pod = self._cache.cluster.pods.get(key)
        if pod is None or not kubelet_refusal(pod):
            return
        message = f"Node {pod.spec.node_name} refused the pod ({kubelet_refusal(pod)})"
        at = self._client.clock.now().isoformat(timespec="seconds")
        condition = disruption_target(message, at, "RefusedByNode")
        fields = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.apply(PODS, key, fields, DISRUPTION_TARGET_WRITE)
        except ApiError as error:  # it is of use only before the Job controller counts the pod
            self._log.info("refused pod not marked", pod=str(key), error=str(error))

    async def _write(self, group: PodGroup) -> bool:
        """Write the annotation as it is assumed, with what came meanwhile."""
        key, text = group.metadata.key, group.metadata.annotations.get(AVOIDED_NODES, "")
        fields = {"uid": group.metadata.uid, "annotations": {AVOIDED_NODES: text or None}}
        try:
            await self._client.merge_patch(PODGROUPS, key, {"metadata": fields}, _WRITE)
        except NotFound:
            return True
        except ApiError as error:
            self._log.warning("avoided nodes not written", group=str(key), error=str(error))
            return False
        until_s = self._client.clock.monotonic_s() + _WATCH_DEADLINE_S
        now = self._cache.cluster.pod_groups.get(key)
        if now is not None and now.metadata.annotations.get(AVOIDED_NODES, "") == text:
            self._cache.assumed.avoid_nodes(key, text, until_s)
        return True

    def _report(self, group: PodGroup, refusals: Sequence[NodeRefusal]) -> None:
        for it in refusals:
            self._log.warning(
                "node avoided",
                group=str(group.metadata.key),
                node=it.node,
                reason=it.record.reason,
                until=it.record.until,
            )
        message = _message(refusals)
        post_event(
            self._cache, self._recorder, group, ("NodeAvoided", "NodeAvoided"), message, "Warning"
        )

    async def _start_anew(self, key: Key, refused: Sequence[NodeRefusal]) -> Requeue | None:
        now_s, before = self._client.clock.monotonic_s(), self._undone.pop(key, None)
        wait_s = before.again_s - now_s if before is not None else 0.0
        if before is not None and wait_s > 0 and not _are_elsewhere(refused, before.refusal):
            self._undone[key] = before
            return Requeue.after(wait_s)
        is_due = bool(refused) or (before is not None and self._has_refused_pod(key))
        cause = next(iter(refused), before.refusal if before is not None else None)
        if cause is None or not is_due or await self._evict_if_below_minimum(key, cause):
            return None
        if before is None or wait_s <= 0:  # one that another node refused meanwhile is no try
            tries = before.tries + 1 if before is not None else 1
            if tries >= _MOST_TRIES:
                self._log.warning("refused pods not replaced", group=str(key), tries=tries)
                return None
            wait_s = _FIRST_RETRY_S * 2 ** (tries - 1)
            before = _Undone(cause, tries, now_s + wait_s)
        self._undone[key] = before
        return Requeue.after(wait_s)

    def _has_refused_pod(self, key: Key) -> bool:
        """Say whether what was refused is there yet: another pod that waits is no reason."""
        cache = self._cache
        pods = (cache.cluster.pods[it] for it in cache.members.pods_of(key))
        return any(kubelet_refusal(it) or cache.failed_starts.is_stuck(it) for it in pods)

    async def _evict_if_below_minimum(self, key: Key, refusal: NodeRefusal) -> bool:
        """Return whether nothing is left to be done: only a failure is tried again."""
        cache = self._cache
        group = cache.cluster.pod_groups.get(key)
        workload = owning_workload(group, cache.cluster.workloads)
        owner = cache.in_flight_evictions.suspendable_id(key)
        if group is None or workload is None or owner is None:
            return True
        found = cache.suspended_workloads.find(owner.key)
        if found is None or not workload.kind.controls_jobs:
            return True
        pods = [cache.cluster.pods[it] for it in cache.members.pods_of(key)]
        if suspend_refusal(found, kueue=cache.kueue):
            return True
        if not is_below_minimum(group, pods, workload, cache.failed_starts.is_stuck):
            return True
        return await self._workloads.evict(owner, key, _ACTION, refusal.cause)


def _are_elsewhere(refusals: Sequence[NodeRefusal], before: NodeRefusal) -> bool:
    """Say whether another node refused a pod, as it may after the gang was complete again."""
    return any(not it.is_known and it.node != before.node for it in refusals)


def _message(refusals: Sequence[NodeRefusal]) -> str:
    found = [
        f"{it.cause}. The PodGroup avoids the node until {it.record.until}"
        + (f" ({it.record.times} refusals so far)" if it.record.times > 1 else "")
        for it in refusals[:_MOST_NAMED]
    ]
    rest = refusals[_MOST_NAMED:]
    if rest:
        names = listed_names([it.node for it in rest], _MOST_NAMED)
        found.append(f"The same with {counted(len(rest), 'node')}: {names}")
    return "; ".join(found)
