"""How fast a watch is: from bytes alone, and over the real API server."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from e2e.cluster import resources
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from tests.support.repository import ROOT
from tests.support.workloads.recorded_pods import PENDING, RUNNING, pods
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import PODS
from trainer_kai.kube.auth.kubeconfig import find_rest_config
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver, process_client
from trainer_kai.kube.process.context import ClientObserver
from trainer_kai.kube.process.tasks import cancel_all
from trainer_kai.kube.rest.request import ListTarget, Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.kube.watch import Delta, DeltaType, Watch
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.metrics import Metrics

_EVENTS: Final = 20_000
_PIECE_BYTES: Final = 1 << 18
_EVENTS_PER_S: Final = 8_000

_PODS: Final = 5_000
_IN_FLIGHT: Final = 16
_FULL_SPEED: Final = 0.6  # of what four times as many reach, on a machine that is shared
_LONGEST_LAG_S: Final = 0.5
_LONGEST_STALL_S: Final = 0.2
_TICK_S: Final = 0.005
_BYSTANDERS: Final = ("kube-controller-manager", "jobset", "trainer", "kwok")
_STAMP: Final = "example.com/sent-ns"


async def main() -> None:
    """Measure both and print the tables."""
    await _from_bytes()
    async with running_cluster(Options(name="bench-watch")) as cluster:
        await _over_the_api_server(cluster)


class _RecordedTransport:
    """A transport that plays a watch it has in memory, then stays silent."""

    def __init__(self, recording: bytes) -> None:
        self._recording = recording

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Answer the list: there is nothing yet."""
        assert timeout_s > 0
        assert ("limit", "50") in request.query
        return ApiResponse(200, b'{"metadata": {"resourceVersion": "1"}, "items": []}')

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Play the recording."""
        assert silence_s > 0
        assert ("watch", "true") in request.query
        yield self._play()

    async def close(self) -> None:
        """Close nothing."""

    async def _play(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._recording), _PIECE_BYTES):
            yield self._recording[start : start + _PIECE_BYTES]
        await asyncio.Event().wait()


async def _from_bytes() -> None:
    """Follow pods as JobSet makes them, each added and later modified, and keep them all."""
    lines = _lines()
    began = time.perf_counter()
    for line in lines:
        json.loads(line)
    floor_s = time.perf_counter() - began

    clock = SystemClock()
    access = RestConfig("https://nowhere", StaticToken(""))
    transport = _RecordedTransport(b"\n".join(lines) + b"\n")
    observed = ClientObserver(Metrics())
    watch = Watch(Client(access, transport, clock, NoRequestObserver()), ListTarget(PODS), observed)
    stored: dict[tuple[str, str], Pod] = {}
    delivered = 0
    done = asyncio.Event()

    def keep(change: Delta[Pod]) -> None:
        nonlocal delivered
        assert change.object is not None
        stored[change.key] = change.object
        delivered += 1
        if delivered == _EVENTS:
            done.set()

    began = time.perf_counter()
    task = asyncio.create_task(watch.run(keep, lambda: None))
    await _first(task, done)
    seconds = time.perf_counter() - began
    task.cancel()
    assert len(stored) == _EVENTS // 2
    assert all(pod.spec.node_name for pod in stored.values())
    sizes = f"{len(lines[0])} and {len(lines[-1])} bytes"
    table = Table(title=f"{_EVENTS} events of JobSet pods, {sizes}, one core")
    for heading in ("work", "seconds", "events per second", "times json.loads"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    table.add_row("json.loads of the lines", *_figures(floor_s, floor_s))
    table.add_row("our watch: read, decode, compare, keep", *_figures(seconds, floor_s))
    Console(width=115).print(table)
    assert _EVENTS / seconds >= _EVENTS_PER_S


async def _first(task: asyncio.Task[None], done: asyncio.Event) -> None:
    """Wait for something that a task does, or raise what ended it."""
    waiting = asyncio.create_task(done.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()


def _figures(seconds: float, floor_s: float) -> tuple[str, str, str]:
    return f"{seconds:.2f}", f"{_EVENTS / seconds:.0f}", f"{seconds / floor_s:.2f}"


def _lines() -> list[bytes]:
    """Return events: pods of many JobSets are added without a node, later they run on one."""
    events = [("ADDED", text) for text in pods(PENDING, _EVENTS // 2)]
    for text in pods(RUNNING, _EVENTS // 2):
        modified = text.replace('"resourceVersion":"', '"resourceVersion":"9', 1)
        events.append(("MODIFIED", modified))
    return [f'{{"type":"{event}","object":{text}}}'.encode() for event, text in events]


async def _over_the_api_server(cluster: Cluster) -> None:
    """Follow pods while another process patches each of them as fast as the API server goes.

    That is: with so many patches in flight that more of them hardly make it faster. A second run
    with four times as many shows that, and what more do: they queue in the API server, and events
    are late. In neither may our loop ever be away for long.
    """
    await cluster.until_found(resources.SERVICE_ACCOUNTS, "default", "default")
    for name in _BYSTANDERS:  # they watch pods as well, on the same cores
        await cluster.process(name).kill()
    await cluster.api.create_all([_pod(number) for number in range(_PODS)])
    clock = SystemClock()
    access = await find_rest_config({}, clock, kubeconfig=str(cluster.kubeconfig))
    observed = ClientObserver(Metrics())
    listener = _Listener()
    async with process_client(access, clock, observed) as client:
        watch = Watch(client, ListTarget(PODS, "default"), observed)
        task = asyncio.create_task(watch.run(listener.note, listener.synced.set))
        await _first(task, listener.synced)
        runs = [
            await _run(cluster, listener, task, in_flight)
            for in_flight in (_IN_FLIGHT, 4 * _IN_FLIGHT)
        ]
        task.cancel()
    _print_table(runs)
    full, queued = runs
    assert full.seconds * _FULL_SPEED <= queued.seconds, "more in flight make it much faster"
    longest_s = full.lags_s[-1]
    assert longest_s <= _LONGEST_LAG_S, f"an event came {longest_s:.2f} s after its answer"
    assert max(run.stall_s for run in runs) <= _LONGEST_STALL_S, "our own loop was away"


class _Listener:
    """When each pod was told to be modified, and how long our loop ever was away."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        """Forget what was received before."""
        self.received_ns: dict[str, int] = {}
        self.done = asyncio.Event()
        self.stall_s = 0.0

    def note(self, change: Delta[Pod]) -> None:
        """Note the event of one pod."""
        if change.type is not DeltaType.MODIFIED or change.object is None:
            return
        self.received_ns[change.key.name] = time.monotonic_ns()
        if len(self.received_ns) == _PODS:
            self.done.set()

    async def measure_stalls(self) -> None:
        """Wake up often, and note by how much that was ever late."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self.stall_s = max(self.stall_s, time.monotonic() - began - _TICK_S)


