"""Reports on waiting PodGroups that our scheduler is paused: another one has its name.

1. A PodGroup is reported once in each pause: a condition, and an Event on it and on its TrainJob.
   What the other scheduler writes afterwards stays: the two never take turns at a PodGroup.
2. The condition has a type of its own. KAI leaves a PodGroup alone that carries
   `UnschedulableOnNodePool` and has `schedulingBackoff` 1, so that type would stop KAI as well.
3. It is written only over the version that was seen, so nothing of the other scheduler is lost.
4. At most 50 PodGroups a second are written. `StatusReporter` removes the condition when we
   schedule again.
"""

from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.report.status import PAUSED, STATUS, condition_fields, post_event
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.queueing_hints import is_pending
from trainer_kai.api.meta import Key
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import PODGROUPS
from trainer_kai.kube.client import Client
from trainer_kai.kube.events.recorder import EventRecorder
from trainer_kai.kube.rest.errors import ApiError, Conflict, NotFound, is_retryable

_POLL_S: Final = 3.0
_WRITE_INTERVAL_S: Final = 0.02


class PauseReporter:
    """Reports one pause."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        recorder: EventRecorder,
        why: str,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._cache = cache
        self._recorder = recorder
        self._why = why
        self._log = log
        self._reported: set[str] = set()  # uids

    async def run(self) -> None:
        """Report each PodGroup that waits, or comes to wait, as long as the pause lasts."""
        clock = self._client.clock
        while True:
            for key in [*self._cache.cluster.pod_groups]:
                group = self._cache.cluster.pod_groups.get(key)
                is_due = group is not None and self._is_unreported(group)
                if group is not None and is_due:
                    await self._report(group)
                await clock.sleep(_WRITE_INTERVAL_S if is_due else 0)  # lets other tasks run
            await clock.sleep(_POLL_S)

    def _is_unreported(self, group: PodGroup) -> bool:
        if group.metadata.uid in self._reported:
            return False
        if any(it.type == PAUSED for it in group.status.scheduling_conditions):
            return False  # an earlier leader reported it in this pause
        return any(map(self._waits, self._cache.members.pods_of(group.metadata.key)))

    def _waits(self, key: Key) -> bool:
        pod = self._cache.cluster.pods.get(key)
        return pod is not None and is_pending(pod) and self._cache.members.is_ours(pod)

    async def _report(self, group: PodGroup) -> None:
        meta = group.metadata
        conditions = [*map(condition_fields, group.status.scheduling_conditions), self._condition()]
        version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": version, "status": {"schedulingConditions": conditions}}
        try:
            await self._client.merge_patch(PODGROUPS, meta.key, body, STATUS)
        except (NotFound, Conflict):
            return  # the PodGroup is gone, or its new version is checked again
        except ApiError as error:
            self._log.warning("pause not reported", podgroup=str(meta.key), error=str(error))
            if is_retryable(error):
                return
        self._reported.add(meta.uid)
        post_event(self._cache, self._recorder, group, (PAUSED, PAUSED), self._why)

    def _condition(self) -> dict[str, Any]:
        return {
            "type": PAUSED,
            "nodePool": "default",
            "status": "True",
            "reason": PAUSED,
            "message": self._why,
            "reasons": [{"reason": PAUSED, "message": self._why}],
            "transitionID": "0",
            "lastTransitionTime": self._client.clock.now().isoformat(timespec="seconds"),
        }
