"""Waiting for tasks, but not for ever."""

import asyncio

from tests.support.clock import VirtualClock
from trainer_kai.kube.patience import cancel_all, finish_within


async def test_who_ends_in_time_is_waited_for() -> None:
    """The wait is over with the last task, not with the time."""
    clock = VirtualClock()
    tasks = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 3)]
    waiting = asyncio.create_task(finish_within(clock, 5, tasks))

    await clock.advance(2.5)
    early = waiting.done()
    await clock.advance(0.5)

    assert (early, await waiting, clock.waits_s) == (False, set(), [])


async def test_who_does_not_end_in_time_is_returned_and_left_running() -> None:
    """Time is up: the caller decides what becomes of the rest."""
    clock = VirtualClock()
    quick, slow = (asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 30))
    waiting = asyncio.create_task(finish_within(clock, 5, [quick, slow]))

    await clock.advance(5)

    assert (await waiting, slow.done()) == ({slow}, False)
    await cancel_all([slow, quick])
    assert slow.cancelled()


async def test_nothing_to_wait_for_takes_no_time() -> None:
    """Tasks that ended already need no clock."""
    clock = VirtualClock()
    done = asyncio.create_task(clock.sleep(0))
    await clock.advance(0)

    assert await finish_within(clock, 5, [done]) == set()
    assert clock.waits_s == []
