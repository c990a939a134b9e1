"""Wait for tasks, but not for ever, on a clock that was passed in.

It cancels only what it is told to and swallows no error: whoever started a task looks at its end.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from trainer_kai.clock import Clock

__all__ = ["cancel_all", "finish_within", "within"]

A = TypeVar("A")

Task = asyncio.Task[Any]


async def finish_within(clock: Clock, seconds: float, tasks: Iterable[Task]) -> set[Task]:
    """Wait until every task ended or the time is up; return those that still run."""
    running = {task for task in tasks if not task.done()}
    if not running:
        return running
    alarm = asyncio.create_task(clock.sleep(seconds))
    try:
        while running and not alarm.done():
            await asyncio.wait({*running, alarm}, return_when=asyncio.FIRST_COMPLETED)
            running = {task for task in running if not task.done()}
    finally:
        alarm.cancel()
    return running


async def cancel_all(tasks: Iterable[Task]) -> None:
    """Cancel tasks and wait until each has ended; their errors stay with them."""
    ending = {task for task in tasks if not task.done()}
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


async def within(clock: Clock, seconds: float, request: Coroutine[Any, Any, A]) -> A:
    """Return what a request returns; raise `TimeoutError` when the time is up.

    It is cancelled then, but not waited for: whoever does not keep time may not end in time either.
    """
    pending = asyncio.ensure_future(request)
    pending.add_done_callback(_retrieve_error)
    try:
        if not await finish_within(clock, seconds, [pending]):
            return pending.result()
    finally:
        pending.cancel()
    message = f"not done within {seconds:g} s"
    raise TimeoutError(message)


def _retrieve_error(pending: "asyncio.Future[Any]") -> None:
    """See the error of what nobody waits for any more."""
    if not pending.cancelled():
        pending.exception()
