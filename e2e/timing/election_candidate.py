"""A candidate process that writes its name into an object while it leads.

Run by `test_leader_election.py`, with KUBECONFIG NAMESPACE IDENTITY [FREEZE_AT]. It stops itself
right before its write of that number, which is the worst moment there is. No write of it is ever
cancelled, so that nothing but the fence can keep it from writing too late.
"""

import asyncio
import math
import os
import signal
import sys
from typing import Any, Final

from e2e.cluster.patience import slowdown
from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.resources import Resource
from trainer_kai.kube.auth.kubeconfig import find_rest_config
from trainer_kai.kube.client import Client, process_client
from trainer_kai.kube.leader.lease import Fence
from trainer_kai.kube.process.context import leader_elector
from trainer_kai.kube.process.runner import Runner, main
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.log import configure, logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import LeaderSettings

WRITES: Final = "acts"
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, PartialObject)  # noqa: FBT003
LEASE: Final = "elect"
# The test and its candidates go by one measurement: the first of them leaves it to the others.
_SLOWER: Final = max(1.0, slowdown() / 2)  # half of a lease is reserve
TIMING: Final = LeaderSettings(
    name=LEASE,
    lease_s=math.ceil(3 * _SLOWER),
    renew_deadline_s=2 * _SLOWER,
    retry_s=0.3 * _SLOWER,
    write_s=0.8 * _SLOWER,
)
_PAUSE_S: Final = 0.05


class Candidate:
    """What this process does."""

    def __init__(self, kubeconfig: str, namespace: str, identity: str, freeze_at: int = -1) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._identity = identity
        self._freeze_at = freeze_at
        self._clock = SystemClock()
        self._writes = 0

    async def program(self, run: Runner) -> None:
        """Stand for election until told to stop."""
        access = await find_rest_config({}, self._clock, kubeconfig=self._kubeconfig)
        client = await run.enter("client", process_client(access, self._clock))
        settings = TIMING.model_copy(update={"namespace": self._namespace})
        candidate = leader_elector(
            client, settings, Metrics(), logger(__name__), name=self._identity
        )

        run.start("lead", lambda: candidate.lead(lambda fence: self._act(client, fence)))

    async def _act(self, client: Client, fence: Fence) -> None:
        """Write over and over, whatever is there: only the fence keeps two from writing."""
        fenced = client.with_fence(fence)
        while True:
            await asyncio.shield(self._write(fenced))
            await self._clock.sleep(_PAUSE_S)

    async def _write(self, client: Client) -> None:
        self._writes += 1
        data: dict[str, Any] = {"by": self._identity, "act": f"{self._writes}"}
        if self._writes == self._freeze_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        await client.merge_patch(CONFIG_MAPS, Key(self._namespace, WRITES), {"data": data})


if __name__ == "__main__":
    configure(SystemClock())
    where, namespace_of, identity, *when = sys.argv[1:]
    sys.exit(main(Candidate(where, namespace_of, identity, *map(int, when)).program))
