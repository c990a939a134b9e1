"""Evicts a whole workload for no plan: its node or its GPU failed, and it is to start anew."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PlannedEviction, PodGroupCommands, SuspendableId
from scheduler.state.inputs import epoch_s
from trainer_kai.api.meta import Key
from trainer_kai.api.names import LAST_CHECKPOINT
from trainer_kai.api.pod import Pod
from trainer_kai.service.clock import Clock

ExecuteCommands: TypeAlias = Callable[[PodGroupCommands], Awaitable[bool]]


class WorkloadEvictor:
    def __init__(
        self,
        cache: ClusterCache,
        clock: Clock,
        gpus_of: Callable[[Pod], int],
        execute: ExecuteCommands,
    ) -> None:
        """*gpus_of* returns the thousandths of GPUs of a pod; *execute* is as for a plan."""
        self._cache: Final = cache
        self._clock: Final = clock
        self._gpus_of: Final = gpus_of
        self._execute: Final = execute

    async def evict(self, owner: SuspendableId, group: Key, action: str, reason: str) -> bool:
        """Evict all PodGroups of a workload, if that is not being done; *group* is the cause.

        Return whether that is done, or being done: a failure has been posted.
        """
        cache = self._cache
        id_of = cache.in_flight_evictions.suspendable_id
        groups = [it for it in cache.cluster.pod_groups if id_of(it) == owner]
        groups.sort(key=lambda it: (it != group, it))
        pods = tuple(pod for it in groups for pod in cache.members.placed_pods(it))
        if self._is_evicted(owner, groups, pods):
            return True
        gpus, lost_work = self._lost(owner, pods)
        podgroup = cache.cluster.pod_groups.get(group)
        eviction = PlannedEviction(
            tuple(groups),
            pods,
            action,
            None,
            reason,
            0,
            lost_work,
            queue=podgroup.spec.queue if podgroup else "",
            evicted_gpus=gpus,
        )
        commands = PodGroupCommands(group, None, (), (), None, (eviction,))
        return await self._execute(cache.assume(commands))

    def _is_evicted(self, owner: SuspendableId, groups: Sequence[Key], pods: Sequence[Key]) -> bool:
        """Say whether that is being done or over; of pods that ended by themselves none tells."""
        cache, found = self._cache, self._cache.suspended_workloads.find(owner.key)
        return (
            any(cache.assumed.evicted_uid(pod) for pod in pods)
            or any(cache.in_flight_evictions.is_begun(group) for group in groups)
            or (found is not None and found.is_suspended)
        )

    def _lost(self, owner: SuspendableId, pods: tuple[Key, ...]) -> tuple[int, int]:
        """Return the GPUs that pods have, in thousandths, and their GPU-seconds that are lost."""
        cluster, now_s = self._cache.cluster, self._clock.now().timestamp()
        found = self._cache.suspended_workloads.find(owner.key)
        saved_s = epoch_s(found.metadata.annotations.get(LAST_CHECKPOINT, "")) if found else None
        gpus, lost_work = 0, 0.0
        for pod in (cluster.pods[key] for key in pods if key in cluster.pods):
            since_s = max(epoch_s(pod.metadata.creation_timestamp) or 0, saved_s or 0)
            own = self._gpus_of(pod)
            gpus += own
            lost_work += own * max(now_s - since_s, 0) / 1000
        return gpus, int(lost_work)
