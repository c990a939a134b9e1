"""How long a command takes until it has its first answer, beside the official package.

Each starts a Python of its own, reads the same kubeconfig and lists the namespaces. The memory is
the most that the process ever had.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from e2e.cluster.bringup import Options, running_cluster
from tests.support.tree import ROOT

__all__ = ["main"]

_ROUNDS: Final = 9
_OURS_S: Final = 0.15

_PYTHON: Final = "print()"
_OURS: Final = """
import asyncio, sys
from trainer_kai.api.resources import NAMESPACES
from trainer_kai.kube.connect import command_client
from trainer_kai.kube.request import Target

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


# What the kernel tells a parent begins with the memory of the parent itself.
_MEMORY: Final = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


class _Run(NamedTuple):
    seconds: float
    mebibytes: float
    printed: str


async def main() -> None:
    """Measure each in turn, several times; keep the best of each."""
    async with running_cluster(Options(name="bench-start")) as cluster:
        programs = {
            "python, doing nothing": _PYTHON,
            "ours": _OURS,
            "kubernetes": _OFFICIAL,
            "kubernetes.aio": _OFFICIAL_ASYNC,
        }
        best: dict[str, _Run] = {}
        for _ in range(_ROUNDS):
            for name, program in programs.items():
                run = await asyncio.to_thread(_run, program, cluster.kubeconfig)
                best[name] = min(run, best.get(name, run))
    ours, official = best["ours"], best["kubernetes"]
    assert ours.printed == official.printed == best["kubernetes.aio"].printed != ""
    table = Table(title="from nothing to the first answer, best of several, this run")
    for heading in ("program", "ms", "MiB", "times ours"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for name, run in best.items():
        ratio = f"{run.seconds / ours.seconds:.1f}"
        table.add_row(name, f"{run.seconds * 1000:.0f}", f"{run.mebibytes:.0f}", ratio)
    Console(width=115).print(table)
    assert ours.seconds < _OURS_S, f"the first answer took {ours.seconds:.3f} s"


def _run(program: str, kubeconfig: Path) -> _Run:
    """Run a program to its end."""
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
    return _Run(seconds, int(kibibytes) / 1024, printed)
