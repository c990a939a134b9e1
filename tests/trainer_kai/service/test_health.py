"""What a process tells about itself, asked over a real connection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import aiohttp
import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.machine_speed import slowdown_now
from trainer_kai.errors import ConfigError
from trainer_kai.service import health as health_module
from trainer_kai.service.health import Denial, Health, HealthServer
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import HealthSettings as Place

LOOPBACK = "127.0.0.1"
_USUAL: Final = Place()


class HealthHarness:
    def __init__(self, clock: VirtualClock, place: Place) -> None:
        self.health = Health()
        self.metrics = Metrics()
        here = place.model_copy(update={"address": LOOPBACK, "port": 0})
        self.server = HealthServer(self.health, self.metrics, clock, here)

    async def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        url = f"http://{LOOPBACK}:{self.server.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers) as response,
        ):
            return response.status, await response.text()


async def pieces() -> AsyncIterator[bytes]:
    yield b"[1,"
    yield b"2]"


def server(place: Place) -> HealthServer:
    return HealthServer(Health(), Metrics(), VirtualClock(), place)


@asynccontextmanager
async def serving(
    clock: VirtualClock | None = None, place: Place = _USUAL
) -> AsyncIterator[HealthHarness]:
    asked = HealthHarness(clock or VirtualClock(), place)
    await asked.server.start()
    try:
        yield asked
    finally:
        await asked.server.stop()


@pytest.fixture
async def running_server() -> AsyncIterator[HealthHarness]:
    async with serving() as asked:
        yield asked


def ready(health: Health) -> None:
    health.ready("pods listed")
    health.started()


def missing(health: Health) -> None:
    health.ready("pods listed")
    health.not_ready("queues listed", "no answer")
    health.started()


def gone_again(health: Health) -> None:
    ready(health)
    health.not_ready("pods listed", "listing them anew")


def stopping(health: Health) -> None:
    ready(health)
    health.stopping()


def stuck(health: Health) -> None:
    ready(health)
    health.add_check("pods", lambda: None)
    health.add_check("queues", lambda: "stuck")


NOT_STARTED = "[-]started: not yet\nreadyz check failed\n"
Asking: TypeAlias = tuple[Callable[[Health], object], str]

# what happened, what is asked -> the answer
ANSWERS: list[Case[Asking, tuple[int, str]]] = [
    Case("who has not started is not ready", (lambda _: None, "/readyz"), (503, NOT_STARTED)),
    Case("but alive", (lambda _: None, "/healthz"), (200, "ok")),
    Case("with all conditions it is ready", (ready, "/readyz"), (200, "ok")),
    Case(
        "asked for more it lists them",
        (ready, "/readyz?verbose"),
        (200, "[+]started ok\n[+]pods listed ok\nreadyz check passed\n"),
    ),
    Case(
        "with one missing it is not, and says which and why",
        (missing, "/readyz"),
        (
            503,
            "[+]started ok\n[+]pods listed ok\n[-]queues listed: no answer\nreadyz check failed\n",
        ),
    ),
    Case(
        "a condition can be lost",
        (gone_again, "/readyz"),
        (503, "[+]started ok\n[-]pods listed: listing them anew\nreadyz check failed\n"),
    ),
    Case("not ready is still alive", (missing, "/healthz"), (200, "ok")),
    Case(
        "who stops is not ready",
        (stopping, "/readyz"),
        (503, "[-]started: the process is stopping\n[+]pods listed ok\nreadyz check failed\n"),
    ),
    Case(
        "a failing check is told among the others",
        (stuck, "/healthz"),
        (503, "[+]pods ok\n[-]queues: stuck\nhealthz check failed\n"),
    ),
    Case("a failing check alone leaves it ready", (stuck, "/readyz"), (200, "ok")),
    Case("there is nothing else", (ready, "/"), (404, "404: Not Found")),
]


@pytest.mark.parametrize("case", ANSWERS, ids=ids)
async def test_answers(case: Case[Asking, tuple[int, str]], running_server: HealthHarness) -> None:
    """Conditions decide about ready, checks about alive, and neither about the other."""
    happen, path = case.given
    happen(running_server.health)

    assert await running_server.get(path) == case.want


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_head_is_get_without_the_body(running_server: HealthHarness, path: str) -> None:
    """Some probes only look at the status."""
    running_server.health.started()

    assert await running_server.get(path, "HEAD") == (200, "")


async def test_nothing_can_be_sent(running_server: HealthHarness) -> None:
    """A client that reaches the port can only read."""
    assert (await running_server.get("/healthz", "POST"))[0] == 405


def test_a_need_is_asked_for_each_time() -> None:
    """The reason is that of now, not that of when the condition was named."""
    health, reason = Health(), ["no list yet", "", "the API server is away"]
    health.add_condition("pods followed", lambda: reason.pop(0))

    reasons = [health.readiness()["pods followed"] for _ in range(3)]

    assert reasons == ["no list yet", None, "the API server is away"]


def test_a_check_is_not_replaced_by_another_of_its_name() -> None:
    """Two rooms that take the same name would hide each other's trouble."""
    health = Health()
    health.add_check("pods", lambda: None)

    with pytest.raises(ValueError, match="check pods already"):
        health.add_check("pods", lambda: "stuck")


