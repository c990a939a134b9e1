"""A process of the demo that ends is started again, unless it ends again and again."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from e2e.cluster.process import Process, ProgramDied
from e2e.cluster.programs import Program
from e2e.demo.restarts import while_restarting
from e2e.fixtures.processes import ProductProcess

Start = Callable[[str], "_Fake"]


class _Fake(ProductProcess):
    """A process that is ready as soon as it runs."""

    async def ready(self) -> None:
        """Wait for nothing."""


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Return a function that runs a script."""
    started: list[Process] = []

    def run(script: str) -> _Fake:
        program = Program("scheduler", [sys.executable, "-I", "-S", "-c", script], {})
        process = Process(program, tmp_path / "scheduler.log")
        process.start()
        started.append(process)
        return _Fake(process, "http://127.0.0.1:1/readyz")

    yield run
    for process in started:
        await process.kill()


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def test_a_killed_process_is_started_again_while_the_work_goes_on(start: Start) -> None:
    """The lines name the process, how it ended and its new id."""
    process = start("import signal; signal.pause()")
    old, lines = process.pid, list[str]()

    async def work() -> str:
        await process.kill()
        await _until(lambda: len(lines) == 2)
        return "done"

    assert await while_restarting(work(), [process], lines.append) == "done"
    assert process.pid not in (None, old)
    assert lines == [
        "scheduler ended with signal SIGKILL; it is started again",
        f"scheduler is ready again, process {process.pid}",
    ]


async def test_a_crash_loop_ends_the_work_with_the_log(start: Start) -> None:
    """At the third end within a minute."""
    process, lines = start("import sys; print('no nodes'); sys.exit(3)"), list[str]()

    with pytest.raises(ProgramDied, match=r"scheduler ended 3 times within 60 s") as error:
        await while_restarting(asyncio.sleep(60), [process], lines.append)

    assert "last with exit status 3; the end of its log:\nno nodes" in str(error.value)
    assert sum("is started again" in line for line in lines) == 2


async def test_no_process_is_started_after_the_work(start: Start) -> None:
    """The demo ends its processes itself then."""
    process, lines = start("import signal; signal.pause()"), list[str]()

    await while_restarting(asyncio.sleep(0), [process], lines.append)
    await process.kill()
    await asyncio.sleep(0.3)

    assert process.pid is None
    assert lines == []
    assert process.process.exit_status == -signal.SIGKILL