class _Run(NamedTuple):
    """What came of one patch of every pod."""

    in_flight: int
    seconds: float
    answered_s: list[float]
    lags_s: list[float]
    stall_s: float


async def _run(
    cluster: Cluster, listener: _Listener, watching: asyncio.Task[None], in_flight: int
) -> _Run:
    """Have every pod patched; compare the time of the answer with that of our event."""
    listener.begin()
    measuring = asyncio.create_task(listener.measure_stalls())
    program = [sys.executable, "-m", "benchmarks.patcher"]
    patcher = await asyncio.create_subprocess_exec(
        *program,
        *(str(cluster.kubeconfig), f"{_PODS}", f"{in_flight}"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await patcher.communicate()
        assert patcher.returncode == 0
        await _first(watching, listener.done)
    finally:
        await cancel_all([measuring])
    seconds, moments = json.loads(output)
    received_ns = listener.received_ns
    assert received_ns.keys() == moments.keys()
    answered_s = sorted((answered - sent) / 1e9 for sent, answered in moments.values())
    lags_s = sorted((received_ns[name] - answered) / 1e9 for name, (_, answered) in moments.items())
    return _Run(in_flight, seconds, answered_s, lags_s, listener.stall_s)


def _print_table(runs: list[_Run]) -> None:
    """Print how long patches took to be answered, and how much later their events came."""
    table = Table(title=f"{_PODS} pods patched by another process: p50, p99, longest, in ms")
    for heading in (
        "in flight",
        "patches per second",
        "patch to answer",
        "answer to our event",
        "our loop away",
    ):
        table.add_column(heading, justify="right")
    for run in runs:
        table.add_row(
            f"{run.in_flight}",
            f"{_PODS / run.seconds:.0f}",
            _ranks_ms(run.answered_s),
            _ranks_ms(run.lags_s),
            f"{run.stall_s * 1000:.0f}",
        )
    Console(width=115).print(table)


def _ranks_ms(sorted_s: list[float]) -> str:
    ranks = sorted_s[_PODS // 2], sorted_s[_PODS * 99 // 100], sorted_s[-1]
    return "  ".join(f"{rank * 1000:.0f}" for rank in ranks)


def _pod(number: int) -> resources.Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": f"pod-{number}",
            "annotations": {_STAMP: "0"},
        },
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "none"}],
        },
    }
