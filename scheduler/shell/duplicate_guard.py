"""Detects another scheduler with our scheduler name: both would place the same pods.

It shows as a Lease that is held and renewed, or as a Deployment that is ready, in the configured
namespaces (`trainer_kai.policy.duplicate_scheduler`).

1. Whether a Lease is renewed is judged by our own clock, from when we last saw it change. It pauses
   us for the duration in its spec, and for a minute at most.
2. A Lease that exists at our first check counts as renewed then.
3. An object that we have no permission to read does not pause us; it is logged once.
"""

from typing import Final, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resources import DEPLOYMENTS, LEASES, Resource
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.response import ApiError, Forbidden, NotFound
from trainer_kai.policy.duplicate_scheduler import (
    REMEDY,
    DuplicateSchedulerObjects,
    deployment_ready_message,
    lease_duration_s,
    lease_held_message,
)

T = TypeVar("T", bound=Object)

_POLL_S: Final = 3.0


class _ObservedLease(NamedTuple):
    renew_time: str
    since_s: float


class DuplicateSchedulerGuard:
    """Looks for another scheduler with our name, and says why this one is paused."""

    def __init__(
        self, client: Client, locations: DuplicateSchedulerObjects, log: FilteringBoundLogger
    ) -> None:
        self._client = client
        self._locations = locations
        self._log = log
        self._observed: dict[Key, _ObservedLease] = {}
        self._unreadable: set[str] = set()  # objects without permission to read, already logged
        self.pause_reason = ""
        """Why we are paused, and what to do; "" while we are not."""

    async def wait_until_gone(self) -> None:
        while await self.is_present():
            await self._client.clock.sleep(_POLL_S)

    async def wait_until_present(self) -> None:
        while not await self.is_present():
            await self._client.clock.sleep(_POLL_S)

    async def is_present(self) -> bool:
        try:
            found = await self._held_lease() or await self._ready_deployment()
        except ApiError as error:
            self._log.warning("duplicate scheduler check failed", error=str(error))
            return bool(self.pause_reason)
        pause_reason = f"scheduler paused: {found}; {REMEDY}" if found else ""
        if pause_reason != self.pause_reason:
            if found:
                self._log.warning("duplicate scheduler found", reason=pause_reason)
            else:
                self._log.warning("duplicate scheduler gone")
        self.pause_reason = pause_reason
        return bool(pause_reason)

    async def _held_lease(self) -> str:
        for key in self._locations.leases:
            lease = await self._read(LEASES, key)
            if lease is not None and self._is_renewed(lease):
                return lease_held_message(key, lease.spec.holder_identity)
        return ""

    async def _ready_deployment(self) -> str:
        for key in self._locations.deployments:
            found = await self._read(DEPLOYMENTS, key)
            if found is not None and found.status.ready_replicas > 0:
                return deployment_ready_message(key, found.status.ready_replicas)
        return ""

    async def _read(self, resource: Resource[T], key: Key) -> T | None:
        """Return an object; None if it does not exist, or we have no permission to read it."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None
        except Forbidden:
            what = f"{resource} {key}"
            if what not in self._unreadable:
                self._unreadable.add(what)
                self._log.warning("duplicate scheduler check not permitted", object=what)
            return None

    def _is_renewed(self, lease: Lease) -> bool:
        key, spec = lease.metadata.key, lease.spec
        if not spec.holder_identity:
            return False
        now_s = self._client.clock.monotonic_s()
        observed = self._observed.get(key)
        if observed is None or observed.renew_time != spec.renew_time:
            self._observed[key] = _ObservedLease(spec.renew_time, now_s)
            return True
        return now_s - observed.since_s < lease_duration_s(spec.lease_duration_seconds)
