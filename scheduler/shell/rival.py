"""Another scheduler that goes by our name: two would place the same pods, each by its own books.

A KAI that is alive renews a Lease that is called as its pods call their scheduler. Whether it still
does is judged as any candidate would: by our own clock, since the Lease last changed.
"""

from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import LEASES
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError, Forbidden
from trainer_kai.kube.request import Selection, Target

__all__ = ["Rival"]

_LOOK_S: Final = 3.0
_USUAL_S: Final = 15  # of a Lease that does not say how long it is good for


class _Seen(NamedTuple):
    renewed: str
    since_s: float


class Rival:
    """Looks for one."""

    def __init__(
        self, client: Client, scheduler_name: str, own: Key, log: FilteringBoundLogger
    ) -> None:
        self._client = client
        self._name = scheduler_name
        self._own = own
        self._log = log
        self._seen: dict[Key, _Seen] = {}
        self.told = ""
        """Who is there, for whoever asks why we do nothing; "" for nobody."""

    async def until_gone(self) -> None:
        """Return when nobody else goes by our name."""
        while await self._look():
            await self._client.clock.sleep(_LOOK_S)

    async def until_there(self) -> None:
        """Return when somebody else does."""
        while not await self._look():
            await self._client.clock.sleep(_LOOK_S)

    async def _look(self) -> bool:
        selected = Selection(fields=f"metadata.name={self._name}")
        try:
            leases = await self._client.list(Target(LEASES, selection=selected))
        except Forbidden:
            self._log.warning("not known whether another scheduler is there", name=self._name)
            return False
        except ApiError as error:
            self._log.warning("leases not read", error=str(error))
            return bool(self.told)
        there = next((it for it in leases if self._is_alive(it)), None)
        told = f"{there.metadata.key} is held by {there.spec.holder_identity}" if there else ""
        if told != self.told:
            self._log.warning("another scheduler of our name", told=told or "is gone")
        self.told = told
        return bool(told)

    def _is_alive(self, lease: Lease) -> bool:
        key, spec = lease.metadata.key, lease.spec
        if key == self._own or not spec.holder_identity:
            return False
        now_s = self._client.clock.monotonic_s()
        seen = self._seen.get(key)
        if seen is None or seen.renewed != spec.renew_time:
            self._seen[key] = _Seen(spec.renew_time, now_s)
            return True
        return now_s - seen.since_s < (spec.lease_duration_seconds or _USUAL_S)
