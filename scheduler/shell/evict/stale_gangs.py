"""Stale gangs: PodGroups that began and lack pods are repaired within a grace period, or evicted.

The grace period counts only while the missing pods exist and find no node: until they exist, their
controller is about to create them, and the PodGroup waits for that. When a PodGroup became stale is
written on it, as KAI does; the decision uses the time that this process itself has observed.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.binder import FIELD_MANAGER
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.podgroups.missing_pods import Shortage, staleness_grace_s
from trainer_kai.api.meta import Key
from trainer_kai.api.names import STALE_SINCE
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import PODGROUPS
from trainer_kai.kube.client import Client
from trainer_kai.kube.events.recorder import EventObject, EventRecorder
from trainer_kai.kube.rest.errors import ApiError
from trainer_kai.kube.rest.request import WriteOptions

__all__ = ["StaleGangController"]

_TICK_S: Final = 1.0
_TICK_BUDGET_S: Final = 0.05  # of each tick: a PodGroup may have thousands of pods
_SETTLED_S: Final = 3.0  # a PodGroup that is being bound lacks pods for a moment
_WRITE: Final = WriteOptions(field_manager=FIELD_MANAGER)


class StaleGangController:
    """Checks the PodGroups that began and lack pods, once a second."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        evict: Callable[[Key, str], Awaitable[bool]],
        recorder: EventRecorder,
        grace_s: float,
        log: FilteringBoundLogger,
    ) -> None:
        """*evict* evicts a PodGroup, and says whether that was possible."""
        self._client = client
        self._cache = cache
        self._evict = evict
        self._recorder = recorder
        self._grace_s = grace_s
        self._log = log
        self._short_since_s: dict[Key, float] = {}
        self._grace_since_s: dict[Key, float] = {}

    async def run(self) -> None:
        """Check as long as this process leads; the rest waits for a later tick."""
        clock, due = self._client.clock, deque[Key]()
        while True:
            await clock.sleep(_TICK_S)
            due = due or deque(self._cache.incomplete.incomplete_groups())
            until_s = clock.monotonic_s() + _TICK_BUDGET_S
            while due and clock.monotonic_s() <= until_s:
                await self._reconcile(due.popleft())

    async def _reconcile(self, key: Key) -> None:
        group = self._cache.cluster.pod_groups.get(key)
        shortage = self._cache.incomplete.shortage(key)
        if group is None or shortage is None:
            await self._recovered(key, group)
            return
        now_s = self._client.clock.monotonic_s()
        if now_s - self._short_since_s.setdefault(key, now_s) >= _SETTLED_S:
            await self._annotate_stale(group, shortage)
        if not shortage.all_exist:
            self._grace_since_s.pop(key, None)
            return
        grace_s = staleness_grace_s(group, self._grace_s)
        if now_s - self._grace_since_s.setdefault(key, now_s) >= grace_s >= 0:
            why = f"{shortage} for more than {grace_s:g} s, and there is no room for the others"
            if await self._evict(key, why):
                self._forget(key)
            else:
                self._grace_since_s[key] = now_s  # an Event says why; tried again after the grace

    async def _recovered(self, key: Key, group: PodGroup | None) -> None:
        self._forget(key)
        self._cache.incomplete.mark_complete(key)
        if group is not None and STALE_SINCE in group.metadata.annotations:
            await self._annotate(group, None)

    def _forget(self, key: Key) -> None:
        self._short_since_s.pop(key, None)
        self._grace_since_s.pop(key, None)

    async def _annotate_stale(self, group: PodGroup, shortage: Shortage) -> None:
        if STALE_SINCE in group.metadata.annotations:
            return
        await self._annotate(group, self._client.clock.now().isoformat(timespec="seconds"))
        meta = group.metadata
        regarding = EventObject(
            PODGROUPS.api_version, PODGROUPS.kind, meta.namespace, meta.name, meta.uid
        )
        self._recorder.post(regarding, "StaleJob", f"It has begun, and {shortage}")

    async def _annotate(self, group: PodGroup, text: str | None) -> None:
        fields = {"metadata": {"uid": group.metadata.uid, "annotations": {STALE_SINCE: text}}}
        try:
            await self._client.merge_patch(PODGROUPS, group.metadata.key, fields, _WRITE)
        except ApiError as error:
            self._log.warning("not noted", group=str(group.metadata.key), error=str(error))
