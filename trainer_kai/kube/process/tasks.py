"""Asyncio tasks: wait for them with a time limit, cancel them, and unpack their errors.

The clock is an argument. Only named tasks are cancelled, and no error is swallowed: the caller that
started a task checks its end. A TaskGroup wraps even a single error into a group, so code that
handles an error also handles a group of only such errors.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from trainer_kai.service.clock import Clock

A = TypeVar("A")
E = TypeVar("E", bound=BaseException)
Task = asyncio.Task[Any]


def errors_in_group(error: BaseException) -> list[BaseException]:
    """Return the errors of a group and its nested groups; any other error is returned itself."""
    if isinstance(error, BaseExceptionGroup):
        return [inner for part in error.exceptions for inner in errors_in_group(part)]
    return [error]


def errors_if_all_are(kind: type[E], error: BaseException) -> list[E] | None:
    """Return the errors if all of them are of one type; else None."""
    errors = errors_in_group(error)
    right = [it for it in errors if isinstance(it, kind)]
    return right if len(right) == len(errors) else None


async def finish_within(clock: Clock, seconds: float, tasks: Iterable[Task]) -> set[Task]:
    """Wait until all tasks ended or the time is up; return those still running."""
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
    """Cancel tasks and wait until each has ended; their errors stay in them."""
    ending = {task for task in tasks if not task.done()}
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


async def within(clock: Clock, seconds: float, request: Coroutine[Any, Any, A]) -> A:
    """Return the result of a request; raise `TimeoutError` when the time is up.

    The request is cancelled then, but not awaited, because it may not end in time either.
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
    """Retrieve the error of a request that no task awaits any more."""
    if not pending.cancelled():
        pending.exception()
