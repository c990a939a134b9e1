"""Releases claims that are reserved for a pod without a node, and for no bind that is under way.

A process that dies between the two writes of a bind leaves such claims, and so does a bind that has
no answer. The pod is marked first, in the version that was seen: then a bind that may still be
under way is refused, as it names that version.
"""

import asyncio
from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.claims.claim_writes import ClaimWrites
from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.state.cache.cache import ClusterCache
from trainer_kai.api.device_kinds import ResourceClaim
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CLAIMS_RELEASED
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError, Conflict, NotFound

_EVERY_S: Final = 5.0  # a bind with its claims takes less; one that is under way is assumed
_MARK: Final = WriteOptions(field_manager=FIELD_MANAGER, subresource="status")


class ClaimReleaser:
    def __init__(
        self, client: Client, cache: ClusterCache, writes: ClaimWrites, log: FilteringBoundLogger
    ) -> None:
        self._client: Final = client
        self._cache: Final = cache
        self._writes: Final = writes
        self._log: Final = log
        self._waiting: Final[dict[tuple[Key, str], int]] = {}  # rounds in which it was seen

    async def run(self) -> None:
        while True:
            await self._client.clock.sleep(_EVERY_S)
            await self.release_all()

    async def release_all(self) -> None:
        """Release what was left behind, and was in the last round as well."""
        found = {
            (key, pod.metadata.uid): pod
            for key, claim in self._cache.cluster.resource_claims.items()
            if claim.status.reserved_for
            for pod in self._pods_without_node(claim)
        }
        for known in [it for it in self._waiting if it not in found]:
            del self._waiting[known]
        due = [it for it in found if self._waiting.get(it, 0)]
        for it in found:
            self._waiting[it] = self._waiting.get(it, 0) + 1
        await asyncio.gather(*(self._release(key, found[key, uid]) for key, uid in due))

    def _pods_without_node(self, claim: ResourceClaim) -> list[Pod]:
        """Return pods of ours for which a claim is reserved and that are on no node."""
        found = []
        for it in claim.status.reserved_for:
            key = Key(claim.metadata.namespace, it.name)
            pod = self._cache.cluster.pods.get(key)
            if (
                pod is not None
                and pod.metadata.uid == it.uid
                and not pod.spec.node_name
                and pod.status.phase not in TERMINAL_PHASES
                and pod.spec.scheduler_name == self._cache.scheduler_name
                and self._cache.assumed.bound_metadata(key) is None
            ):
                found.append(pod)
        return found

    async def _release(self, claim: Key, pod: Pod) -> None:
        meta = pod.metadata
        own = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        now = self._client.clock.now().isoformat()
        fields = {"metadata": {**own, "annotations": {CLAIMS_RELEASED: now}}}
        try:
            await self._client.merge_patch(PODS, meta.key, fields, _MARK)
            await self._writes.release(claim, meta.uid)
        except (NotFound, Conflict):
            return  # it has changed: a later round sees how
        except ApiError as error:
            self._log.warning("claim not released", claim=str(claim), error=str(error))
            return
        self._log.info("claim released", claim=str(claim), pod=str(meta.key))
