"""A process that stands for election and, while it leads, writes its name into an object.

Run by `test_leader.py`: `elect.py KUBECONFIG NAMESPACE IDENTITY [FREEZE_AT]`. It stops itself right
before its write of that number, which is the worst moment there is. No write of it is ever
cancelled, so that nothing but the fence can keep it from writing too late.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.resource import Resource
from trainer_kai.clock import SystemClock
from trainer_kai.kube.access import Access
from trainer_kai.kube.claim import Claim
from trainer_kai.kube.client import Client, Unobserved
from trainer_kai.kube.leader import Elector
from trainer_kai.kube.lease import Fence, LeaseTiming
from trainer_kai.kube.lease_api import LeaseApi
from trainer_kai.kube.locate import find_access
from trainer_kai.kube.pooled import PooledTransport
from trainer_kai.kube.runner import Runner, main
from trainer_kai.kube.transport import Transport
from trainer_kai.log import configure, logger

__all__ = ["ACTS", "LEASE", "TIMING"]

ACTS: Final = "acts"
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, PartialObject)  # noqa: FBT003
LEASE: Final = "elect"
TIMING: Final = LeaseTiming(lease_s=3, renew_deadline_s=2, retry_s=0.3, write_s=0.8)
_PAUSE_S: Final = 0.05


class Candidate:
    """What this process does."""

    def __init__(self, kubeconfig: str, namespace: str, identity: str, freeze_at: int = -1) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._identity = identity
        self._freeze_at = freeze_at
        self._clock = SystemClock()
        self._acts = 0

    async def program(self, run: Runner) -> None:
        """Stand for election until told to stop."""
        access = await find_access({}, self._clock, kubeconfig=self._kubeconfig)
        transport = await run.enter("connections", _open(access))
        client = Client(access, transport, self._clock, Unobserved())
        store = LeaseApi(client, Key(self._namespace, LEASE))
        claim = Claim(store, self._identity, TIMING, self._clock)
        elector = Elector(claim, logger(__name__))

        run.start("lead", lambda: elector.lead(lambda fence: self._act(client, fence)))

    async def _act(self, client: Client, fence: Fence) -> None:
        """Write over and over, whatever is there: only the fence keeps two from writing."""
        fenced = client.behind(fence)
        while True:
            await asyncio.shield(self._write(fenced))
            await self._clock.sleep(_PAUSE_S)

    async def _write(self, client: Client) -> None:
        self._acts += 1
        data: dict[str, Any] = {"by": self._identity, "act": f"{self._acts}"}
        if self._acts == self._freeze_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        await client.merge(CONFIG_MAPS, Key(self._namespace, ACTS), {"data": data})


@asynccontextmanager
async def _open(access: Access) -> AsyncIterator[Transport]:
    transport = PooledTransport(access)
    try:
        yield transport
    finally:
        await transport.close()


if __name__ == "__main__":
    configure(SystemClock())
    where, whose, who, *when = sys.argv[1:]
    sys.exit(main(Candidate(where, whose, who, *map(int, when)).program))
