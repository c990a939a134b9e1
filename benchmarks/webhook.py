"""How long a review waits, and how many a second there can be, over TLS.

The server has 5,000 TrainJobs in its cache and runs in a process of its own, beside the one that
sends them. Reviews are recorded from an API server, each for another TrainJob. TrainJobs are
validated with everything on: queues are looked up, and access to them is asked of a fake that takes
as long as an API server, and cached. JobSets and TrainJobs come at fixed moments whether
or not the ones before are answered, and wait from those moments on; pods come as fast as they are
answered. The floor is aiohttp sending back what it gets, asked in the same way.
"""

import asyncio
import base64
import gc
import itertools
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
import yaml
from aiohttp import web
from rich.console import Console
from rich.table import Table

from tests.support.machine_speed import MachineSpeed
from tests.support.repository import ROOT
from tests.webhook.objects import BUNDLED, QUEUE, REVIEWS, applied, written
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.trainjob import RuntimeRef
from trainer_kai.kube.process.runner import run_loop
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.garbage_collection import freeze_known_objects
from trainer_kai.service.log import configure, logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import WebhookServerSettings
from webhook.admission.review import AdmissionResponse
from webhook.cache.admission_cache import (
    AdmissionCache,
    SlimTrainJob,
    SlimTrainJobSpec,
    TrainJobSummary,
)
from webhook.cache.runtimes import RuntimeSummary, WatchedRuntime
from webhook.reviews.answer_jobs import JobsHandler
from webhook.reviews.answer_trainjob import AdmissionPolicy, LiveLookups, TrainJobHandler
from webhook.reviews.router import ReviewRouter, Route
from webhook.rules.access_requests import QueueAccessRequest
from webhook.server import WebhookServer
from webhook.tls.make import apply_step, parse_host
from webhook.tls.rotation_plan import CertificateLifetimes, RotationAction, RotationStep
from webhook.tls.verify import server_context

_LOOPBACK: Final = "127.0.0.1"
_TRAINJOBS: Final = 5_000
_JOBSETS_PER_S: Final = 300
_JOBSETS: Final = 3_000
_JOBSET_P99_S: Final = 0.005
_TRAINJOB_P99_S: Final = 0.015
_RUNTIME: Final = ROOT / "tests" / "fixtures" / "runtimes" / "deepspeed-distributed.yaml"
_PERMISSION_S: Final = 0.005
_TEAMS: Final = 7
_IN_FLIGHT: Final = 16
_PODS: Final = 10_000
_PODS_PER_S: Final = 2_000
_POD_P99_S: Final = 0.015
_WARM: Final = 300


class _Load(NamedTuple):
    """Bodies to send in turn to a path, and what our server answers to each."""

    path: str
    bodies: list[bytes]
    answers: list[bytes]


