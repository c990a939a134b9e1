"""The virtual clock: order, exact moments, and which tasks it leaves waiting."""

import asyncio
from datetime import UTC, datetime

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock

# the naps of several tasks, started in this order -> (moment, task) of every waking within 10 s
SLEEPS: list[Case[list[list[float]], list[tuple[float, int]]]] = [
    Case("one wakes when due", [[3]], [(3, 0)]),
    Case("the last moment is part of the time", [[10]], [(10, 0)]),
    Case("a task that is due later keeps waiting", [[10.001]], []),
    Case("the task that is due first wakes first", [[3], [1], [2]], [(1, 1), (2, 2), (3, 0)]),
    Case("of two due at once the first asleep wakes first", [[2], [2]], [(2, 0), (2, 1)]),
    Case(
        "a task that sleeps again is woken again, in between",
        [[1, 2], [2]],
        [(1, 0), (2, 1), (3, 0)],
    ),
    Case("a tenth ten times is one", [[0.1] * 3, [0.3]], [(0.1, 0), (0.2, 0), (0.3, 1), (0.3, 0)]),
    Case("no time at all is no waking later", [[0, -1]], [(0, 0), (0, 0)]),
]


@pytest.mark.parametrize("case", SLEEPS, ids=ids)
async def test_advance(case: Case[list[list[float]], list[tuple[float, int]]]) -> None:
    """Each moment that is due comes, in its order, and is seen as that moment."""
    clock = VirtualClock()
    woken: list[tuple[float, int]] = []

    async def nap(task: int, lengths: list[float]) -> None:
        for length in lengths:
            await clock.sleep(length)
            woken.append((clock.monotonic_s(), task))

    tasks = [asyncio.create_task(nap(task, lengths)) for task, lengths in enumerate(case.given)]
    await clock.advance(10)

    assert woken == case.want
    assert clock.monotonic_s() == 10
    for task in tasks:
        task.cancel()


async def test_a_woken_task_does_all_it_can_before_the_next() -> None:
    """What a waking sets off among other tasks is over before the next sleeper wakes."""
    clock = VirtualClock()
    seen: list[str] = []
    bell: asyncio.Queue[str] = asyncio.Queue()

    async def ring() -> None:
        await clock.sleep(1)
        await bell.put("rung")

    async def listen() -> None:
        heard = await bell.get()
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append(f"{heard} at {clock.monotonic_s():g}")

    async def late() -> None:
        await clock.sleep(1.5)
        seen.append("late")

    tasks = [asyncio.create_task(work()) for work in (late, ring, listen)]
    await clock.advance(2)
    await asyncio.gather(*tasks)

    assert seen == ["rung at 1", "late"]


async def test_a_cancelled_task_is_no_longer_waiting() -> None:
    """A cancelled sleeper is neither woken nor counted."""
    clock = VirtualClock()
    tasks = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 2, 3)]
    await clock.advance(0.5)
    tasks[1].cancel()
    await clock.advance(0)

    assert clock.waits_s == [0.5, 2.5]
    await clock.advance(2.5)
    assert [task.cancelled() for task in tasks] == [False, True, False]


async def test_the_date_moves_with_the_time() -> None:
    """The wall clock starts where it is told to and keeps pace."""
    clock = VirtualClock(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC))

    await clock.advance(1.5)

    assert clock.now() == datetime(2027, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


async def test_time_does_not_run_backwards() -> None:
    """A negative step is a mistake of the test."""
    with pytest.raises(ValueError, match="backwards"):
        await VirtualClock().advance(-1)


async def test_a_task_that_never_waits_is_found_out() -> None:
    """Otherwise the test would hang instead of failing."""

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    task = asyncio.create_task(spin())

    with pytest.raises(RuntimeError, match="without waiting"):
        await VirtualClock().advance(1)
    task.cancel()
