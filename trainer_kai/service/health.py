"""The HTTP endpoints of a process: liveness, readiness, metrics and the snapshot.

The parts of a process get a `Health`, report what is ready, and register checks. `HealthServer`
serves `/healthz`, `/readyz`, `/metrics` and, if the settings enable it, `/snapshot`. Cluster data
is served to callers with the bearer token of a user that may `get` the path by RBAC; the
address of the caller does not matter. `/healthz` fails if a check fails, and then Kubernetes
restarts the process. So a check is for problems that only a restart solves, and never for an API
server that does not answer. `/readyz` fails as long as a condition does not hold.

Every pod of the cluster may reach the port, so `Connections` limits what one address may hold open.

A check is called on the event loop and must not wait. A blocked event loop fails the probe as well,
because the check is not called then.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Self, TypeAlias

from aiohttp import hdrs, web

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.service.clock import Clock
from trainer_kai.service.connections import ClientConnection, ConnectionLimits, Connections
from trainer_kai.service.metrics import Exposition, Metrics
from trainer_kai.service.settings import HealthSettings

HealthCheck: TypeAlias = Callable[[], str | None]  # returns why it fails, or None
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
SnapshotSource: TypeAlias = Callable[[], AsyncIterator[bytes]]


class Denial(NamedTuple):
    status: int
    message: str


# called with a token and a path
CallerGuard: TypeAlias = Callable[[str, str], Awaitable[Denial | None]]

_STARTED: Final = "started"
_TICK_S: Final = 0.1  # between two measurements of the event loop's lag
_LIMITS: Final = ConnectionLimits(
    connections=128,  # a kubelet and some scrapers need few; each costs a file descriptor
    read_s=5.0,
    request_s=60.0,  # the snapshot of a large cluster over a slow connection
    idle_s=30.0,
    grace_s=2.0,
)


class Health:
    """The process is not ready before `started` is called."""

    def __init__(self) -> None:
        self._missing: dict[str, str | None] = {_STARTED: "not yet"}
        self._needs: dict[str, HealthCheck] = {}
        self._checks: dict[str, HealthCheck] = {}
        self.snapshot_source: SnapshotSource | None = None
        """Returns the content of `/snapshot` piece by piece; None if the process has none."""
        self.guard: CallerGuard | None = None
        """Checks whether the user of a token may read a path; None until it is available."""

    def started(self) -> None:
        """All parts of the process are set up and have added their conditions."""
        self.ready(_STARTED)

    def stopping(self) -> None:
        self.not_ready(_STARTED, "the process is stopping")

    def ready(self, name: str) -> None:
        self._missing[name] = None

    def not_ready(self, name: str, reason: str) -> None:
        """Report that a condition does not hold; the first call adds the condition."""
        self._missing[name] = reason

    def add_condition(self, name: str, not_ready_reason: HealthCheck) -> None:
        """*not_ready_reason* is called at each request."""
        if name in self._needs:
            message = f"condition {name} already exists"
            raise ValueError(message)
        self._needs[name] = not_ready_reason

    def add_check(self, name: str, check: HealthCheck) -> None:
        """Kubernetes restarts the process when the check returns a reason."""
        if name in self._checks:
            message = f"check {name} already exists"
            raise ValueError(message)
        self._checks[name] = check

    def part(self, name: str) -> "Health":
        """Return the Health of one of several programs in this process; *name* is a prefix."""
        return _HealthPart(self, name)

    def readiness(self) -> dict[str, str | None]:
        """All conditions, each with why it does not hold, or None."""
        return self._missing | {
            name: not_ready_reason() or None for name, not_ready_reason in self._needs.items()
        }

    def liveness(self) -> dict[str, str | None]:
        return {name: check() for name, check in self._checks.items()}


class _HealthPart(Health):
    def __init__(self, whole: Health, name: str) -> None:
        self._whole = whole
        self._name = name

    @property
    def snapshot_source(self) -> SnapshotSource | None:
        return self._whole.snapshot_source

    @snapshot_source.setter
    def snapshot_source(self, source: SnapshotSource | None) -> None:
        self._whole.snapshot_source = source

    def started(self) -> None:
        """Do nothing: only the process knows when all programs are set up."""

    def stopping(self) -> None:
        self._whole.stopping()

    def ready(self, name: str) -> None:
        self._whole.ready(f"{self._name}: {name}")

    def not_ready(self, name: str, reason: str) -> None:
        self._whole.not_ready(f"{self._name}: {name}", reason)

    def add_condition(self, name: str, not_ready_reason: HealthCheck) -> None:
        self._whole.add_condition(f"{self._name}: {name}", not_ready_reason)

    def add_check(self, name: str, check: HealthCheck) -> None:
        self._whole.add_check(f"{self._name}: {name}", check)

    def part(self, name: str) -> Health:
        return _HealthPart(self._whole, f"{self._name}: {name}")

    def readiness(self) -> dict[str, str | None]:
        return self._whole.readiness()

    def liveness(self) -> dict[str, str | None]:
        return self._whole.liveness()


_HEALTH: Final = web.AppKey("health", Health)
_EXPOSITION: Final = web.AppKey("exposition", Exposition)
_SETTINGS: Final = web.AppKey("settings", HealthSettings)


class HealthServer:
    """Serves the endpoints, and measures the lag of the event loop.

    It is a context manager: `await run.enter("health", HealthServer(…))`.
    """

    def __init__(
        self, health: Health, metrics: Metrics, clock: Clock, settings: HealthSettings
    ) -> None:
        """Prepare to listen; an empty address is all interfaces, and port 0 any free port."""
        self.port = 0  # the actual port, once started
        self._settings = settings
        self._clock = clock
        self._lag = metrics.loop_lag_seconds
        self._exposition: Final = Exposition(metrics.registry, clock)
        self._runner: Final = web.AppRunner(_application(health, self._exposition, settings))
        self._connections: Connections | None = None
        self._lag_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        address, port = self._settings.address, self._settings.port
        if not (address or port):  # IPv4 and IPv6 would get different ports
            raise ConfigError([FieldError("health.port", "0 needs health.address to be set")])
        await self._runner.setup()
        assert self._runner.server is not None
        self._connections = Connections(self._runner.server, _LIMITS)
        try:
            self.port = self._connections.listen(address, port)
        except OSError as error:
            where = f"{address or 'all interfaces'}, port {port}"
            fault = FieldError("health", f"cannot listen on {where}: {error.strerror or error}")
            raise ConfigError([fault]) from error
        self._lag_task = asyncio.create_task(self._measure_lag(), name="loop lag")

    async def stop(self) -> None:
        """Responses in progress are finished."""
        if self._lag_task is not None:
            self._lag_task.cancel()
            await asyncio.wait([self._lag_task])
        if self._connections is not None:
            await self._connections.close()
        await self._runner.cleanup()
        self._exposition.close()

    async def _measure_lag(self) -> None:
        while True:
            slept_from_s = self._clock.monotonic_s()
            await self._clock.sleep(_TICK_S)
            self._lag.observe(max(0.0, self._clock.monotonic_s() - slept_from_s - _TICK_S))


def _application(
    health: Health, exposition: Exposition, settings: HealthSettings
) -> web.Application:
    app = web.Application(middlewares=[_with_deadline])
    app[_HEALTH] = health
    app[_EXPOSITION] = exposition
    app[_SETTINGS] = settings
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/metrics", _exposition)
    app.router.add_get("/snapshot", _snapshot)
    return app


@web.middleware
async def _with_deadline(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Each step of a connection has its deadline."""
    client = _connection(request)
    client.headers_received()
    try:
        return await handler(request)
    finally:
        client.went_idle()


