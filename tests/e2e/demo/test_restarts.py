"""A process of the demo that ends is started again, unless it ends again and again."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from e2e.cluster.patience import until
from e2e.cluster.process import Process, ProgramDied
from e2e.cluster.programs import Program
from e2e.demo.restarts import while_restarting
from e2e.fixtures.processes import ProductProcess

_WAITS = "import signal; signal.pause()"


class _Fake(ProductProcess):
    """A process that is ready as soon as it runs."""

    async def ready(self) -> None:
        """Wait for nothing."""


@asynccontextmanager
async def _started(script: str, folder: Path) -> AsyncIterator[_Fake]:
    program = Program("scheduler", [sys.executable, "-I", "-S", "-c", script], {})
    process = Process(program, folder / "scheduler.log")
    process.start()
    try:
        yield _Fake(process, "http://127.0.0.1:1/readyz")
    finally:
        await process.kill()


async def test_a_killed_process_is_started_again_while_the_work_goes_on(tmp_path: Path) -> None:
    """The lines name the process, how it ended and its new id; after the work it stays down."""
    lines: list[str] = []
    async with _started(_WAITS, tmp_path) as process:
        old = process.pid

        async def work() -> str:
            await process.kill()
            await until(lambda: len(lines) == 2, "it is ready again")
            return "done"

        assert await while_restarting(work(), [process], lines.append) == "done"
        assert process.pid not in (None, old)
        assert lines == [
            "scheduler ended with signal SIGKILL; it is started again",
            f"scheduler is ready again, process {process.pid}",
        ]
        await process.kill()
        await asyncio.sleep(0.3)
        assert process.process.identity is None
        assert process.process.exit_status == -signal.SIGKILL


async def test_a_crash_loop_ends_the_work_with_the_log(tmp_path: Path) -> None:
    """At the third end within a minute."""
    lines: list[str] = []
    async with _started("import sys; print('no nodes'); sys.exit(3)", tmp_path) as process:
        with pytest.raises(ProgramDied, match=r"scheduler ended 3 times within 60 s") as error:
            await while_restarting(asyncio.sleep(60), [process], lines.append)

    assert "last with exit status 3; the end of its log:\nno nodes" in str(error.value)
    assert sum("is started again" in line for line in lines) == 2
