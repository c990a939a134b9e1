"""Starts a process of ours again that ended, until it ends again and again."""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NoReturn, TypeVar

from e2e.cluster.process import Process, ProgramDied
from e2e.fixtures.processes import ProductProcess

T = TypeVar("T")
Say = Callable[[str], None]

_LOOP_COUNT: Final = 3
_LOOP_S: Final = 60.0
_LOOK_S: Final = 0.1
_LAST_LINES: Final = 15


async def while_restarting(
    work: Coroutine[object, object, T], processes: Sequence[ProductProcess], say: Say
) -> T:
    """Do *work*, and start each process again that ends meanwhile; a crash loop ends the work."""
    working = asyncio.create_task(work)
    watching = [asyncio.create_task(_keep_running(process, say)) for process in processes]
    try:
        done, _ = await asyncio.wait((working, *watching), return_when=asyncio.FIRST_COMPLETED)
        for task in done & {*watching}:
            task.result()  # it only ends by an error
        return working.result()
    finally:
        for each in (working, *watching):
            each.cancel()
        await asyncio.gather(working, *watching, return_exceptions=True)


async def _keep_running(process: ProductProcess, say: Say) -> NoReturn:
    ends_s: deque[float] = deque(maxlen=_LOOP_COUNT)
    while True:
        if process.process.exit_status is not None:
            ends_s.append(time.monotonic())
            if len(ends_s) == _LOOP_COUNT and ends_s[-1] - ends_s[0] <= _LOOP_S:
                raise ProgramDied(_crash_loop(process.process))
            await _start_again(process, say)
        await asyncio.sleep(_LOOK_S)


async def _start_again(process: ProductProcess, say: Say) -> None:
    """Start a process that ended; where it ends once more, the next look counts that."""
    name = process.process.name
    say(f"{name} ended with {_exit_words(process.process)}; it is started again")
    try:
        await process.start()
    except ProgramDied:
        return
    say(f"{name} is ready again, process {process.pid}")


def _crash_loop(process: Process) -> str:
    last = "\n".join(process.tail(_LAST_LINES))
    return (
        f"{process.name} ended {_LOOP_COUNT} times within {_LOOP_S:.0f} s, last with "
        f"{_exit_words(process)}; the end of its log:\n{last}"
    )


def _exit_words(process: Process) -> str:
    status = process.exit_status or 0  # it has ended
    return f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
