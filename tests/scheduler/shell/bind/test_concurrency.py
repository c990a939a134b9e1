"""How many writes are in flight."""

import asyncio

from scheduler.shell.bind.concurrency import AdaptiveConcurrency
from tests.support.clock import VirtualClock


async def write(
    concurrency: AdaptiveConcurrency, clock: VirtualClock, seconds: float, count: int
) -> int:
    """Write so many times at once; return how many writes were in flight at most."""
    now, most = 0, 0

    async def one() -> None:
        nonlocal now, most
        async with concurrency.acquire():
            now += 1
            most = max(most, now)
            await clock.sleep(seconds)
            now -= 1

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    while not all(task.done() for task in tasks):
        await clock.advance(seconds)
    return most


async def test_it_grows_while_answers_are_quick() -> None:
    """But not without end."""
    clock = VirtualClock()
    concurrency = AdaptiveConcurrency(clock)
    before = concurrency.limit
    assert await write(concurrency, clock, 0.01, 100) >= before
    for _ in range(100):
        await write(concurrency, clock, 0.01, 200)
    assert before < concurrency.limit <= 128


async def test_it_shrinks_when_they_are_slow() -> None:
    """And lets the API server breathe."""
    clock = VirtualClock()
    concurrency = AdaptiveConcurrency(clock)
    await write(concurrency, clock, 0.01, 100)
    before = concurrency.limit
    for _ in range(10):
        await write(concurrency, clock, 1.0, 100)
    assert concurrency.limit < before / 2
    assert concurrency.limit >= 1


async def test_what_is_quick_for_any_write_is_not_slow() -> None:
    """One answer was quicker still, when nothing else was written; that makes no other one slow."""
    clock = VirtualClock()
    concurrency = AdaptiveConcurrency(clock)
    await write(concurrency, clock, 0.001, 1)
    before = concurrency.limit
    for _ in range(10):
        await write(concurrency, clock, 0.05, 100)
    assert concurrency.limit > before


async def test_a_cancelled_write_frees_its_place() -> None:
    """Whether the write was admitted or not."""
    clock = VirtualClock()
    concurrency = AdaptiveConcurrency(clock)
    tasks = [
        asyncio.create_task(acquire_forever(concurrency)) for _ in range(concurrency.limit + 10)
    ]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    before = concurrency.limit
    assert await write(concurrency, clock, 0.01, before) == before


async def acquire_forever(concurrency: AdaptiveConcurrency) -> None:
    async with concurrency.acquire():
        await asyncio.Event().wait()


async def test_a_throttled_window_is_halved_once_for_one_wave() -> None:
    """Many answers of one moment count once."""
    clock = VirtualClock()
    concurrency = AdaptiveConcurrency(clock)
    await write(concurrency, clock, 0.01, 32)
    await clock.advance(1)
    before = concurrency.limit
    for _ in range(20):
        concurrency.throttled()
    assert concurrency.limit == before // 2
