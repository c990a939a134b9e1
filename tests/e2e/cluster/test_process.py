"""One program: started, stopped, killed, frozen, and its log."""

import asyncio
import signal
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


async def test_a_dead_program_is_reported_with_the_end_of_its_log(process: Process) -> None:
    """It was not asked to end, so a check fails with the end of its log."""
    process.start()
    await has_begun(process)
    process.check()

    running(process).send(signal.SIGKILL)
    await process.kill()  # only waits: it is gone already

    with pytest.raises(ProgramDied, match=r"talker is not running; .*\nbegun with a word"):
        process.check()


async def test_it_can_be_ended_before_it_was_started(process: Process) -> None:
    """Taking down a cluster that came up by half ends what runs and minds nothing else."""
    process.kill_nowait()
    await process.stop()

    assert (process.identity, process.tail(9)) == (None, [])
