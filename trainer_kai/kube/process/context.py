"""What all processes build from their settings: the context, the elector, the event recorder.

Nothing here has a state of its own; a process with other needs uses the classes directly.
"""

import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.find_rest_config import find_rest_config
from trainer_kai.kube.client import Client, process_client
from trainer_kai.kube.events.recorder import EventApi, EventOutcome, EventRecorder, EventSettings
from trainer_kai.kube.leader.elector import LeaderElector
from trainer_kai.kube.leader.lease import LeaseTiming
from trainer_kai.kube.leader.lease_client import LeaseApi, LeaseClient
from trainer_kai.kube.process.caller_auth import CallerAuthorizer
from trainer_kai.kube.process.client_observer import ClientObserver
from trainer_kai.kube.process.runner import Runner, main
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.config import read_or_exit
from trainer_kai.service.health import Health, HealthServer
from trainer_kai.service.log import configure, logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import LeaderSettings, Settings

S = TypeVar("S", bound=Settings)


class ProcessContext(NamedTuple):
    """The common parts of a process; its health server runs already, and reports not ready."""

    client: Client
    clock: SystemClock
    metrics: Metrics
    health: Health
    observer: ClientObserver
    log: FilteringBoundLogger


def run_process(
    name: str,
    model: type[S],
    program: Callable[[Runner, ProcessContext, S], Awaitable[None]],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a process: read the settings, build the context, run *program*; return the exit code."""
    settings = read_or_exit(model, sys.argv[1:] if argv is None else argv, os.environ)
    clock = SystemClock()
    configure(clock, layout=settings.log.format, level=settings.log.level)
    _raise_descriptor_limit()

    async def begin(run: Runner) -> None:
        metrics, health = Metrics(), Health()
        observer = ClientObserver(metrics)
        await run.enter("health", HealthServer(health, metrics, clock, settings.health))
        selected = {"kubeconfig": settings.kubeconfig, "context": settings.context}
        rest_config = await find_rest_config(os.environ, clock, **selected)
        client = await run.enter("client", process_client(rest_config, clock, observer))
        health.guard = CallerAuthorizer(client).denial
        await program(
            run, ProcessContext(client, clock, metrics, health, observer, logger(name)), settings
        )
        health.started()

    return main(begin)


def _raise_descriptor_limit() -> None:
    """Allow this process as many open files as it may allow itself.

    Container runtimes often begin at 1,024, for programs that use select(); nothing here does.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def leader_elector(
    client: Client,
    settings: LeaderSettings,
    metrics: Metrics,
    log: FilteringBoundLogger,
    *,
    name: str = "",
) -> LeaderElector:
    """Return a candidate for the Lease of the settings; its `lead` is the service.

    *name* is the name of this process for users, by default the name of its pod or machine. A
    random part follows: a restarted container has the name of the one before it.
    """
    key = Key(settings.namespace or client.rest_config.namespace, settings.name)
    leads = metrics.leader.labels(key.name)
    identity = f"{name or socket.gethostname()}_{uuid4()}"
    lease_client = LeaseClient(
        LeaseApi(client, key), identity, lease_timing(settings), client.clock
    )
    return LeaderElector(
        lease_client, log.bind(lease=str(key)), on_leading=lambda it: leads.set(int(it))
    )


def lease_timing(settings: LeaderSettings) -> LeaseTiming:
    """Return the durations of leader election."""
    return LeaseTiming(
        settings.lease_s, settings.renew_deadline_s, settings.retry_s, settings.write_s
    )


def event_recorder(
    client: Client, component: str, metrics: Metrics, log: FilteringBoundLogger
) -> EventRecorder:
    """Return the event recorder of a component; its `run` is the service."""

    def count(outcome: EventOutcome) -> None:
        metrics.events.labels(outcome).inc()

    event_settings = EventSettings(component, socket.gethostname())
    return EventRecorder(EventApi(client), event_settings, client.clock, log, count=count)
