"""Bounds how long evicted pods may take to end: a user may have asked for 68 years.

Eviction asks as everyone does: a pod is deleted, or its TrainJob is suspended, and the grace is the
pod's own. Where that is longer than the site allows, the pod is deleted once more with the longest
grace that it may have, counted from the first time. What a user deletes keeps its own grace: nobody
was promised its room.
"""

from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.state.live import Live
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError, NotFound
from trainer_kai.kube.request import Deletion

__all__ = ["TerminationBound"]

_TICK_S: Final = 3.0


class TerminationBound:
    """Looks at the pods that were evicted, every now and then."""

    def __init__(
        self, client: Client, live: Live, most_s: float, log: FilteringBoundLogger
    ) -> None:
        self._client = client
        self._live = live
        self._most_s = max(int(most_s), 1)  # with 0 it would be gone before its node knows
        self._log = log

    async def run(self) -> None:
        """Look, as long as we lead."""
        while True:
            await self._client.clock.sleep(_TICK_S)
            for key, uid in self._overdue():
                await self._shorten(key, uid)

    def _overdue(self) -> list[tuple[Key, str]]:
        """Return the evicted pods whose grace is longer than a pod may have, and their uids."""
        live, pods = self._live, self._live.cluster.pods
        deleted = (it for them in live.leaving.now().values() for one in them for it in one.pods)
        held = (
            it for one in live.suspended.groups() for it in live.members.placed(one.metadata.key)
        )
        return [
            (key, pods[key].metadata.uid)
            for key in dict.fromkeys((*deleted, *held))
            if key in pods
            and pods[key].metadata.deletion_timestamp
            and pods[key].metadata.deletion_grace_period_seconds > self._most_s
        ]

    async def _shorten(self, key: Key, uid: str) -> None:
        try:
            await self._client.delete(PODS, key, Deletion(uid=uid, grace_s=self._most_s))
        except NotFound:
            return  # it is gone
        except ApiError as error:
            self._log.warning("grace not shortened", pod=str(key), error=str(error))
            return
        self._log.info("grace shortened", pod=str(key), to_s=self._most_s)
