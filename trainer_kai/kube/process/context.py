"""What all processes build from their settings: client, observer, elector, event recorder.

Nothing here has a state of its own, except the observer of the client and its watches; a process
with other needs uses the classes directly.
"""

import os
import resource
import socket
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.kubeconfig import find_rest_config
from trainer_kai.kube.client import Client, process_client
from trainer_kai.kube.events import EventApi, EventOutcome, EventRecorder, EventSettings
from trainer_kai.kube.leader.elector import LeaderElector
from trainer_kai.kube.leader.lease import LeaseApi, LeaseClient, LeaseTiming
from trainer_kai.kube.process.caller_auth import CallerAuthorizer
from trainer_kai.kube.process.runner import Runner, main
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiError, WatchExpired
from trainer_kai.kube.watch import UnreadableObject
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.config import read_or_exit
from trainer_kai.service.health import Health, HealthServer
from trainer_kai.service.log import configure, logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import LeaderSettings, Settings

S = TypeVar("S", bound=Settings)
_LOG: Final = logger(__name__)
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestInfo(NamedTuple):
    verb: str
    resource: str  # pods, pods/binding; "" if the path is not an object


def request_info(request: Request) -> RequestInfo:
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]  # /namespaces/a/pods; but /namespaces/a is a namespace
    if not parts:
        return RequestInfo("get", "")
    resource = "/".join((parts[0], *parts[2:]))
    if request.method != "GET":
        return RequestInfo(_VERBS[request.method], resource)
    if ("watch", "true") in request.query:
        return RequestInfo("watch", resource)
    return RequestInfo("get" if len(parts) > 1 else "list", resource)


class ClientObserver:
    """Counts requests and watch events, and logs problems of watches.

    A failure is logged when it begins, when its reason changes and when it ends: an API server that
    is down for an hour is three lines, not thousands.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._troubles: dict[str, str] = defaultdict(str)

    def answered(self, request: Request, status: int, seconds: float) -> None:
        verb, resource = request_info(request)
        status_class = f"{status // 100}xx" if status else "none"
        self._metrics.api_requests.labels(verb, resource, status_class).inc()
        self._metrics.api_request_seconds.labels(verb, resource).observe(seconds)

    def repeated(self, request: Request) -> None:
        self._metrics.api_retries.labels(*request_info(request)).inc()

    def watch_read(self, resource: str, event: str) -> None:
        """Count an event; the first one after a failure ends the failure."""
        self._metrics.watch_events.labels(resource, event).inc()
        if self._troubles[resource] and event != "PAGE":  # a list may not lead to a watch
            self._troubles[resource] = ""
            _LOG.info("watch continues", resource=resource)

    def watch_ended(self, resource: str, trouble: str, error: ApiError | None) -> None:
        """Count the end of a watch, and log the reason if it is new and not normal."""
        cause = "time" if error is None else type(error).__name__
        self._metrics.watch_restarts.labels(resource, cause).inc()
        if isinstance(error, WatchExpired):  # normal after a restart of an API server
            self._metrics.watch_relists.labels(resource).inc()
            if trouble:
                _LOG.info("watch lists again", resource=resource)
        elif trouble and trouble != self._troubles[resource]:
            _LOG.warning("watch interrupted", resource=resource, trouble=trouble)
        self._troubles[resource] = trouble or self._troubles[resource]

    def watch_skipped(self, resource: str, unreadable: UnreadableObject) -> None:
        self._metrics.watch_unreadable.labels(resource).inc()
        key, error = str(unreadable.metadata.key), str(unreadable.error)
        _LOG.warning("object ignored", resource=resource, key=key, error=error)


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
        context = ProcessContext(client, clock, metrics, health, observer, logger(name))
        await program(run, context, settings)
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
    timing = lease_timing(settings)
    lease_client = LeaseClient(LeaseApi(client, key), identity, timing, client.clock)
    return LeaderElector(
        lease_client, log.bind(lease=str(key)), on_leading=lambda it: leads.set(int(it))
    )


def lease_timing(settings: LeaderSettings) -> LeaseTiming:
    return LeaseTiming(
        settings.lease_s, settings.renew_deadline_s, settings.retry_s, settings.write_s
    )


def event_recorder(
    client: Client, component: str, metrics: Metrics, log: FilteringBoundLogger
) -> EventRecorder:
    def count(outcome: EventOutcome) -> None:
        metrics.events.labels(outcome).inc()

    event_settings = EventSettings(component, socket.gethostname())
    return EventRecorder(EventApi(client), event_settings, client.clock, log, count=count)
