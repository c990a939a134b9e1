"""A cluster ends with whoever holds it, however that ends: no process, no port, no folder stays."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import registry
from e2e.cluster.binaries import ensure_built
from e2e.cluster.paths import clusters_root, programs_root
from e2e.cluster.patience import until
from e2e.cluster.ports import BLOCK_SIZE, FIRST_PORT
from e2e.cluster.process_identity import Identity
from e2e.cluster.registry import Note
from e2e.cluster.tether import tethered

_HOLD = """
import asyncio
import signal
from e2e.cluster.bringup import Options, running_cluster

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may be run by nohup


async def main():
    async with running_cluster(Options(name="test-held")) as cluster:
        print(cluster.name, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
_ENDINGS = [
    signal.SIGKILL,
    *(
        pytest.param(it, marks=pytest.mark.soak)
        for it in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    ),
]
_CUTS = [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.soak)]


class HeldCluster:
    """A cluster in another process, and what it had running and open."""

    def __init__(self, holder: "subprocess.Popen[str]") -> None:
        assert holder.stdout is not None
        self.holder = holder
        name = holder.stdout.readline().strip()
        self.note = registry.known()[name]

    @property
    def processes(self) -> list[Identity]:
        """Return every process of the cluster."""
        return list(self.note.programs.values())

    @property
    def open_ports(self) -> list[int]:
        """Return the ports of its block that somebody listens on."""
        api_server = int(self.note.url.rpartition(":")[2])
        first = api_server - (api_server - FIRST_PORT) % BLOCK_SIZE
        return [port for port in range(first, first + BLOCK_SIZE) if _answers(port)]


@pytest.fixture
def held_cluster() -> Iterator[HeldCluster]:
    """Return a ready cluster held by a process of its own."""
    ensure_built()
    holding = tethered([sys.executable, "-c", _HOLD])  # or a killed test run would leave it
    with subprocess.Popen(
        holding, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as holder:
        held = HeldCluster(holder)
        try:
            yield held
        finally:
            holder.kill()
            for process in held.processes:  # when the test is right to be red
                process.send(signal.SIGKILL)
            registry.sweep()


@pytest.mark.parametrize("number", _ENDINGS, ids=lambda number: number.name)
async def test_no_process_outlives_its_holder(
    held_cluster: HeldCluster, number: signal.Signals
) -> None:
    """Whatever ends the holder, kill -9 included, ends every process and frees every port."""
    assert len(held_cluster.processes) == 6
    assert all(process.alive for process in held_cluster.processes)
    assert len(held_cluster.open_ports) == 7

    held_cluster.holder.send_signal(number)
    await asyncio.to_thread(held_cluster.holder.wait)

    await until(
        lambda: not any(process.alive for process in held_cluster.processes), "all are gone"
    )
    assert held_cluster.open_ports == []
    registry.sweep()
    assert held_cluster.note.name not in registry.known()


@pytest.mark.soak
async def test_clusters_started_by_hand_live_side_by_side(tmp_path: Path) -> None:
    """`up` twice, `status`, `down`: two clusters that stay, apart from each other, and end."""
    with _own_cache(tmp_path):
        first, second = await asyncio.gather(_run("up", "hand"), _run("up", "hand"))
        assert "hand is ready" in first + second
        assert "hand-2 is ready" in first + second

        status = await _run("status")
        notes = registry.known()
        processes = [
            who for note in notes.values() for who in (note.owner, *note.programs.values())
        ]
        assert status.count("running") == 12
        assert len(processes) == 14

        assert "hand is down" in await _run("down", "hand")
        assert [note.state for note in registry.known().values()] == ["ready"]
        await _run("down", "--all")

        assert not any(process.alive for process in processes)
        assert await _run("status") == "no cluster is up\n"
        assert not list(clusters_root().iterdir())


@pytest.mark.soak
async def test_a_killed_supervisor_leaves_nothing(tmp_path: Path) -> None:
    """A cluster started by hand whose supervisor is killed ends, and `status` forgets it."""
    with _own_cache(tmp_path):
        await _run("up", "hand")
        note = registry.known()["hand"]

        note.owner.send(signal.SIGKILL)

        await until(lambda: not any(w.alive for w in note.programs.values()), "all are gone")
        assert await _run("status") == "no cluster is up\n"


@pytest.mark.parametrize("number", _CUTS, ids=lambda number: number.name)
async def test_an_interrupted_up_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or kill -9 while the programs are starting ends those that run already."""
    with _own_cache(tmp_path):
        starting = await _start("up", "hand", own_session=True)
        await until(lambda: _has_programs("hand"), "some programs run")
        note = registry.known()["hand"]

        _signal_as_terminal(starting, number)
        await starting.wait()

        await until(lambda: not any(w.alive for w in _everyone(note)), "all are gone")
        await until(lambda: _swept("hand"), "its folder is gone")


def _has_programs(name: str) -> bool:
    note = registry.known().get(name)
    return note is not None and len(note.programs) >= 2


def _everyone(note: Note) -> list[Identity]:
    return [note.owner, *note.programs.values()]


def _swept(name: str) -> bool:
    registry.sweep()
    return name not in registry.known()


def _signal_as_terminal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send Ctrl-C as a terminal does, to the whole foreground group; anything else to one."""
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _own_cache(folder: Path) -> Iterator[None]:
    """Count only this test's clusters, but use the programs that are built already."""
    (folder / "programs").symlink_to(programs_root())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINER_KAI_CACHE", str(folder))
        try:
            yield
        finally:
            down = [sys.executable, "-m", "e2e.cluster", "down", "--all"]
            subprocess.run(down, check=True, stdout=subprocess.DEVNULL)


async def _start(*arguments: str, own_session: bool = False) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "e2e.cluster", *arguments]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell runs us in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # or what we start ignores it
    return await asyncio.create_subprocess_exec(
        *tethered(command),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=own_session,
    )


async def _run(*arguments: str) -> str:
    process = await _start(*arguments)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()
