"""The tasks of a process, from the first to the last."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from structlog.testing import CapturingLogger

from tests.support.clock import VirtualClock
from trainer_kai.errors import InvariantError
from trainer_kai.kube.runner import Runner, Work


class House:
    """A runner, a virtual clock, and what happened in which order."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.said = CapturingLogger()
        self.runner = Runner(self.clock, structlog.wrap_logger(self.said, processors=[]))
        self.seen: list[str] = []

    def service(self, name: str, cleanup_s: float = 0) -> Work:
        """Return work that goes on until it is cancelled, and takes its time then."""

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                if cleanup_s:
                    await self.clock.sleep(cleanup_s)
                self.seen.append(f"{name} ended at {self.clock.monotonic_s():g}")

        return work

    def failing(self, error: Exception, after_s: float = 1) -> Work:
        """Return work that fails after a while."""

        async def work() -> None:
            await self.clock.sleep(after_s)
            raise error

        return work

    @asynccontextmanager
    async def resource(self, name: str) -> AsyncIterator[str]:
        """Open and close something."""
        self.seen.append(f"{name} opened")
        yield name
        self.seen.append(f"{name} closed")

    def run(self, program: Callable[[Runner], Awaitable[None]]) -> asyncio.Task[None]:
        """Begin."""
        return asyncio.create_task(self.runner.run(program))

    @property
    def events(self) -> list[str]:
        """Return what was logged."""
        return [call.kwargs["event"] for call in self.said.calls]


def over(running: asyncio.Task[None]) -> None:
    """See how a run ended, which it must have; to wait for it might be for ever."""
    assert running.done()
    running.result()


async def test_a_stop_goes_in_reverse_order() -> None:
    """One after the other, resources in between, and each with its time to clean up."""
    house = House()

    async def program(run: Runner) -> None:
        run.start("first", house.service("first", 2))
        await run.enter("client", house.resource("client"))
        run.start("second", house.service("second"))
        run.start("third", house.service("third", 3))

    running = house.run(program)
    await house.clock.advance(1)
    house.runner.stop()
    await house.clock.advance(100)

    over(running)
    assert house.seen == [
        "client opened",
        "third ended at 4",
        "second ended at 4",
        "client closed",
        "first ended at 6",
    ]


async def test_the_first_failure_stops_all_and_is_raised() -> None:
    """What fails afterwards is logged with its name, and nothing is lost."""
    house = House()
    second = ValueError("second")

    async def clumsy() -> None:
        try:
            await house.clock.sleep(100)
        finally:
            raise second

    async def program(run: Runner) -> None:
        run.start("clumsy", clumsy)
        run.start("faulty", house.failing(KeyError("first")))
        run.start("sound", house.service("sound"))

    running = house.run(program)
    await house.clock.advance(10)

    with pytest.raises(KeyError, match="first"):
        over(running)
    assert house.runner.culprit == "faulty"
    assert house.seen == ["sound ended at 1"]
    assert house.said.calls[0].kwargs == {
        "event": "another task failed",
        "task": "clumsy",
        "exc_info": second,
    }


async def test_a_failure_while_stopping_is_a_failure() -> None:
    """An orderly stop that goes wrong is not orderly."""
    house = House()

    async def clumsy() -> None:
        try:
            await house.clock.sleep(100)
        finally:
            raise ValueError("no")

    async def program(run: Runner) -> None:
        run.start("clumsy", clumsy)

    running = house.run(program)
    await house.clock.advance(1)
    house.runner.stop()
    await house.clock.advance(1)

    with pytest.raises(ValueError, match="no"):
        over(running)


async def test_a_service_that_returns_is_a_failure() -> None:
    """Nobody would notice that nobody does its work any more."""
    house = House()

    async def program(run: Runner) -> None:
        run.start("watch pods", lambda: house.clock.sleep(3))
        run.start("other", house.service("other"))

    running = house.run(program)
    await house.clock.advance(3)

    with pytest.raises(InvariantError, match="watch pods ended although nobody stopped it"):
        over(running)


