"""What a process says about itself over HTTP: alive, ready, and its metrics.

`Health` is passed to the parts of a process: they say what is ready, and name what must go on.
`HealthServer` answers `/healthz`, `/readyz`, `/metrics` and, where the settings ask for it,
`/snapshot` from it. What is in the cluster is shown to bearers of a token whom RBAC lets `get` the
path; the address of a caller counts for nothing. `/healthz` fails when a check does, and then
Kubernetes restarts the process, so a check is for what only a restart can cure: never for an API
server that is away. `/readyz` fails while any condition is missing.

A check is called on the event loop and must not wait. That it is called at all is the first check.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Self, TypeAlias

from aiohttp import hdrs, web
from prometheus_client.exposition import choose_encoder

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import HealthSettings

__all__ = ["CallerGuard", "Denial", "Health", "HealthCheck", "HealthServer", "SnapshotSource"]

HealthCheck: TypeAlias = Callable[[], str | None]  # why it fails, or None
SnapshotSource: TypeAlias = Callable[[], AsyncIterator[bytes]]


class Denial(NamedTuple):
    """Why a caller is not answered: the status of HTTP, and a sentence."""

    status: int
    message: str


# asked with a token and a path
CallerGuard: TypeAlias = Callable[[str, str], Awaitable[Denial | None]]

_STARTED: Final = "started"
_TICK_S: Final = 0.1  # between two looks at how late the event loop is
_GRACE_S: Final = 2.0  # for answers that are under way when the server stops


class Health:
    """What is ready and what must go on; it begins not ready, until `started` is said."""

    def __init__(self) -> None:
        self._missing: dict[str, str | None] = {_STARTED: "not yet"}
        self._needs: dict[str, HealthCheck] = {}
        self._checks: dict[str, HealthCheck] = {}
        self.snapshot_source: SnapshotSource | None = None
        """What `/snapshot` answers, piece by piece; None where there is no such thing."""
        self.guard: CallerGuard | None = None
        """What says whether a bearer of a token may read a path; None before it can be asked."""

    def started(self) -> None:
        """Say that every part of the process is set up, and so has named its conditions."""
        self.ready(_STARTED)

    def stopping(self) -> None:
        """Be not ready for good: the process is on its way out."""
        self.not_ready(_STARTED, "the process is stopping")

    def ready(self, name: str) -> None:
        """Say that this condition holds."""
        self._missing[name] = None

    def not_ready(self, name: str, reason: str) -> None:
        """Say that this condition is needed and does not hold; the first call makes it known."""
        self._missing[name] = reason

    def add_condition(self, name: str, not_ready_reason: HealthCheck) -> None:
        """Add a condition that is asked at each request: *not_ready_reason* says why it fails."""
        if name in self._needs:
            message = f"there is a condition of the name {name} already"
            raise ValueError(message)
        self._needs[name] = not_ready_reason

    def add_check(self, name: str, check: HealthCheck) -> None:
        """Add a check: the process is restarted when it returns a reason."""
        if name in self._checks:
            message = f"there is a check of the name {name} already"
            raise ValueError(message)
        self._checks[name] = check

    def part(self, name: str) -> "Health":
        """Return the Health of one of several programs in this process: its names begin so."""
        return _HealthPart(self, name)

    def readiness(self) -> dict[str, str | None]:
        """Return each condition and why it does not hold, or None."""
        return self._missing | {
            name: not_ready_reason() or None for name, not_ready_reason in self._needs.items()
        }

    def liveness(self) -> dict[str, str | None]:
        """Ask each check."""
        return {name: check() for name, check in self._checks.items()}


class _HealthPart(Health):
    """The conditions and checks of one program among those of the process."""

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
        """Say nothing: only the process knows when all of them are set up."""

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
_METRICS: Final = web.AppKey("metrics", Metrics)
_SETTINGS: Final = web.AppKey("settings", HealthSettings)


class HealthServer:
    """Answers from start to stop, and measures meanwhile how late the event loop is.

    As a context manager it answers inside: `await run.enter("health", HealthServer(…))`.
    """

    def __init__(
        self, health: Health, metrics: Metrics, clock: Clock, settings: HealthSettings
    ) -> None:
        """Prepare to listen: address "" is every interface, and port 0 any free one, see `port`."""
        self.port = 0  # where it listens, once started
        self._settings = settings
        self._clock = clock
        self._lag = metrics.loop_lag_seconds
        self._runner = web.AppRunner(
            _application(health, metrics, settings), access_log=None, shutdown_timeout=_GRACE_S
        )
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
        """Listen."""
        address, port = self._settings.address, self._settings.port
        if not (address or port):  # IPv4 and IPv6 would get a port each
            raise ConfigError([FieldError("health.port", "0 needs an address to listen on")])
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, address or None, port).start()
        except OSError as error:
            where = f"{address or 'every interface'}, port {port}"
            fault = FieldError("health", f"cannot listen on {where}: {error.strerror or error}")
            raise ConfigError([fault]) from error
        self.port = self._runner.addresses[0][1]
        self._lag_task = asyncio.create_task(self._measure_lag(), name="loop lag")

    async def stop(self) -> None:
        """Finish the answers under way, and end."""
        if self._lag_task is not None:
            self._lag_task.cancel()
            await asyncio.wait([self._lag_task])
        await self._runner.cleanup()

    async def _measure_lag(self) -> None:
        while True:
            slept_from_s = self._clock.monotonic_s()
            await self._clock.sleep(_TICK_S)
            self._lag.observe(max(0.0, self._clock.monotonic_s() - slept_from_s - _TICK_S))


def _application(health: Health, metrics: Metrics, settings: HealthSettings) -> web.Application:
    app = web.Application()
    app[_HEALTH] = health
    app[_METRICS] = metrics
    app[_SETTINGS] = settings
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/metrics", _exposition)
    app.router.add_get("/snapshot", _snapshot)
    return app


async def _healthz(request: web.Request) -> web.Response:
    return _answer(request, "healthz", request.app[_HEALTH].liveness())


async def _readyz(request: web.Request) -> web.Response:
    return _answer(request, "readyz", request.app[_HEALTH].readiness())


def _answer(request: web.Request, name: str, reasons: Mapping[str, str | None]) -> web.Response:
    """Say "ok", or list all conditions as Kubernetes does when one fails or `verbose` asks."""
    failed = any(reason is not None for reason in reasons.values())
    if not failed and "verbose" not in request.query:
        return web.Response(text="ok")
    lines = [
        f"[+]{it} ok" if reason is None else f"[-]{it}: {reason}" for it, reason in reasons.items()
    ]
    lines.append(f"{name} check {'failed' if failed else 'passed'}")
    return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)


async def _exposition(request: web.Request) -> web.Response:
    """Answer in the format that is asked for, compressed if that is understood."""
    denied = await _denied(request) if request.app[_SETTINGS].metrics == "authorized" else None
    if denied is not None:
        return denied
    encode, content_type = choose_encoder(request.headers.get(hdrs.ACCEPT, ""))
    # In a thread: thousands of series take as many hundredths of a second.
    body = await asyncio.to_thread(encode, request.app[_METRICS].registry)
    response = web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})
    response.enable_compression()  # aiohttp does the work in a thread, too
    return response


async def _snapshot(request: web.Request) -> web.StreamResponse:
    """Answer with what is known, where that is asked for, to a user who may have it."""
    source = request.app[_HEALTH].snapshot_source
    if source is None or request.app[_SETTINGS].snapshot == "off":
        right = "the scheduler has one where its setting health.snapshot is authorized"
        return web.Response(text=f"there is no snapshot of this process: {right}\n", status=404)
    denied = await _denied(request)
    if denied is not None:
        return denied
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/json"})
    await response.prepare(request)
    async for piece in source():
        await response.write(piece)
    await response.write_eof()
    return response


async def _denied(request: web.Request) -> web.Response | None:
    """Refuse a caller without the token of a user that may get this path."""
    guard = request.app[_HEALTH].guard
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    denial: Denial | None
    if scheme.lower() != "bearer" or not token.strip():
        denial = Denial(401, "it takes the header `Authorization: Bearer TOKEN`")
    elif guard is None:
        denial = Denial(503, "the process has only begun: ask again in a second")
    else:
        denial = await guard(token.strip(), request.path)
    if denial is None:
        return None
    headers = {hdrs.WWW_AUTHENTICATE: "Bearer"} if denial.status == 401 else {}
    return web.Response(text=f"{denial.message}\n", status=denial.status, headers=headers)
