"""Our processes on a chain, started as in a pod: each under its own ServiceAccount.

The manifests have to be installed first, for the ServiceAccount and its rights are theirs:

    await install(cluster, port=webhook_port(cluster))
    async with running(cluster, WEBHOOK, tmp_path) as webhook: …

Leaving the `async with` ends the process as an operator would. What ends by itself fails the test.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import aiohttp

from e2e.cluster.cluster import Cluster
from e2e.cluster.process import Process
from e2e.cluster.programs import Program
from tests.support.tree import ROOT

__all__ = [
    "ALL",
    "NAMESPACE",
    "PODGROUPER",
    "SCHEDULER",
    "WEBHOOK",
    "ProcessSpec",
    "ProductProcess",
    "running",
    "webhook_port",
]

NAMESPACE: Final = "trainer-kai"
_LOOPBACK: Final = "127.0.0.1"
_READY_S: Final = 30.0
_GRACE_S: Final = 20.0
# A process that is started again listens where it did before.
_PORTS: Final[WeakKeyDictionary[Cluster, dict[str, int]]] = WeakKeyDictionary()
_LEADING: Final = {  # quicker than usual, for a Lease that is missing is waited for
    "TRAINER_KAI_LEADER_LEASE_S": "3",
    "TRAINER_KAI_LEADER_RENEW_DEADLINE_S": "2",
    "TRAINER_KAI_LEADER_RETRY_S": "0.3",
    "TRAINER_KAI_LEADER_WRITE_S": "0.8",
    "TRAINER_KAI_LEADER_NAMESPACE": NAMESPACE,
}


class ProcessSpec(NamedTuple):
    """One of our processes: its module, and its ServiceAccount."""

    name: str
    module: str
    account: str
    environment: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()


WEBHOOK: Final = ProcessSpec(
    "webhook",
    "webhook",
    "trainer-kai-webhook",
    {
        "TRAINER_KAI_SERVER_ADDRESS": _LOOPBACK,
        "TRAINER_KAI_SERVER_DRAIN_S": "0",
        "TRAINER_KAI_SERVER_RUNTIMES_S": "1",
        "TRAINER_KAI_TLS_NAMESPACE": NAMESPACE,
    },
)
PODGROUPER: Final = ProcessSpec(
    "podgrouper", "trainer_kai.podgrouper", "trainer-kai-podgrouper", _LEADING
)
SCHEDULER: Final = ProcessSpec("scheduler", "scheduler", "trainer-kai-scheduler", _LEADING)
ALL: Final = ProcessSpec(
    "all",
    "trainer_kai.cli",
    SCHEDULER.account,
    {
        f"TRAINER_KAI_{part.name.upper()}_{name.removeprefix('TRAINER_KAI_')}": text
        for part in (WEBHOOK, PODGROUPER, SCHEDULER)
        for name, text in part.environment.items()
    },
    ("run", "all"),
)
# Whoever is the webhook, and how it is told its port.
_LISTENING: Final = {
    "webhook": "TRAINER_KAI_SERVER_PORT",
    "all": "TRAINER_KAI_WEBHOOK_SERVER_PORT",
}


class ProductProcess:
    """A process of ours that can be started again after it was stopped or killed."""

    def __init__(self, process: Process, ready_url: str) -> None:
        self.process = process
        self.ready_url: Final = ready_url

    async def start(self) -> None:
        """Run it and wait until it is ready."""
        self.process.start()
        await self.ready()

    async def stop(self) -> None:
        """End it as an operator would."""
        await self.process.stop(_GRACE_S)

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        await self.process.kill()

    async def ready(self) -> None:
        """Wait until it says that it is ready; fail with its words when it does not."""
        output = "nothing"
        deadline = time.monotonic() + _READY_S
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < deadline:
                self.process.check()
                try:
                    async with session.get(self.ready_url) as response:
                        output = await response.text()
                        if response.status == 200:
                            return
                except aiohttp.ClientError as error:
                    output = str(error)
                await asyncio.sleep(0.03)
        last = "\n".join(self.process.tail(15))
        raise TimeoutError(f"{self.process.name} did not get ready: {output}\n{last}")

    def lines(self) -> list[str]:
        """Return what it logged."""
        return self.process.tail(10_000)


@asynccontextmanager
async def running(
    cluster: Cluster,
    part: ProcessSpec,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    server: str = "",
) -> AsyncIterator[ProductProcess]:
    """Run a process until the end of the block; *settings* are environment variables.

    Its log lies in *folder*. It reaches the cluster, or the proxy that *server* names, with a token
    of its ServiceAccount.
    """
    kubeconfig = await cluster.service_account_kubeconfig(NAMESPACE, part.account, server)
    health = _port(cluster, f"{part.name}-health")
    environment = {
        "PYTHONPATH": str(ROOT),
        "TRAINER_KAI_HEALTH_ADDRESS": _LOOPBACK,
        "TRAINER_KAI_HEALTH_PORT": f"{health}",
        "TRAINER_KAI_HEALTH_SNAPSHOT": "authorized",  # as in `local`, for callers who may get it
        **part.environment,
        **({_LISTENING[part.name]: f"{webhook_port(cluster)}"} if part.name in _LISTENING else {}),
        **(settings or {}),
    }
    argv = [sys.executable, "-m", part.module, *part.arguments, "--kubeconfig", str(kubeconfig)]
    process = Process(Program(part.name, argv, environment), folder / f"{part.name}.log")
    ours = ProductProcess(process, f"http://{_LOOPBACK}:{health}/readyz")
    try:
        await ours.start()
        yield ours
        process.check()
        await ours.stop()
    finally:
        await process.kill()


def webhook_port(cluster: Cluster) -> int:
    """Return where the webhook of a chain listens, whether or not it does already."""
    return _port(cluster, "webhook")


def _port(cluster: Cluster, use: str) -> int:
    ports = _PORTS.setdefault(cluster, {})
    if use not in ports:
        ports[use] = cluster.free_port()
    return ports[use]