# what is accepted -> the beginning of the type, and whether the text ends as OpenMetrics does
FORMATS: list[Case[str, tuple[str, bool]]] = [
    Case("whoever asks for nothing gets plain text", "", ("text/plain; version=0.0.4", False)),
    Case("a browser gets plain text", "text/html,*/*;q=0.8", ("text/plain; version=0.0.4", False)),
    Case(
        "Prometheus gets OpenMetrics",
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
        ("application/openmetrics-text; version=1.0.0", True),
    ),
]


@pytest.mark.parametrize("case", FORMATS, ids=ids)
async def test_metrics_come_in_the_format_that_is_asked_for(
    case: Case[str, tuple[str, bool]], running_server: HealthHarness
) -> None:
    """The type says what the text is."""
    url = f"http://{LOOPBACK}:{running_server.server.port}/metrics"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Accept": case.given} if case.given else {}) as response,
    ):
        text = await response.text()

    assert response.headers["Content-Type"].startswith(case.want[0])
    assert text.endswith("# EOF\n") == case.want[1]
    assert "trainer_kai_loop_lag_seconds_count" in text


@pytest.mark.parametrize("labels", [1, 200], ids=["few", "many"])
async def test_metrics_are_compressed_when_that_is_understood(
    running_server: HealthHarness, labels: int
) -> None:
    """A scrape every few seconds is mostly repetition."""
    for name in map(str, range(labels)):
        running_server.metrics.work_queue_wait_seconds.labels(name)
    url = f"http://{LOOPBACK}:{running_server.server.port}/metrics"

    lengths = []
    for accepted in ("identity", "gzip"):
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.get(url, headers={"Accept-Encoding": accepted}) as response,
        ):
            assert response.headers.get("Content-Encoding", "identity") == accepted
            lengths.append(len(await response.read()))

    assert lengths[1] < lengths[0] / 3


class LateClock(VirtualClock):
    """A clock of a machine that wakes every sleeper too late."""

    late_s = 0.0

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds + self.late_s)


async def test_the_lag_of_the_event_loop_is_measured() -> None:
    """The first tick comes in time, those that follow come 0.4 s late."""
    clock = LateClock()
    async with serving(clock) as asked:
        await clock.advance(0)  # let it fall asleep for the first time
        clock.late_s = 0.4
        await clock.advance(1.1)

        text = (await asked.get("/metrics"))[1].splitlines()

    lag = dict(line.rsplit(" ", 1) for line in text if line.startswith("trainer_kai_loop_lag"))
    got = {key.removeprefix("trainer_kai_loop_lag_seconds_"): value for key, value in lag.items()}
    assert got['bucket{le="0.001"}'] == "1.0"
    assert got['bucket{le="0.2"}'] == "1.0"
    assert got['bucket{le="0.5"}'] == "3.0"
    assert got["count"] == "3.0"


async def test_a_port_that_is_taken_is_a_fault_of_the_settings(
    running_server: HealthHarness,
) -> None:
    """The message says what could not be listened on."""
    second = server(Place(address=LOOPBACK, port=running_server.server.port))

    with pytest.raises(
        ConfigError, match=rf"127\.0\.0\.1, port {running_server.server.port}: .*in use"
    ):
        await second.start()


async def test_any_free_port_needs_an_address() -> None:
    """On every interface there would be two: one for IPv4 and one for IPv6."""
    with pytest.raises(ConfigError, match=r"health\.port: 0 needs health\.address"):
        await server(Place(port=0)).start()


async def test_nothing_is_left_of_a_server_that_stopped() -> None:
    """No task runs on, and no request is answered."""
    before = asyncio.all_tasks()
    async with serving() as asked:
        assert await asked.get("/healthz") == (200, "ok")

    assert asyncio.all_tasks() == before
    with pytest.raises(aiohttp.ClientConnectionError):
        await asked.get("/healthz")


