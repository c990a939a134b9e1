"""How long a command takes until its first request and its answer, beside the official package.

Each starts a Python of its own, reads the same kubeconfig and lists the namespaces. It connects
through a proxy of ours, which records when a connection is opened: from then on the time is the API
server's. The memory is the most that the process ever had.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from benchmarks.rounds import rounds
from e2e.cluster.bringup import Options, running_cluster
from tests.support.machine_speed import MachineSpeed
from tests.support.repository import ROOT

_ROUNDS: Final = 9
_LEAST_S: Final = 10.0
_OURS_S: Final = 0.15

_PYTHON: Final = "print()"
_OURS: Final = """
import asyncio, sys
from trainer_kai.api.resources import NAMESPACES
from trainer_kai.kube.client import command_client
from trainer_kai.kube.rest.request import ListTarget as Target

async def main():
    async with command_client(kubeconfig=sys.argv[1]) as client:
        print(len(await client.list(Target(NAMESPACES))))

asyncio.run(main())
"""
_OFFICIAL: Final = """
import sys
from kubernetes import client, config

config.load_kube_config(sys.argv[1])
print(len(client.CoreV1Api().list_namespace().items))
"""
_OFFICIAL_ASYNC: Final = """
import asyncio, sys
from kubernetes.aio import client, config

async def main():
    await config.load_kube_config(sys.argv[1])
    async with client.ApiClient() as api:
        print(len((await client.CoreV1Api(api).list_namespace()).items))

asyncio.run(main())
"""


# The kernel's figure for a child begins with the memory of its parent.
_MEMORY: Final = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


class _Run(NamedTuple):
    request_s: float  # infinite for the program that sends none
    answer_s: float
    mebibytes: float
    printed: str


class _Proxy:
    """Forwards connections to an API server; records when the last one was opened."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.connected_at = float("inf")
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accept connections."""
        async with await asyncio.start_server(self._forward, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected_at = time.monotonic()
        upstream = await asyncio.open_connection("127.0.0.1", urlsplit(self._url).port)
        await asyncio.gather(_pass_on(reader, upstream[1]), _pass_on(upstream[0], writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
    except ConnectionError:
        pass  # a process ended without closing its connection
    writer.close()


async def main() -> None:
    """Measure each in turn, several times; keep the best of each."""
    async with running_cluster(Options(name="bench-start")) as cluster:
        proxy = _Proxy(cluster.api.url)
        kubeconfig = cluster.kubeconfig.with_name("through-the-door.yaml")
        programs = {
            "python, doing nothing": _PYTHON,
            "ours": _OURS,
            "kubernetes": _OFFICIAL,
            "kubernetes.aio": _OFFICIAL_ASYNC,
        }
        best: dict[str, _Run] = {}
        speed = MachineSpeed()
        async with proxy.open():
            text = cluster.kubeconfig.read_text().replace(
                cluster.api.url, f"https://127.0.0.1:{proxy.port}"
            )
            kubeconfig.write_text(text)
            for _ in rounds(
                _ROUNDS, _LEAST_S, lambda: best["ours"].request_s < _OURS_S * speed.slowdown
            ):
                speed.measure()
                for name, program in programs.items():
                    run = await asyncio.to_thread(_run, program, kubeconfig, proxy)
                    best[name] = min(run, best.get(name, run))
    ours, official = best["ours"], best["kubernetes"]
    assert ours.printed == official.printed == best["kubernetes.aio"].printed != ""
    _print_table(best)
    most_s = _OURS_S * speed.slowdown
    assert ours.request_s < most_s, (
        f"the first request took {ours.request_s:.3f} s, not {most_s:.3f}"
    )


def _print_table(best: dict[str, _Run]) -> None:
    ours = best["ours"]
    table = Table(
        title="from nothing to the first request and to the end, best of several, this run"
    )
    for heading in ("program", "ms to request", "times ours", "ms to end", "times ours", "MiB"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for name, run in best.items():
        table.add_row(
            name,
            f"{run.request_s * 1000:.0f}" if run.printed else "",
            f"{run.request_s / ours.request_s:.1f}" if run.printed else "",
            f"{run.answer_s * 1000:.0f}",
            f"{run.answer_s / ours.answer_s:.1f}",
            f"{run.mebibytes:.0f}",
        )
    Console(width=115).print(table)


def _run(program: str, kubeconfig: Path, proxy: _Proxy) -> _Run:
    """Run a program to its end."""
    proxy.connected_at = float("inf")
    read, write = os.pipe()
    began = time.monotonic()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", program + _MEMORY, str(kubeconfig)],
        {**os.environ, "PYTHONPATH": str(ROOT)},
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
    )
    os.close(write)
    _, status = os.waitpid(pid, 0)
    seconds = time.monotonic() - began
    with os.fdopen(read) as output:
        printed, kibibytes = output.read().splitlines()
    assert status == 0, printed
    return _Run(proxy.connected_at - began, seconds, int(kibibytes) / 1024, printed)
