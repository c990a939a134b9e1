"""Runs the tasks of a process, and stops them in order at a failure or a stop signal.

1. Tasks are started in order, each with a name. The run ends at a stop, when a task fails, or when
   no task is left.
2. A task fails when it raises, when it is cancelled from elsewhere, or when it is a service and
   returns. The first failure ends the run and is raised by `run`; later ones are logged.
3. Tasks are stopped one by one, the last started first: a task is cancelled and gets its grace
   period. Then it is cancelled again; a task that does not end then is left behind. Resources that
   were entered between tasks are closed in the same order, each with a time limit.
4. A stopping task may clean up, but starts nothing more.
5. Every error of a task is either raised, or logged with the name of the task.

`main` is for a `__main__`: it adds signals and exit codes. It and this module are the only place
where all exceptions are caught, besides the top of the webhook's server.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeAlias

import uvloop
from structlog.typing import FilteringBoundLogger

from trainer_kai.errors import ConfigError, InvariantError
from trainer_kai.kube.process.tasks import A, errors_in_group, finish_within
from trainer_kai.kube.rest.response import ApiError, Unauthorized
from trainer_kai.service.clock import Clock, SystemClock
from trainer_kai.service.log import logger

TaskFunction: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Program: TypeAlias = Callable[["Runner"], Awaitable[None]]
_GRACE_S: Final = 5.0
_SECOND_GRACE_S: Final = 1.0  # for a task after its grace period
_CLOSE_S: Final = 10.0  # for closing a resource


def main(
    program: Program,
    *,
    clock: Clock | None = None,
    leave: Callable[[int], object] = os._exit,
) -> int:
    """Run a program until a signal or a failure; return the exit code of the process.

    SIGTERM and SIGINT begin an orderly stop, and a second one ends the process at once. The code is
    0 after an orderly end, 1 after a failure, 2 for invalid settings. *leave* ends the process if
    no orderly end is possible.
    """
    return run_loop(_main(program, clock or SystemClock(), leave))


def run_loop(main: Coroutine[Any, Any, A]) -> A:
    """Run a coroutine like `asyncio.run`, which commands use: uvloop takes time to import."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


@dataclass(frozen=True)
class _RunningTask:
    name: str
    task: asyncio.Task[None]
    grace_s: float


@dataclass(frozen=True)
class _OpenResource:
    name: str
    resource: AbstractAsyncContextManager[Any]


