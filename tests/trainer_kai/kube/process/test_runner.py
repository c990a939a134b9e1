"""The tasks of a process, from the first to the last."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from structlog.testing import CapturingLogger

from tests.support.clock import VirtualClock
from trainer_kai.errors import InvariantError
from trainer_kai.kube.process.runner import Runner, TaskFunction


class RunnerHarness:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = CapturingLogger()
        self.runner = Runner(self.clock, structlog.wrap_logger(self.log, processors=[]))
        self.happened: list[str] = []

    def service(self, name: str, cleanup_s: float = 0) -> TaskFunction:
        """Return work that goes on until it is cancelled, and takes its time then."""

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                if cleanup_s:
                    await self.clock.sleep(cleanup_s)
                self.happened.append(f"{name} ended at {self.clock.monotonic_s():g}")

        return work

    def failing(self, error: Exception, after_s: float = 1) -> TaskFunction:
        async def work() -> None:
            await self.clock.sleep(after_s)
            raise error

        return work

    @asynccontextmanager
    async def resource(self, name: str) -> AsyncIterator[str]:
        self.happened.append(f"{name} opened")
        yield name
        self.happened.append(f"{name} closed")

    def run(self, program: Callable[[Runner], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self.runner.run(program))

    @property
    def events(self) -> list[str]:
        return [call.kwargs["event"] for call in self.log.calls]


def assert_ended(running: asyncio.Task[None]) -> None:
    """See how a run ended, which it must have; to wait for it might be for ever."""
    assert running.done()
    running.result()


async def test_a_stop_goes_in_reverse_order() -> None:
    """One after the other, resources in between, and each with its time to clean up."""
    harness = RunnerHarness()

    async def program(run: Runner) -> None:
        run.start("first", harness.service("first", 2))
        await run.enter("client", harness.resource("client"))
        run.start("second", harness.service("second"))
        run.start("third", harness.service("third", 3))

    running = harness.run(program)
    await harness.clock.advance(1)
    harness.runner.stop()
    await harness.clock.advance(100)

    assert_ended(running)
    assert harness.happened == [
        "client opened",
        "third ended at 4",
        "second ended at 4",
        "client closed",
        "first ended at 6",
    ]


async def test_the_first_failure_stops_all_and_is_raised() -> None:
    """What fails afterwards is logged with its name, and nothing is lost."""
    harness = RunnerHarness()
    second = ValueError("second")

    async def clumsy() -> None:
        try:
            await harness.clock.sleep(100)
        finally:
            raise second

    async def program(run: Runner) -> None:
        run.start("clumsy", clumsy)
        run.start("faulty", harness.failing(KeyError("first")))
        run.start("sound", harness.service("sound"))

    running = harness.run(program)
    await harness.clock.advance(10)

    with pytest.raises(KeyError, match="first"):
        assert_ended(running)
    assert harness.runner.failed_task == "faulty"
    assert harness.happened == ["sound ended at 1"]
    assert harness.log.calls[0].kwargs == {
        "event": "another task failed",
        "task": "clumsy",
        "exc_info": second,
    }


async def test_a_failure_while_stopping_is_a_failure() -> None:
    """An orderly stop that goes wrong is not orderly."""
    harness = RunnerHarness()

    async def clumsy() -> None:
        try:
            await harness.clock.sleep(100)
        finally:
            raise ValueError("no")

    async def program(run: Runner) -> None:
        run.start("clumsy", clumsy)

    running = harness.run(program)
    await harness.clock.advance(1)
    harness.runner.stop()
    await harness.clock.advance(1)

    with pytest.raises(ValueError, match="no"):
        assert_ended(running)


async def test_a_service_that_returns_is_a_failure() -> None:
    """Otherwise its work would stop without notice."""
    harness = RunnerHarness()

    async def program(run: Runner) -> None:
        run.start("watch pods", lambda: harness.clock.sleep(3))
        run.start("other", harness.service("other"))

    running = harness.run(program)
    await harness.clock.advance(3)

    with pytest.raises(
        InvariantError, match="watch pods ended although it should run until it is stopped"
    ):
        assert_ended(running)


async def test_a_task_that_is_cancelled_from_elsewhere_is_a_failure() -> None:
    """A cancellation by other code must not pass for an end."""
    harness = RunnerHarness()

    async def giving_up() -> None:
        raise asyncio.CancelledError

    async def program(run: Runner) -> None:
        run.start("victim", giving_up, may_end=True)
        run.start("other", harness.service("other"))

    running = harness.run(program)
    await harness.clock.advance(1)

    with pytest.raises(InvariantError, match="victim was cancelled from elsewhere"):
        assert_ended(running)


async def test_a_run_without_tasks_is_over() -> None:
    """What may end may also be all there is."""
    harness = RunnerHarness()

    async def program(run: Runner) -> None:
        run.start("once", lambda: harness.clock.sleep(3), may_end=True)

    running = harness.run(program)
    await harness.clock.advance(2)
    early = running.done()
    await harness.clock.advance(1)

    assert (early, running.done()) == (False, True)
    assert_ended(running)


async def test_the_end_of_a_grace() -> None:
    """A task that does not stop is cancelled once more, then left behind; the others go on."""
    harness = RunnerHarness()
    awake = asyncio.Event()

    async def deaf() -> None:
        while not awake.is_set():
            try:
                await awake.wait()
            except asyncio.CancelledError:
                continue

    async def program(run: Runner) -> None:
        run.start("sound", harness.service("sound"))
        run.start("slow", harness.service("slow", 60), grace_s=10)
        run.start("deaf", deaf, grace_s=3)

    running = harness.run(program)
    await harness.clock.advance(0)
    harness.runner.stop()
    await harness.clock.advance(100)

    assert_ended(running)
    assert harness.runner.left_behind == ["deaf"]
    assert harness.happened == ["sound ended at 14"]  # 3 + 1 for the deaf one, 10 for the slow one
    assert harness.events == ["task does not stop"] * 3
    awake.set()


async def test_a_stop_while_starting() -> None:
    """The program is stopped first, so that nothing new is started among what ends."""
    harness = RunnerHarness()

    async def program(run: Runner) -> None:
        run.start("early", harness.service("early", 2))
        try:
            await harness.clock.sleep(50)
        finally:
            run.start("late", harness.service("late"))

    running = harness.run(program)
    await harness.clock.advance(1)
    harness.runner.stop()
    await harness.clock.advance(10)

    assert_ended(running)
    assert harness.happened == ["early ended at 3"]


@pytest.mark.parametrize("is_deaf", [False, True], ids=["ends when cancelled", "does not"])
async def test_a_resource_that_does_not_close_is_left(*, is_deaf: bool) -> None:
    """It has its time, is cancelled, and is left behind if that does not help either."""
    harness = RunnerHarness()

    @asynccontextmanager
    async def endless() -> AsyncIterator[None]:
        yield
        while True:
            try:
                await harness.clock.sleep(1000)
            except asyncio.CancelledError:
                if not is_deaf or harness.clock.monotonic_s() > 100:
                    raise

    async def program(run: Runner) -> None:
        await run.enter("sound", harness.resource("sound"))
        await run.enter("endless", endless())

    running = harness.run(program)
    await harness.clock.advance(20)

    assert_ended(running)
    assert harness.happened == ["sound opened", "sound closed"]
    assert harness.events[0] == "resource does not close"
    assert harness.runner.left_behind == (["endless"] if is_deaf else [])
    await harness.clock.advance(100)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    """The error is raised, and what was opened before is closed."""
    harness = RunnerHarness()

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        yield
        raise OSError("no")

    async def program(run: Runner) -> None:
        await run.enter("sound", harness.resource("sound"))
        await run.enter("broken", broken())
        run.start("service", harness.service("service"))

    running = harness.run(program)
    await harness.clock.advance(1)
    harness.runner.stop()
    await harness.clock.advance(1)

    with pytest.raises(OSError, match="no"):
        assert_ended(running)
    assert (harness.runner.failed_task, harness.happened[-1]) == ("broken", "sound closed")