async def test_a_task_that_is_cancelled_from_elsewhere_is_a_failure() -> None:
    """A cancellation that goes astray must not pass for an end."""
    house = House()

    async def giving_up() -> None:
        raise asyncio.CancelledError

    async def program(run: Runner) -> None:
        run.start("victim", giving_up, may_end=True)
        run.start("other", house.service("other"))

    running = house.run(program)
    await house.clock.advance(1)

    with pytest.raises(InvariantError, match="victim was cancelled by somebody else"):
        over(running)


async def test_a_run_without_tasks_is_over() -> None:
    """What may end may also be all there is."""
    house = House()

    async def program(run: Runner) -> None:
        run.start("once", lambda: house.clock.sleep(3), may_end=True)

    running = house.run(program)
    await house.clock.advance(2)
    early = running.done()
    await house.clock.advance(1)

    assert (early, running.done()) == (False, True)
    over(running)


async def test_the_end_of_a_grace() -> None:
    """Whoever does not stop is cancelled once more, then left behind; the others go on."""
    house = House()
    awake = asyncio.Event()

    async def deaf() -> None:
        while not awake.is_set():
            try:
                await awake.wait()
            except asyncio.CancelledError:
                continue

    async def program(run: Runner) -> None:
        run.start("sound", house.service("sound"))
        run.start("slow", house.service("slow", 60), grace_s=10)
        run.start("deaf", deaf, grace_s=3)

    running = house.run(program)
    await house.clock.advance(0)
    house.runner.stop()
    await house.clock.advance(100)

    over(running)
    assert house.runner.left_behind == ["deaf"]
    assert house.seen == ["sound ended at 14"]  # 3 + 1 for the deaf one, 10 for the slow one
    assert house.events == ["task does not stop"] * 3
    awake.set()


async def test_a_stop_while_starting() -> None:
    """The program is stopped first, so that nothing new is started among what ends."""
    house = House()

    async def program(run: Runner) -> None:
        run.start("early", house.service("early", 2))
        try:
            await house.clock.sleep(50)
        finally:
            run.start("late", house.service("late"))

    running = house.run(program)
    await house.clock.advance(1)
    house.runner.stop()
    await house.clock.advance(10)

    over(running)
    assert house.seen == ["early ended at 3"]


@pytest.mark.parametrize("is_deaf", [False, True], ids=["ends when cancelled", "does not"])
async def test_a_resource_that_does_not_close_is_left(*, is_deaf: bool) -> None:
    """It has its time, is told to end, and is left behind if that does not help either."""
    house = House()

    @asynccontextmanager
    async def endless() -> AsyncIterator[None]:
        yield
        while True:
            try:
                await house.clock.sleep(1000)
            except asyncio.CancelledError:
                if not is_deaf or house.clock.monotonic_s() > 100:
                    raise

    async def program(run: Runner) -> None:
        await run.enter("sound", house.resource("sound"))
        await run.enter("endless", endless())

    running = house.run(program)
    await house.clock.advance(20)

    over(running)
    assert house.seen == ["sound opened", "sound closed"]
    assert house.events[0] == "resource does not close"
    assert house.runner.left_behind == (["endless"] if is_deaf else [])
    await house.clock.advance(100)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    """The error is told, and what was opened before is closed."""
    house = House()

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        yield
        raise OSError("no")

    async def program(run: Runner) -> None:
        await run.enter("sound", house.resource("sound"))
        await run.enter("broken", broken())
        run.start("service", house.service("service"))

    running = house.run(program)
    await house.clock.advance(1)
    house.runner.stop()
    await house.clock.advance(1)

    with pytest.raises(OSError, match="no"):
        over(running)
    assert (house.runner.culprit, house.seen[-1]) == ("broken", "sound closed")