class Runner:
    def __init__(self, clock: Clock, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._log = log
        self._started: list[_RunningTask | _OpenResource] = []
        self._stopping = False
        self._finished = asyncio.Event()
        self._first_error: Exception | None = None
        self.failed_task = ""  # the one that failed first
        self.left_behind: list[str] = []  # tasks that did not end although cancelled twice

    def start(
        self, name: str, work: TaskFunction, *, grace_s: float = _GRACE_S, may_end: bool = False
    ) -> None:
        """Start a task: a service, which must run until it is stopped, unless it *may_end*."""
        if self._stopping:
            self._log.debug("task not started, the process stops", task=name)
            return
        task = asyncio.create_task(work(), name=name)
        self._started.append(_RunningTask(name, task, grace_s))
        task.add_done_callback(lambda ended: self._on_task_end(name, ended, may_end=may_end))

    async def enter(self, name: str, resource: AbstractAsyncContextManager[A]) -> A:
        """Open a resource that tasks started from now on may use until they have ended."""
        entered = await resource.__aenter__()
        self._started.append(_OpenResource(name, resource))
        return entered

    def stop(self) -> None:
        """Begin an orderly stop, which `run` executes."""
        self._finished.set()

    async def run(self, program: Program) -> None:
        """Run a program that starts tasks, and the tasks until their end; raise the first failure.

        The program is a task itself, so a stop also ends a program that is still starting.
        """

        async def begin() -> None:
            await program(self)

        self.start("start", begin, may_end=True)
        try:
            await self._finished.wait()
        finally:
            await self._stop_all()
        if self._first_error is not None:
            raise self._first_error

    def _on_task_end(self, name: str, task: asyncio.Task[None], *, may_end: bool) -> None:
        if task.cancelled():
            if self._stopping:
                return
            error: BaseException | None = InvariantError(f"{name} was cancelled from elsewhere")
        else:
            error = task.exception()
            if error is None and not may_end and not self._stopping:
                error = InvariantError(f"{name} ended although it should run until it is stopped")
        if isinstance(error, Exception):
            self._record_failure(name, error)
        if all(it.task.done() for it in self._started if isinstance(it, _RunningTask)):
            self._finished.set()

    def _record_failure(self, name: str, error: Exception) -> None:
        if self._first_error is None:
            self._first_error, self.failed_task = error, name
        else:
            self._log.error("another task failed", task=name, exc_info=error)
        self._finished.set()

    async def _stop_all(self) -> None:
        """Stop tasks and resources, the last first; the program first, because it starts more."""
        self._stopping = True
        if self._started and isinstance(self._started[0], _RunningTask):
            await self._stop_one(self._started[0])
        while self._started:
            started = self._started.pop()
            if isinstance(started, _RunningTask):
                await self._stop_one(started)
            else:
                await self._close(started)
        await asyncio.sleep(0)  # the last one's end still has to be checked

    async def _stop_one(self, started: _RunningTask) -> None:
        for grace_s in (started.grace_s, _SECOND_GRACE_S):
            started.task.cancel()
            if not await finish_within(self._clock, grace_s, [started.task]):
                return
            self._log.warning("task does not stop", task=started.name, waited_s=grace_s)
        self.left_behind.append(started.name)

    async def _close(self, started: _OpenResource) -> None:
        """Close a resource; the remaining ones are closed whatever happens."""

        async def close() -> None:
            await started.resource.__aexit__(None, None, None)

        closing = asyncio.create_task(close(), name=f"close {started.name}")
        if await finish_within(self._clock, _CLOSE_S, [closing]):
            self._log.warning("resource does not close", resource=started.name, waited_s=_CLOSE_S)
            await self._stop_one(_RunningTask(started.name, closing, _SECOND_GRACE_S))
        error = closing.exception() if closing.done() and not closing.cancelled() else None
        if isinstance(error, Exception):
            self._record_failure(started.name, error)


async def _main(program: Program, clock: Clock, leave: Callable[[int], object]) -> int:
    log = logger(__name__)
    runner = Runner(clock, log)
    with _Signals(runner.stop, log, leave):
        try:
            await runner.run(program)
        except Exception as error:  # noqa: BLE001 - the end of the process: every error is logged
            code = _log_failure(log, runner.failed_task, error)
        else:
            code = 0
    log.info("process ends", code=code)
    if runner.left_behind:  # the loop would wait for them for ever
        log.error("tasks left behind", tasks=runner.left_behind)
        leave(code or 1)
    return code


def _log_failure(log: FilteringBoundLogger, task: str, error: Exception) -> int:
    """Log why the process ends, and return the exit code. Errors of a group are logged one by one.

    Equal errors are logged once, and the code is 2 only if all errors are invalid settings.
    """
    distinct = {(type(it), str(it)): it for it in errors_in_group(error)}
    return min(_log_one_failure(log, task, it) for it in distinct.values())


def _log_one_failure(log: FilteringBoundLogger, task: str, error: BaseException) -> int:
    match error:
        case ConfigError():
            log.error("settings invalid", task=task, faults=[str(it) for it in error.faults])
            return 2
        case Unauthorized():
            log.error("credentials refused", task=task, error=str(error))
        case ApiError():
            log.error("request failed for good", task=task, error=str(error))
        case _:
            log.error("task failed", task=task, exc_info=error)
    return 1


class _Signals:
    """Make the first signal begin an orderly stop, and the second one end the process."""

    def __init__(
        self, stop: Callable[[], None], log: FilteringBoundLogger, leave: Callable[[int], object]
    ) -> None:
        self._stop = stop
        self._log = log
        self._leave = leave
        self._signalled = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # not the loop's own handler: a second signal must end a loop that hangs
            self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._signalled:
            self._leave(128 + number)
        self._signalled = True
        self._loop.call_soon_threadsafe(self._begin_stop, signal.Signals(number).name)

    def _begin_stop(self, name: str) -> None:
        self._log.info("stop signal received", signal=name)
        self._stop()
