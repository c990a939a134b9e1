"""Asyncio tasks: wait for them within a time, cancel them, and read what several of them raised.

It takes the clock it waits on, cancels only what it is told to and swallows no error: the caller
that started a task looks at its end. A TaskGroup wraps even a single error into a group; code that
handles an error handles a group of nothing else, too.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from trainer_kai.service.clock import Clock

__all__ = [
    "cancel_all",
    "errors_if_all_are",
    "errors_in_group",
    "finish_within",
    "within",
]

A = TypeVar("A")
E = TypeVar("E", bound=BaseException)
Task = asyncio.Task[Any]


def errors_in_group(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, of groups in it as well; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [inner for part in error.exceptions for inner in errors_in_group(part)]
    return [error]


def errors_if_all_are(kind: type[E], error: BaseException) -> list[E] | None:
    """Return what was raised if all of it is of one kind; else None."""
    errors = errors_in_group(error)
    right = [it for it in errors if isinstance(it, kind)]
    return right if len(right) == len(errors) else None


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

    It is cancelled then, but not waited for: a request that does not keep time may not end in time
    either.
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
    """See the error of a request that no task waits for any more."""
    if not pending.cancelled():
        pending.exception()
