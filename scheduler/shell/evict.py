"""Takes units off their nodes: a TrainJob is suspended for a moment, pods of others are deleted.

Who makes room for somebody goes only if all do that he needs: whether they can is tried before the
first one goes. What fails after that is an accident: the others are on their way, and the next plan
sees what is there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.breaker import noted
from scheduler.shell.carry import FIELD_MANAGER
from scheduler.shell.suspend import Suspender
from scheduler.state.departures import Departure
from scheduler.state.live import Live
from scheduler.state.orders import UnitOrders
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_GPUS, LAST_EVICTION, POD_GROUP
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import PODGROUPS, PODS, TRAINJOBS
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError, Conflict, NotFound
from trainer_kai.kube.events import Recorder, Regarding
from trainer_kai.kube.request import Deletion, Write
from trainer_kai.metrics import Metrics

__all__ = ["Evictor", "trainjob_of"]

_MARK: Final = Write(field_manager="trainer-kai-eviction", subresource="status", force=True)
_NOTE: Final = Write(field_manager=FIELD_MANAGER)
_STALE: Final = "stalegangeviction"
_WIDTH: Final = 16  # writes under way
_TOLD: Final = 3  # who leaves, by name


class Evictor:
    """By group, or by what a plan decided."""

    def __init__(
        self,
        client: Client,
        live: Live,
        suspender: Suspender,
        recorder: Recorder,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._live = live
        self._suspender = suspender
        self._recorder = recorder
        self._log = log
        self._refused: dict[Key, str] = {}
        self._room = asyncio.Semaphore(_WIDTH)

    async def evict(self, key: Key, why: str) -> bool:
        """Take a unit off its nodes; say whether it is on its way."""
        group = self._live.cluster.pod_groups.get(key)
        if group is None:
            return True
        pods = tuple(self._live.members.placed(key))
        one = self._live.leaving.known(Departure((key,), pods, _STALE, None, why, 0))
        (reason,) = await self._all([self._clear(one)])
        if reason is None:
            (reason,) = await self._all([self._begin(one)])
        if reason is None:
            self._refused.pop(key, None)
        elif self._refused.get(key) != reason:
            self._refused = {it: of for it, of in self._refused.items() if self._is_there(it)}
            self._refused[key] = reason
            self._tell(key, "NotEvicted", f"{why}, but {reason}")
            self._log.warning("unit not evicted", group=str(key), why=why, reason=reason)
        return reason is None

    async def depart(
        self, orders: UnitOrders, stands: Callable[[], bool]
    ) -> tuple[tuple[Departure, ...], bool]:
        """Have all of them go for whom it was decided, or nobody, unless one fails that was tried.

        They go if whoever gets their room still *stands*. Return who does not, and whether they are
        to be asked again only after a while: of TrainJobs that is known here.
        """
        departures = orders.departures
        refused = await self._all(self._clear(one) for one in departures)
        if not any(refused):
            if not stands():
                return departures, False
            refused = await self._all(self._begin(one) for one in departures)
            left = tuple([it for it, why in zip(departures, refused, strict=True) if why])
        else:
            left = departures
        rests = [self._let_alone(*it) for it in zip(departures, refused, strict=True)]
        if not left:
            self._tell_claimant(orders.group, departures)
        return left, any(rests)

    def _let_alone(self, one: Departure, reason: str | None) -> bool:
        """Take note that somebody cannot go; say whether only waiting helps."""
        if reason is None:
            return False
        self._metrics.evictions.labels(one.action, "refused").inc()
        self._log.warning("not evicted", whom=one.title, reason=reason)
        if one.owner is None or not one.owner.uid:
            return True
        self._suspender.let_alone(one.owner, reason)
        return False

    def _tell_claimant(self, claimant: Key, departures: tuple[Departure, ...]) -> None:
        names = ", ".join(one.title for one in departures[:_TOLD])
        more = f" and {len(departures) - _TOLD} more" if len(departures) > _TOLD else ""
        self._tell(claimant, "Evicting", f"It gets the room of {names}{more}")

    async def _all(self, asked: Iterable[Awaitable[str | None]]) -> list[str | None]:
        async def one(it: Awaitable[str | None]) -> str | None:
            try:
                return await it
            except ApiError as error:
                return str(error)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(it)) for it in asked]
        return [task.result() for task in tasks]

    async def _clear(self, one: Departure) -> str | None:
        """Return why somebody cannot go; it is tried dry."""
        if one.owner is None:
            return await self._delete(one, is_dry=True)
        async with self._room:
            return await self._suspender.refusal_of(one.owner)

    async def _begin(self, one: Departure) -> str | None:
        """Have somebody go; return why that is not possible."""
        if one.owner is None:
            reason = await self._delete(one)
        else:
            async with self._room:
                reason = await self._suspender.suspend(one, one.owner)
        if reason is not None:
            return reason
        for group in one.groups:  # GPUs are known of all of them together
            await self._note(group, one.gpus if group == one.groups[0] else 0)
            self._tell(group, "Evict", one.why)
        self._metrics.evictions.labels(one.action, "evicted").inc()
        self._log.info("evicted", whom=one.title, why=one.why, pods=len(one.pods))
        return None

    async def _delete(self, one: Departure, *, is_dry: bool = False) -> str | None:
        """Delete pods, each as the one that was meant; return why that is not possible."""
        named = zip(one.pods, one.uids, strict=True)
        refused = await self._all(self._go(key, uid, one.why, is_dry=is_dry) for key, uid in named)
        return next(filter(None, refused), None)

    async def _go(self, key: Key, uid: str, why: str, *, is_dry: bool) -> str | None:
        pod = self._live.cluster.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            return None  # it is gone
        fields = {"metadata": {"uid": uid}, "status": {"conditions": [self._target(why)]}}
        try:
            async with self._room:
                if not is_dry:
                    await self._client.apply(PODS, key, fields, _MARK)
                await self._client.delete(PODS, key, Deletion(uid=uid, dry_run=is_dry))
        except (NotFound, Conflict):
            return None
        if not is_dry and not pod.metadata.annotations.get(POD_GROUP):
            meta = Regarding(PODS.api_version, PODS.kind, key.namespace, key.name, uid)
            self._recorder.post(meta, "Evict", why)
        return None

    async def _note(self, key: Key, gpus: int) -> None:
        """Write on a group that it was evicted: its patience counts from then, and the rate."""
        group = self._live.cluster.pod_groups.get(key)
        if group is None:
            return
        lost = noted(group.metadata, gpus, self._client.clock.now().timestamp())
        notes = {LAST_EVICTION: self._now(), EVICTED_GPUS: lost}
        fields = {"uid": group.metadata.uid, "annotations": notes}
        try:
            async with self._room:
                await self._client.merge(PODGROUPS, key, {"metadata": fields}, _NOTE)
        except ApiError as error:  # it goes all the same
            self._log.warning("eviction not noted", group=str(key), error=str(error))

    def _is_there(self, group: Key) -> bool:
        return group in self._live.cluster.pod_groups

    def _target(self, why: str) -> dict[str, Any]:
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": why,
            "lastTransitionTime": self._now(),
        }

    def _now(self) -> str:
        return self._client.clock.now().isoformat(timespec="seconds")

    def _tell(self, key: Key, reason: str, message: str) -> None:
        """Tell a group, and who claims room by its TrainJob as well."""
        group = self._live.cluster.pod_groups.get(key)
        if group is None:
            return
        meta = group.metadata
        regarding = Regarding(
            PODGROUPS.api_version, PODGROUPS.kind, meta.namespace, meta.name, meta.uid
        )
        self._recorder.post(regarding, reason, message)
        job = trainjob_of(self._live, group) if reason != "Evict" else None
        if job is not None:
            self._recorder.post(job, reason, message)


def trainjob_of(live: Live, group: PodGroup) -> Regarding | None:
    """Return the TrainJob that a group is of."""
    owner = live.leaving.owner_of(group.metadata.key)
    if owner is None or not owner.uid:
        return None
    (namespace, name), uid = owner
    return Regarding(TRAINJOBS.api_version, TRAINJOBS.kind, namespace, name, uid)
