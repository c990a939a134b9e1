"""Gives pods the devices of their claims before they are bound; undone if a pod is not bound.

1. Each claim is allocated, and reserved for the pod, in one write of its status.
2. The pod is bound. A bind that is refused lets go of the claims again.

What a process that dies leaves between the two is released by `ClaimReleaser`.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from scheduler.shell.bind.claims.claim_writes import ClaimRefused, ClaimWrites
from scheduler.shell.bind.steps import BindStep, PodBind
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PodGroupCommands
from trainer_kai.api.meta import Key
from trainer_kai.kube.rest.response import ApiError


class ClaimStep(BindStep):
    name = "claims"

    def __init__(self, cache: ClusterCache, writes: ClaimWrites) -> None:
        self._cache: Final = cache
        self._writes: Final = writes

    async def reserve(self, commands: PodGroupCommands) -> Mapping[Key, ApiError]:
        """Write nothing; refuse devices that another scheduler has given to another claim."""
        owner_of, failures = self._cache.assumed_claims.owner_of, dict[Key, ApiError]()
        for pod, claims in commands.claims.items():
            for claim in claims:
                for it in claim.devices:
                    owner = owner_of.get(it.device, claim.claim)
                    if owner != claim.claim:
                        name, pool = it.device.device, it.device.pool
                        what = f"its device {name} of pool {pool} was given to claim {owner}"
                        failures[pod] = ClaimRefused(claim.claim, what)
        return failures

    def is_done(self, bind: PodBind) -> bool:
        return not bind.commands.claims.get(bind.pod)

    async def prepare(self, bind: PodBind) -> None:
        written: list[Key] = []
        try:
            for one in bind.commands.claims[bind.pod]:
                written.append(one.claim)
                await self._writes.allocate(one, bind.pod, bind.uid, bind.node)
        except ApiError:
            for key in reversed(written):
                with suppress(ApiError):  # what is left is released later
                    await self._writes.release(key, bind.uid)
            raise

    async def undo(self, bind: PodBind) -> None:
        pod = self._cache.assumed.seen_pod(bind.pod)
        if pod is not None and pod.metadata.uid == bind.uid and pod.spec.node_name:
            return  # it is bound after all
        failure: ApiError | None = None
        for one in reversed(bind.commands.claims[bind.pod]):
            try:
                await self._writes.release(one.claim, bind.uid)
            except ApiError as error:
                failure = error
        if failure is not None:
            raise failure