class _Figures(NamedTuple):
    """Seconds of each answer, sorted, and of all of them together."""

    each_s: list[float]
    whole_s: float

    @property
    def per_s(self) -> float:
        """Return how many were answered a second."""
        return len(self.each_s) / self.whole_s

    def rank(self, percent: int) -> float:
        """Return a percentile."""
        return self.each_s[min(len(self.each_s) * percent // 100, len(self.each_s) - 1)]


async def main() -> None:
    """Measure both servers and print the table."""
    configure(SystemClock(), level="error")
    jobsets, trainjobs, pods = await _jobset_load(), await _trainjob_load(), await _pod_load()
    figures: dict[tuple[str, str], _Figures] = {}
    speed = MachineSpeed()
    gc.collect()
    gc.freeze()  # the client is not measured: no garbage collection in it
    for server in ("echo", "ours"):
        async with _served_by(server) as port:
            figures["JobSet", server] = await _open_loop(port, jobsets, server)
            figures["TrainJob", server] = await _open_loop(port, trainjobs, server)
            figures["pod", server] = await _closed_loop(port, pods, server)
        speed.measure()
    Console(width=115).print(
        _table(figures, {"JobSet": jobsets, "TrainJob": trainjobs, "pod": pods})
    )
    for kind, most_s in (
        ("JobSet", _JOBSET_P99_S),
        ("TrainJob", _TRAINJOB_P99_S),
        ("pod", _POD_P99_S),
    ):
        took_s = figures[kind, "ours"].rank(99)
        assert took_s <= most_s * speed.slowdown, f"p99 of {kind}s: {took_s:.4f} s"
    pod = figures["pod", "ours"]
    assert pod.per_s >= _PODS_PER_S / speed.slowdown, f"pods a second: {pod.per_s:.0f}"


def _table(figures: dict[tuple[str, str], _Figures], loads: dict[str, _Load]) -> Table:
    table = Table(title=f"reviews over TLS, {_TRAINJOBS} TrainJobs cached, 2 processes")
    for heading in ("reviews", "server", "per second", "p50 ms", "p99 ms", "times the floor's p99"):
        table.add_column(heading, justify="left" if heading in {"reviews", "server"} else "right")
    for kind, how in (
        ("JobSet", f"{_JOBSETS_PER_S} a second, come what may"),
        ("TrainJob", f"{_JOBSETS_PER_S} a second, come what may"),
        ("pod", f"{_IN_FLIGHT} in flight"),
    ):
        floor = figures[kind, "echo"]
        for server in ("echo", "ours"):
            measured = figures[kind, server]
            row = (
                f"{measured.per_s:.0f}",
                f"{measured.rank(50) * 1e3:.2f}",
                f"{measured.rank(99) * 1e3:.2f}",
            )
            ratio = f"{measured.rank(99) / floor.rank(99):.1f}"
            title = f"{kind}, {len(loads[kind].bodies[0])} bytes, {how}"
            table.add_row(title, server, *row, ratio)
    return table


class _Connection:
    """Sends requests that are ready-made: what is measured is the other process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return cls(*await asyncio.open_connection(_LOOPBACK, port, ssl=context))

    async def ask(self, request: bytes) -> bytes:
        """Return the body of the answer."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        start = head.index(b"Content-Length: ") + 16
        return await self._reader.readexactly(int(head[start : head.index(b"\r", start)]))

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


async def _open_loop(port: int, load: _Load, server: str) -> _Figures:
    """Send each review at its moment; open a connection where none is free."""
    async with AsyncExitStack() as stack:
        free = [await _connected(stack, port) for _ in range(8)]
        each_s: list[float] = []
        answers: dict[int, bytes] = {}
        requests = _requests(load)

        async def send(number: int, due_s: float) -> None:
            connection = free.pop() if free else await _connected(stack, port)
            answers[number] = await connection.ask(requests[number % len(requests)])
            each_s.append(time.perf_counter() - due_s)
            free.append(connection)

        for number in range(_WARM):
            await send(number, 0)
        each_s.clear()
        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(_JOBSETS):
                due_s = began_s + number / _JOBSETS_PER_S
                await asyncio.sleep(due_s - time.perf_counter())
                group.create_task(send(number, due_s))
        whole_s = time.perf_counter() - began_s
    _check(load, answers, server)
    return _Figures(sorted(each_s), whole_s)


async def _closed_loop(port: int, load: _Load, server: str) -> _Figures:
    """Send reviews as fast as they are answered, a fixed number in flight."""
    async with AsyncExitStack() as stack:
        connections = [await _connected(stack, port) for _ in range(_IN_FLIGHT)]
        requests = _requests(load)
        for connection in connections:
            for number in range(_WARM // _IN_FLIGHT):
                await connection.ask(requests[number])
        each_s: list[float] = []
        answers: dict[int, bytes] = {}
        numbers = iter(range(_PODS))

        async def send_in_turn(connection: _Connection) -> None:
            for number in numbers:
                sent_s = time.perf_counter()
                answers[number] = await connection.ask(requests[number % len(requests)])
                each_s.append(time.perf_counter() - sent_s)

        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(send_in_turn(connection))
        whole_s = time.perf_counter() - began_s
    _check(load, answers, server)
    return _Figures(sorted(each_s), whole_s)


async def _connected(stack: AsyncExitStack, port: int) -> _Connection:
    connection = await _Connection.open(port)
    stack.push_async_callback(connection.close)
    return connection


def _requests(load: _Load) -> list[bytes]:
    head = f"POST {load.path} HTTP/1.1\r\nHost: {_LOOPBACK}\r\nContent-Type: application/json\r\n"
    return [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in load.bodies]


def _check(load: _Load, answers: dict[int, bytes], server: str) -> None:
    """Assert that every answer is the expected one."""
    wanted = load.answers if server == "ours" else load.bodies
    for number, answer in answers.items():
        assert answer == wanted[number % len(wanted)], answer


async def _jobset_load() -> _Load:
    """Return JobSets, each of another TrainJob, of several queues."""
    text = (REVIEWS / "jobset-create-staged.json").read_text()
    requested = msgspec.json.decode(text)["request"]
    owner = requested["object"]["metadata"]["ownerReferences"][0]["uid"]
    bodies = [
        text.replace(requested["uid"], f"review-{number}")
        .replace("torchtune", f"job-{number}")
        .replace(owner, f"uid-{number}")
        .encode()
        for number in range(0, _TRAINJOBS, 5)
    ]
    answers = await _answers("/mutate/jobset", bodies)
    for number, body, answer in zip(itertools.count(0, 5), bodies, answers, strict=False):
        jobset = _patched(body, answer)
        assert written(jobset).queue == _queue(number)
        assert {job[0] for job in written(jobset).jobs.values()} == {BUNDLED.scheduler_name}
    return _Load("/mutate/jobset", bodies, answers)


async def _trainjob_load() -> _Load:
    """Return TrainJobs of several queues, which their author may use."""
    text = (REVIEWS / "trainjob-create.json").read_text()
    requested = msgspec.json.decode(text)["request"]
    queue, name = (requested["object"]["metadata"][it] for it in ("labels", "name"))
    bodies = [
        text.replace(requested["uid"], f"review-{number}")
        .replace(f'"name":"{name}"', f'"name":"job-{number}"')
        .replace(f'"{queue[QUEUE]}"', f'"{_queue(number)}"')
        .encode()
        for number in range(1_000)
    ]
    answers = await _answers("/validate/trainjob", bodies)
    for number, answer in enumerate(answers):
        response = msgspec.json.decode(answer)["response"]
        assert response == {"uid": f"review-{number}", "allowed": True}
    return _Load("/validate/trainjob", bodies, answers)


async def _pod_load() -> _Load:
    """Return pods of many JobSets."""
    text = (REVIEWS / "pod-create.json").read_text()
    requested = msgspec.json.decode(text)["request"]
    uid = requested["object"]["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"]
    bodies = [
        text.replace(requested["uid"], f"review-{number}").replace(uid, f"jobset-{number}").encode()
        for number in range(1_000)
    ]
    answers = await _answers("/mutate/pod", bodies)
    for number, (body, answer) in enumerate(zip(bodies, answers, strict=True)):
        group = _patched(body, answer)["metadata"]["annotations"]["pod-group-name"]
        assert group == f"pg-deepspeed-jobset-{number}"
    return _Load("/mutate/pod", bodies, answers)


async def _answers(path: str, bodies: list[bytes]) -> list[bytes]:
    router = _router()
    return [(await router.answer(path, body)).body for body in bodies]


def _patched(body: bytes, answer: bytes) -> dict[str, Any]:
    patch = base64.b64decode(msgspec.json.decode(answer)["response"]["patch"])
    obj = msgspec.json.decode(body)["request"]["object"]
    return applied(obj, AdmissionResponse(tuple(msgspec.json.decode(patch))))


def _queue(number: int) -> str:
    return f"team-{number % _TEAMS}"


def _router() -> ReviewRouter:
    """Return a router whose cache has all TrainJobs; only access to queues is asked live."""

    async def read(key: Key) -> TrainJobSummary | None:
        raise AssertionError(f"{key} is cached")

    async def runtime(key: Key) -> RuntimeSummary:
        raise AssertionError(f"{key} is cached")

    async def may_use(access_request: QueueAccessRequest) -> bool:
        await asyncio.sleep(_PERMISSION_S)
        return bool(access_request.user or access_request.groups)

    async def has_queue(name: str) -> bool:
        raise AssertionError(f"{name} is cached")

    cache = AdmissionCache()
    for number in range(_TRAINJOBS):
        name, labels = f"job-{number}", {QUEUE: _queue(number)}
        meta = Meta(name=name, namespace="team", uid=f"uid-{number}", labels=labels)
        spec = SlimTrainJobSpec(runtime_ref=RuntimeRef(name="torchtune-llama3.2-1b"))
        cache.put_trainjob(SlimTrainJob(metadata=meta, spec=spec))
    for number in range(_TEAMS):
        cache.queues.put(_queue(number), "")
    cache.queues.mark_listed()
    runtime_object = yaml.safe_load(_RUNTIME.read_text())
    cache.runtimes.put(decode(WatchedRuntime, msgspec.json.encode(runtime_object)))
    clock, metrics, log = SystemClock(), Metrics(), logger(__name__)
    router = ReviewRouter(BUNDLED.mode, clock, metrics, log)
    admission_policy = AdmissionPolicy(BUNDLED, "closed", denies_unknown_queues=True)
    live_lookups = LiveLookups(runtime, may_use, has_queue)
    trainjob_handler = TrainJobHandler(cache, admission_policy, live_lookups, clock, metrics, log)
    router.add_route(
        "/validate/trainjob",
        Route("trainjob", trainjob_handler.answer, trainjob_handler.fails_closed),
    )
    queue_access = trainjob_handler.queue_access
    jobs = JobsHandler(cache, admission_policy, read, queue_access, metrics, log)
    router.add_route("/mutate/jobset", Route("jobset", jobs.answer_jobset, lambda: True))
    return router


@asynccontextmanager
async def _served_by(server: str) -> AsyncIterator[int]:
    """Run a server in a process of its own; yield its port."""
    program = [sys.executable, "-m", "benchmarks.webhook", server]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()


async def _serve(server: str) -> None:
    """Be a server until standard input ends; its log goes nowhere, but is written."""
    configure(SystemClock(), stream=Path(os.devnull).open("w"))  # noqa: ASYNC230, SIM115 - for good
    lifetimes = CertificateLifetimes(timedelta(days=1), timedelta(days=2))
    issued = apply_step(
        RotationStep(RotationAction.REMAKE),
        None,
        [parse_host(_LOOPBACK)],
        lifetimes,
        datetime.now(UTC),
    )
    tls = server_context(issued.pair)
    server_settings = WebhookServerSettings(address=_LOOPBACK, port=0, drain_s=0)
    async with AsyncExitStack() as stack:
        if server == "ours":
            ours = WebhookServer(_router(), server_settings, tls, SystemClock(), lambda: None)
            freeze_known_objects()  # as the process does once it has read everything
            port = (await stack.enter_async_context(ours)).port
        else:
            port = await _echo(stack, tls)
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _echo(stack: AsyncExitStack, tls: ssl.SSLContext) -> int:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    app = web.Application()
    app.router.add_post("/{path:.*}", echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, _LOOPBACK, 0, ssl_context=tls).start()
    port: int = runner.addresses[0][1]
    return port


if __name__ == "__main__":
    run_loop(_serve(sys.argv[1]) if len(sys.argv) > 1 else main())