async def test_a_server_is_a_resource() -> None:
    """It answers inside and nowhere else; one that cannot begin leaves nothing behind."""
    before = asyncio.all_tasks()
    async with server(Place(address=LOOPBACK, port=0)) as inside:
        port = inside.port
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{LOOPBACK}:{port}/healthz") as response:
                assert response.status == 200
            with pytest.raises(ConfigError):
                await server(Place(address=LOOPBACK, port=port)).__aenter__()
    async with server(Place(address=LOOPBACK, port=port)):
        pass  # the port is free again

    assert asyncio.all_tasks() == before


async def test_a_server_that_never_started_can_be_stopped() -> None:
    await server(Place()).stop()


NONE: Final = (
    "This process serves no snapshot: only the scheduler serves it, with the setting "
    "health.snapshot=authorized.\n"
)


@pytest.mark.parametrize("place", [Place(snapshot="authorized"), Place()], ids=["on", "off"])
async def test_there_may_be_no_snapshot(place: Place) -> None:
    """Most processes have none, also where the setting is theirs too."""
    async with serving(place=place) as asked:
        asked.health.snapshot_source = None if place.snapshot == "authorized" else pieces
        assert await asked.get("/snapshot") == (404, NONE)


async def test_a_snapshot_comes_in_pieces() -> None:
    """To a caller that the guard lets through, which is asked with the token and the path."""
    bodies = []

    async def guard(token: str, path: str) -> Denial | None:
        bodies.append((token, path))
        return None

    async with serving(place=Place(snapshot="authorized")) as asked:
        asked.health.snapshot_source = pieces
        asked.health.guard = guard
        assert await asked.get("/snapshot", Authorization="Bearer a.b") == (200, "[1,2]")

    assert bodies == [("a.b", "/snapshot")]


async def test_a_long_snapshot_is_sent_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece has its deadline; with one for all of them the response would be cut off."""
    piece_s = 0.3 * max(1.0, slowdown_now())
    limits = health_module._LIMITS._replace(request_s=3 * piece_s)
    monkeypatch.setattr(health_module, "_LIMITS", limits)

    async def slow_pieces() -> AsyncIterator[bytes]:
        for _ in range(8):
            await asyncio.sleep(piece_s)
            yield b"."

    async def guard(*_: str) -> Denial | None:
        return None

    async with serving(place=Place(snapshot="authorized")) as asked:
        asked.health.snapshot_source, asked.health.guard = slow_pieces, guard
        assert await asked.get("/snapshot", Authorization="Bearer a") == (200, "." * 8)


async def test_a_denial_has_a_message() -> None:
    """With its status; a caller without a token learns which header it takes."""

    async def guard(*_: str) -> Denial | None:
        return Denial(403, "no")

    async with serving(place=Place(metrics="authorized")) as asked:
        soon = await asked.get("/metrics", Authorization="Bearer a")
        asked.health.guard = guard
        assert await asked.get("/metrics", Authorization="bearer a") == (403, "no\n")
        response = await asked.get("/metrics")
    assert soon == (503, "The process is starting. Try again in a second.\n")
    assert response == (401, "The header `Authorization: Bearer TOKEN` is required.\n")


def test_programs_in_one_process_do_not_take_each_others_names() -> None:
    """The same condition of two of them is two, and the process is ready when both hold."""
    health = Health()
    one, other = health.part("one"), health.part("other")
    one.add_condition("pods followed", lambda: None)
    other.add_condition("pods followed", lambda: "not yet")
    other.add_check("planning", lambda: "it hangs")
    one.not_ready("certificate", "none")
    one.ready("certificate")
    one.started()

    assert health.readiness() == {
        "started": "not yet",
        "one: pods followed": None,
        "other: pods followed": "not yet",
        "one: certificate": None,
    }
    assert health.liveness() == {"other: planning": "it hangs"}
    one.stopping()
    assert health.readiness()["started"] == "the process is stopping"


async def test_the_snapshot_of_one_program_is_that_of_the_process(
    running_server: HealthHarness,
) -> None:
    """Only the scheduler has one."""
    running_server.health.part("scheduler").snapshot_source = pieces

    assert running_server.health.snapshot_source is pieces


def test_a_condition_is_named_once() -> None:
    """The later one would hide the earlier."""
    health = Health()
    health.add_condition("pods followed", lambda: "not yet")

    with pytest.raises(ValueError, match="pods followed already"):
        health.add_condition("pods followed", lambda: None)
