"""Limits how long evicted pods may take to terminate: a user may have asked for 68 years.

Resources that are used over quota can be reclaimed only if pods terminate in time. A pod with a
grace period longer than the configuration allows is deleted once more, with the longest grace
period that it may have, which the API server counts from the first deletion: at once if it was
evicted, by itself or with its TrainJob, because other pods wait for its node; else when it has had
that long.
"""

from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import epoch_s
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.errors import ApiError, NotFound
from trainer_kai.kube.rest.request import DeleteOptions

_TICK_S: Final = 3.0


class TerminationGraceLimiter:
    """Checks the terminating pods every few seconds."""

    def __init__(
        self, client: Client, cache: ClusterCache, max_grace_s: float, log: FilteringBoundLogger
    ) -> None:
        self._client = client
        self._cache = cache
        # With 0 the pod would be removed before the kubelet has stopped it.
        self._max_grace_s = max(int(max_grace_s), 1)
        self._log = log

    async def run(self) -> None:
        """Check as long as this process leads."""
        while True:
            await self._client.clock.sleep(_TICK_S)
            for meta in self._pods_over_limit():
                await self._shorten(meta)

    def _pods_over_limit(self) -> list[Meta]:
        """Return the pods with a grace period that is to be shortened."""
        terminating = (pod.metadata for pod in self._cache.terminating_pods)
        over_limit = [
            it for it in terminating if it.deletion_grace_period_seconds > self._max_grace_s
        ]
        if not over_limit:
            return []
        evicted, now_s = self._evicted_pods(), self._client.clock.now().timestamp()
        return [it for it in over_limit if it.key in evicted or self._deadline_s(it) <= now_s]

    def _evicted_pods(self) -> set[Key]:
        cache = self._cache
        deleted = (
            it
            for evictions in cache.in_flight_evictions.current().values()
            for one in evictions
            for it in one.pods
        )
        suspended = (
            it
            for one in cache.suspended_trainjobs.evicted_groups()
            for it in cache.members.placed_pods(one.metadata.key)
        )
        return {*deleted, *suspended}

    def _deadline_s(self, meta: Meta) -> float:
        """Return when a pod must have terminated."""
        deletion_s = epoch_s(meta.deletion_timestamp) or 0
        return deletion_s - meta.deletion_grace_period_seconds + self._max_grace_s

    async def _shorten(self, meta: Meta) -> None:
        deletion = DeleteOptions(uid=meta.uid, grace_s=self._max_grace_s)
        try:
            await self._client.delete(PODS, meta.key, deletion)
        except NotFound:
            return  # the pod has terminated
        except ApiError as error:
            self._log.warning("pod grace not shortened", pod=str(meta.key), error=str(error))
            return
        self._log.info("pod grace shortened", pod=str(meta.key), to_s=self._max_grace_s)
