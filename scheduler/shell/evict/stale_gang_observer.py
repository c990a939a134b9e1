"""Observes stale gangs: PodGroups that started and lack pods. The plans decide to evict them.

The grace period counts only while the missing pods exist and find no node: until they exist, their
controller is about to create them, and the PodGroup waits for that. When a PodGroup became stale is
written on it, as KAI does; the grace counts from what this process itself has observed.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.core.model.rejections import ClusterEvent
from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.shell.event_objects import event_object
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.podgroups.missing_pods import Shortage, staleness_grace_s
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import STALE_SINCE
from trainer_kai.api.resources import PODGROUPS
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventRecorder
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError

_TICK_S: Final = 1.0
_TICK_BUDGET_S: Final = 0.05  # of each tick: a PodGroup may have thousands of pods
_SETTLED_S: Final = 3.0  # a PodGroup that is being bound lacks pods for a moment
_CLOCK_STEP_S: Final = 1  # rounding moves a time by as much
_WRITE: Final = WriteOptions(field_manager=FIELD_MANAGER)


class StaleGangController:
    """Checks the PodGroups that started and lack pods, once a second."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        wake: Callable[[ClusterEvent], None],
        recorder: EventRecorder,
        log: FilteringBoundLogger,
    ) -> None:
        """*wake* has the next plan learn when a grace ends."""
        self._client = client
        self._cache = cache
        self._wake = wake
        self._recorder = recorder
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
        if shortage.all_exist:
            self._note_grace(key, now_s - self._grace_since_s.setdefault(key, now_s))
        else:
            self._end_grace(key)
        if now_s - self._short_since_s.setdefault(key, now_s) >= _SETTLED_S:
            await self._annotate_stale(group, shortage)

    def _note_grace(self, key: Key, passed_s: float) -> None:
        """Note since when a grace counts, and again after a step of the wall clock."""
        since = math.ceil(self._client.clock.now().timestamp() - passed_s)
        noted = self._cache.cluster.stale_since.get(key)
        if noted is None or abs(noted - since) > _CLOCK_STEP_S:
            self._wake(self._cache.incomplete.set_stale_since(key, since))

    def _end_grace(self, key: Key) -> None:
        self._grace_since_s.pop(key, None)
        self._cache.incomplete.set_stale_since(key, None)

    async def _recovered(self, key: Key, group: PodGroup | None) -> None:
        self._end_grace(key)
        self._short_since_s.pop(key, None)
        self._cache.incomplete.mark_complete(key)
        if group is not None and STALE_SINCE in group.metadata.annotations:
            await self._annotate(group, None)

    async def _annotate_stale(self, group: PodGroup, shortage: Shortage) -> None:
        if STALE_SINCE in group.metadata.annotations:
            return
        await self._annotate(group, self._client.clock.now().isoformat(timespec="seconds"))
        grace_s = staleness_grace_s(group, self._cache.staleness_grace_s)
        then = f" If the others find no node for {grace_s:g} s, the PodGroup is evicted"
        message = f"{shortage}.{then if grace_s >= 0 else ''}"
        self._recorder.post(event_object(PODGROUPS, group.metadata), "StaleJob", message)

    async def _annotate(self, group: PodGroup, text: str | None) -> None:
        fields = {"metadata": {"uid": group.metadata.uid, "annotations": {STALE_SINCE: text}}}
        try:
            await self._client.merge_patch(PODGROUPS, group.metadata.key, fields, _WRITE)
        except ApiError as error:
            key = group.metadata.key
            self._log.warning("stale podgroup not annotated", group=str(key), error=str(error))
