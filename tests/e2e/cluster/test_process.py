"""One program: started, stopped, killed, frozen, and its log."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e.cluster.process import Process, ProgramDied
from e2e.cluster.process_identity import Identity
from e2e.cluster.programs import Program

# Says something and then waits; ends well when it is asked to.
SCRIPT = """
import os, signal, sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("asked")))
print("begun with", os.environ["WORD"], flush=True)
signal.pause()
"""


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    """Return a program that is not running yet."""
    program = Program("talker", [sys.executable, "-I", "-S", "-c", SCRIPT], {"WORD": "a word"})
    process = Process(program, tmp_path / "talker.log")
    yield process
    await process.kill()


def running(process: Process) -> Identity:
    """Return who runs now."""
    assert process.identity is not None
    return process.identity


async def has_begun(process: Process) -> None:
    """Wait for the program's first words."""
    async with asyncio.timeout(60):
        while not process.tail(1):
            await asyncio.sleep(0.002)


async def test_it_is_asked_before_it_is_killed(process: Process) -> None:
    """A stop leaves a program the time to end well."""
    process.start()
    await has_begun(process)

    await process.stop()

    assert process.identity is None
    assert process.tail(9) == ["begun with a word", "asked"]


async def test_frozen_it_is_ended_all_the_same(process: Process) -> None:
    """Who does not react to being asked is killed after the grace."""
    process.start()
    await has_begun(process)
    process.pause()

    await process.stop(grace_s=0.05)

    assert process.identity is None
    assert process.tail(9) == ["begun with a word"]


async def test_it_can_be_started_again(process: Process) -> None:
    """A second life is another process, and its words come after those of the first."""
    process.start()
    await has_begun(process)
    first = running(process)

    await process.kill()
    assert not first.alive
    process.start()

    assert running(process) != first
    await process.stop()
    assert process.tail(9)[0] == "begun with a word"


async def test_it_runs_once_at_a_time(process: Process) -> None:
    """A second start would lose the first process."""
    process.start()

    with pytest.raises(RuntimeError, match="talker runs already"):
        process.start()


async def test_a_dead_program_is_reported_with_the_end_of_its_log(process: Process) -> None:
    """Nobody asked it to end, so whoever checks hears what it said."""
    process.start()
    await has_begun(process)
    process.check()

    running(process).send(signal.SIGKILL)
    await process.kill()  # only waits: it is gone already

    with pytest.raises(ProgramDied, match=r"talker is not running; .*\nbegun with a word"):
        process.check()


async def test_a_frozen_program_goes_on(process: Process) -> None:
    """What was asked of it meanwhile is done once it may go on."""
    process.start()
    await has_begun(process)
    process.pause()
    running(process).send(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        await process._ended(0.05)

    process.resume()

    await process._ended(5)
    assert process.tail(1) == ["asked"]


async def test_it_can_be_ended_before_it_was_started(process: Process) -> None:
    """Taking down a cluster that came up by half ends what runs and minds nothing else."""
    process.kill_nowait()
    await process.stop()

    assert (process.identity, process.tail(9)) == (None, [])


async def test_it_is_wanted_once_it_was_started(process: Process) -> None:
    """A program that was killed still belongs to its cluster; one never started does not."""
    before = process.wanted
    process.start()
    await process.kill()

    assert (before, process.wanted) == (False, True)
