"""What every process builds alike, out of its settings: what it begins with, a Lease, Events.

Whoever wants to build them otherwise uses their classes; nothing here has a state of its own.
"""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.clock import SystemClock
from trainer_kai.config import read_or_exit
from trainer_kai.health import Health, HealthServer
from trainer_kai.kube.bearer import Callers
from trainer_kai.kube.claim import Claim
from trainer_kai.kube.client import Client
from trainer_kai.kube.connect import process_client
from trainer_kai.kube.events import EventApi, EventSettings, Outcome, Recorder
from trainer_kai.kube.leader import Elector
from trainer_kai.kube.lease import LeaseTiming
from trainer_kai.kube.lease_api import LeaseApi
from trainer_kai.kube.locate import find_access
from trainer_kai.kube.observed import Observed
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.runner import main as run_until_told
from trainer_kai.log import configure, logger
from trainer_kai.metrics import Metrics
from trainer_kai.settings import Leader, Settings

__all__ = ["Basis", "elector", "recorder", "run_process", "timing"]

S = TypeVar("S", bound=Settings)


class Basis(NamedTuple):
    """What every process begins with; its health server answers already, and says not ready."""

    client: Client
    clock: SystemClock
    metrics: Metrics
    health: Health
    seen: Observed
    log: FilteringBoundLogger


def run_process(
    name: str,
    model: type[S],
    program: Callable[[Runner, Basis, S], Awaitable[None]],
    argv: Sequence[str] | None = None,
) -> int:
    """Be a process: read the settings, begin, run *program* until told to stop; the exit code."""
    settings = read_or_exit(model, sys.argv[1:] if argv is None else argv, os.environ)
    clock = SystemClock()
    configure(clock, layout=settings.log.format, level=settings.log.level)

    async def begin(run: Runner) -> None:
        metrics, health = Metrics(), Health()
        seen = Observed(metrics)
        await run.enter("health", HealthServer(health, metrics, clock, settings.health))
        named = {"kubeconfig": settings.kubeconfig, "context": settings.context}
        access = await find_access(os.environ, clock, **named)
        client = await run.enter("client", process_client(access, clock, seen))
        health.guard = Callers(client).denial
        await program(run, Basis(client, clock, metrics, health, seen, logger(name)), settings)
        health.started()

    return run_until_told(begin)


def elector(
    client: Client, settings: Leader, metrics: Metrics, log: FilteringBoundLogger, *, name: str = ""
) -> Elector:
    """Return a candidate for the Lease of the settings; its `lead` is the service.

    *name* is what people know this process by, otherwise the name of its pod or machine. Something
    random follows it: a container that is started again has the name of the one before it.
    """
    key = Key(settings.namespace or client.access.namespace, settings.name)
    leads = metrics.leader.labels(key.name)
    identity = f"{name or socket.gethostname()}_{uuid4()}"
    claim = Claim(LeaseApi(client, key), identity, timing(settings), client.clock)
    return Elector(claim, log.bind(lease=str(key)), tell=lambda it: leads.set(int(it)))


def timing(settings: Leader) -> LeaseTiming:
    """Return how long everything takes."""
    return LeaseTiming(
        settings.lease_s, settings.renew_deadline_s, settings.retry_s, settings.write_s
    )


def recorder(
    client: Client, component: str, metrics: Metrics, log: FilteringBoundLogger
) -> Recorder:
    """Return what says things about objects in the name of a component; `run` is the service."""

    def count(outcome: Outcome) -> None:
        metrics.events.labels(outcome).inc()

    whose = EventSettings(component, socket.gethostname())
    return Recorder(EventApi(client), whose, client.clock, log, count=count)
