"""Takes a unit off its nodes, whole: a TrainJob is suspended for a moment, others are deleted."""

from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.suspend import Suspender
from scheduler.state.live import Live
from trainer_kai.api.meta import Key
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import JOBSETS, PODGROUPS, PODS, TRAINJOBS
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError, Conflict, NotFound
from trainer_kai.kube.events import Recorder, Regarding
from trainer_kai.kube.request import Deletion, Write

__all__ = ["Evictor", "trainjob_of"]

_MARK: Final = Write(field_manager="trainer-kai-eviction", subresource="status", force=True)


class Evictor:
    """By group; it returns whether the unit is on its way."""

    def __init__(
        self,
        client: Client,
        live: Live,
        suspender: Suspender,
        recorder: Recorder,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._live = live
        self._suspender = suspender
        self._recorder = recorder
        self._log = log
        self._refused: dict[Key, str] = {}

    async def evict(self, key: Key, why: str) -> bool:
        """Take a unit off its nodes."""
        group = self._live.cluster.pod_groups.get(key)
        if group is None:
            return True
        job = trainjob_of(self._live, group)
        try:
            reason = await self._of_trainjob(job, why) if job else await self._pods(key, why)
        except ApiError as error:
            reason = str(error)
        if reason is None:
            self._refused.pop(key, None)
            self._tell(group, "Evict", why)
            self._log.info("unit evicted", group=str(key), why=why)
        elif self._refused.get(key) != reason:
            self._refused[key] = reason
            self._tell(group, "NotEvicted", f"{why}, but {reason}")
            self._log.warning("unit not evicted", group=str(key), why=why, reason=reason)
        return reason is None

    async def _of_trainjob(self, job: Regarding, why: str) -> str | None:
        return await self._suspender.evict(Key(job.namespace, job.name), job.uid, why)

    async def _pods(self, group: Key, why: str) -> str | None:
        """Delete all pods of a unit that have a place, each as the one that it is."""
        for key in self._live.placed(group):
            pod = self._live.cluster.pods[key]
            uid = pod.metadata.uid
            fields = {"metadata": {"uid": uid}, "status": {"conditions": [self._target(why)]}}
            try:
                await self._client.apply(PODS, key, fields, _MARK)
                await self._client.delete(PODS, key, Deletion(uid=uid))
            except (NotFound, Conflict):
                continue  # it is gone
        return None

    def _target(self, why: str) -> dict[str, Any]:
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": why,
            "lastTransitionTime": self._client.clock.now().isoformat(timespec="seconds"),
        }

    def _tell(self, group: PodGroup, reason: str, message: str) -> None:
        meta = group.metadata
        regarding = Regarding(
            PODGROUPS.api_version, PODGROUPS.kind, meta.namespace, meta.name, meta.uid
        )
        self._recorder.post(regarding, reason, message)


def trainjob_of(live: Live, group: PodGroup) -> Regarding | None:
    """Return the TrainJob that a group is of."""
    namespace = group.metadata.namespace
    owners = (owner for owner in group.metadata.owner_references if owner.kind == JOBSETS.kind)
    for owner in owners:
        jobset = live.cluster.jobsets.get(Key(namespace, owner.name))
        above = jobset.metadata.controller if jobset else None
        if above is not None and above.kind == TRAINJOBS.kind:
            return Regarding(above.api_version, above.kind, namespace, above.name, above.uid)
    return None
