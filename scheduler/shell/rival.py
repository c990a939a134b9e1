"""Another scheduler of our scheduler name: two would place the same pods, each by its own books.

It shows as a Lease that is held and renewed, or as a Deployment that is ready, in the namespaces
that a site has named (`trainer_kai.policy.rivals`).

1. Whether a Lease is renewed is judged by our own clock, from when we last saw it change. It keeps
   us away for the time that it claims, and for a minute at most.
2. One that is there at our first look counts as renewed then.
3. What may not be read keeps nothing away; the log says so once.
"""

from typing import Final, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import DEPLOYMENTS, LEASES
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError, Forbidden, NotFound
from trainer_kai.policy.rivals import REMEDY, Places, good_for_s, held_by, ready_as

__all__ = ["Rival"]

T = TypeVar("T", bound=Object)

_LOOK_S: Final = 3.0


class _Seen(NamedTuple):
    renewed: str
    since_s: float


class Rival:
    """Looks for one."""

    def __init__(self, client: Client, places: Places, log: FilteringBoundLogger) -> None:
        self._client = client
        self._places = places
        self._log = log
        self._seen: dict[Key, _Seen] = {}
        self._unread: set[str] = set()  # what may not be read, and was logged
        self.told = ""
        """Why we are paused, and what to do; "" while we are not."""

    async def until_gone(self) -> None:
        """Return when there is no other scheduler of our name."""
        while await self.is_there():
            await self._client.clock.sleep(_LOOK_S)

    async def until_there(self) -> None:
        """Return when there is one."""
        while not await self.is_there():
            await self._client.clock.sleep(_LOOK_S)

    async def is_there(self) -> bool:
        """Look whether there is one."""
        try:
            found = await self._held() or await self._ready()
        except ApiError as error:
            self._log.warning("other schedulers not looked for", error=str(error))
            return bool(self.told)
        told = f"scheduler paused: {found}; {REMEDY}" if found else ""
        if told != self.told:
            self._log.warning("another scheduler of our name", told=told or "is gone")
        self.told = told
        return bool(told)

    async def _held(self) -> str:
        for key in self._places.leases:
            lease = await self._read(LEASES, key)
            if lease is not None and self._is_renewed(lease):
                return held_by(key, lease.spec.holder_identity)
        return ""

    async def _ready(self) -> str:
        for key in self._places.deployments:
            found = await self._read(DEPLOYMENTS, key)
            if found is not None and found.status.ready_replicas > 0:
                return ready_as(key, found.status.ready_replicas)
        return ""

    async def _read(self, resource: Resource[T], key: Key) -> T | None:
        """Return an object; None where there is none, or it may not be read."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None
        except Forbidden:
            what = f"{resource} {key}"
            if what not in self._unread:
                self._unread.add(what)
                self._log.warning("not known whether another scheduler is there", unread=what)
            return None

    def _is_renewed(self, lease: Lease) -> bool:
        key, spec = lease.metadata.key, lease.spec
        if not spec.holder_identity:
            return False
        now_s = self._client.clock.monotonic_s()
        seen = self._seen.get(key)
        if seen is None or seen.renewed != spec.renew_time:
            self._seen[key] = _Seen(spec.renew_time, now_s)
            return True
        return now_s - seen.since_s < good_for_s(spec.lease_duration_seconds)