def _connection(request: web.Request) -> ClientConnection:
    client = request.protocol
    assert isinstance(client, ClientConnection)
    return client


async def _healthz(request: web.Request) -> web.Response:
    return _answer(request, "healthz", request.app[_HEALTH].liveness())


async def _readyz(request: web.Request) -> web.Response:
    return _answer(request, "readyz", request.app[_HEALTH].readiness())


def _answer(request: web.Request, name: str, reasons: Mapping[str, str | None]) -> web.Response:
    """Return "ok"; list all conditions, as Kubernetes does, if one fails or with `verbose`."""
    failed = any(reason is not None for reason in reasons.values())
    if not failed and "verbose" not in request.query:
        return web.Response(text="ok")
    lines = [
        f"[+]{it} ok" if reason is None else f"[-]{it}: {reason}" for it, reason in reasons.items()
    ]
    lines.append(f"{name} check {'failed' if failed else 'passed'}")
    return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)


async def _exposition(request: web.Request) -> web.Response:
    denied = await _denied(request) if request.app[_SETTINGS].metrics == "authorized" else None
    if denied is not None:
        return denied
    text = await request.app[_EXPOSITION].text(request.headers.get(hdrs.ACCEPT, ""))
    headers = {hdrs.CONTENT_TYPE: text.content_type, hdrs.VARY: hdrs.ACCEPT_ENCODING}
    if "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=text.compressed, headers=headers)
    return web.Response(body=text.plain, headers=headers)


async def _snapshot(request: web.Request) -> web.StreamResponse:
    source = request.app[_HEALTH].snapshot_source
    if source is None or request.app[_SETTINGS].snapshot == "off":
        remedy = "only the scheduler serves it, with the setting health.snapshot=authorized"
        return web.Response(text=f"This process serves no snapshot: {remedy}.\n", status=404)
    denied = await _denied(request)
    if denied is not None:
        return denied
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/json"})
    await response.prepare(request)
    async for piece in source():
        _connection(request).answering()  # of a large cluster it takes a while
        await response.write(piece)
    await response.write_eof()
    return response


async def _denied(request: web.Request) -> web.Response | None:
    guard = request.app[_HEALTH].guard
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    denial: Denial | None
    if scheme.lower() != "bearer" or not token.strip():
        denial = Denial(401, "The header `Authorization: Bearer TOKEN` is required.")
    elif guard is None:
        denial = Denial(503, "The process is starting. Try again in a second.")
    else:
        denial = await guard(token.strip(), request.path)
    if denial is None:
        return None
    headers = {hdrs.WWW_AUTHENTICATE: "Bearer"} if denial.status == 401 else {}
    return web.Response(text=f"{denial.message}\n", status=denial.status, headers=headers)
