"""The body of a `__main__`: signals and exit codes."""

import asyncio
import os
import signal

import pytest
from structlog.testing import capture_logs

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.errors import ConfigError, FieldError, InvariantError
from trainer_kai.kube.process.runner import Program, Runner, main
from trainer_kai.kube.rest.response import ErrorDetails, Forbidden, Unauthorized


def raising(error: Exception) -> Program:
    async def program(_: Runner) -> None:
        raise error

    return program


async def nothing(_: Runner) -> None: ...


ERROR_DETAILS = ErrorDetails("GET /x", 403, "Forbidden", "no")

# a program -> its exit code, and what is logged: the event, and whether a traceback is shown
ENDS: list[Case[Program, tuple[int, list[tuple[str, bool]]]]] = [
    Case("an orderly end is 0", nothing, (0, [("process ends", False)])),
    Case(
        "wrong settings are 2",
        raising(ConfigError([FieldError("a.b", "no")])),
        (2, [("settings invalid", False), ("process ends", False)]),
    ),
    Case(
        "wrong credentials are 2",
        raising(Unauthorized(ERROR_DETAILS._replace(status=401))),
        (1, [("credentials refused", False), ("process ends", False)]),
    ),
    Case(
        "another refusal is 1",
        raising(Forbidden(ERROR_DETAILS)),
        (1, [("request failed for good", False), ("process ends", False)]),
    ),
    Case(
        "a refusal in a group, from two tasks",
        raising(
            ExceptionGroup(
                "", [Forbidden(ERROR_DETAILS), ExceptionGroup("", [Forbidden(ERROR_DETAILS)])]
            )
        ),
        (1, [("request failed for good", False), ("process ends", False)]),
    ),
    Case(
        "credentials in a group",
        raising(ExceptionGroup("", [Unauthorized(ERROR_DETAILS._replace(status=401))])),
        (1, [("credentials refused", False), ("process ends", False)]),
    ),
    Case(
        "settings in a group",
        raising(ExceptionGroup("", [ConfigError([FieldError("a.b", "no")])])),
        (2, [("settings invalid", False), ("process ends", False)]),
    ),
    Case(
        "settings, and a mistake of ours",
        raising(ExceptionGroup("", [ConfigError([FieldError("a.b", "no")]), ValueError()])),
        (1, [("settings invalid", False), ("task failed", True), ("process ends", False)]),
    ),
    Case(
        "a mistake of ours",
        raising(InvariantError("no")),
        (1, [("task failed", True), ("process ends", False)]),
    ),
    Case(
        "any mistake is 1, with a traceback",
        raising(ZeroDivisionError()),
        (1, [("task failed", True), ("process ends", False)]),
    ),
]


@pytest.mark.parametrize("case", ENDS, ids=ids)
def test_exit_codes(case: Case[Program, tuple[int, list[tuple[str, bool]]]]) -> None:
    """Each end has its code; a traceback is for our own mistakes only."""
    with capture_logs() as logs:
        code = main(case.given, clock=VirtualClock())

    assert (code, [(line["event"], "exc_info" in line) for line in logs]) == case.want


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_begins_an_orderly_stop(number: signal.Signals) -> None:
    """Tasks clean up, the code is 0, and the signal handler is then removed."""
    seen: list[str] = []
    before = signal.getsignal(number)

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("cleaned up")

    async def program(run: Runner) -> None:
        run.start("service", work)

    with capture_logs() as logs:
        code = main(program)

    assert (code, seen) == (0, ["cleaned up"])
    assert (logs[0]["event"], logs[0]["signal"]) == ("stop signal received", number.name)
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_the_process_at_once() -> None:
    """Even when the event loop is busy and handles nothing."""
    left: list[int] = []

    async def program(_: Runner) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert left == [128 + signal.SIGINT]  # no await in between

    with capture_logs():
        main(program, leave=left.append)

    assert left == [130]


def test_a_task_left_behind_does_not_keep_the_process() -> None:
    """There is no orderly way to end it, so the process leaves."""
    left: list[int] = []
    cancelled = 0

    async def deaf() -> None:
        nonlocal cancelled
        while cancelled < 3:  # the third time it is the loop that closes
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled += 1

    async def program(run: Runner) -> None:
        run.start("deaf", deaf, grace_s=0)
        run.stop()

    with capture_logs() as logs:
        main(program, leave=left.append, clock=Hasty())

    assert left == [1]
    assert logs[-1]["tasks"] == ["deaf"]


class Hasty(VirtualClock):
    """A clock on which every wait is over at once."""

    async def sleep(self, seconds: float) -> None:
        del seconds
        for _ in range(10):
            await asyncio.sleep(0)
