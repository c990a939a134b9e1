"""Waiting for tasks ends with the time, and a group of errors is read like one."""

import asyncio

from tests.support.clock import VirtualClock
from trainer_kai.kube.process.tasks import (
    cancel_all,
    errors_if_all_are,
    errors_in_group,
    finish_within,
)

A, B, C = ValueError("a"), ValueError("b"), KeyError("c")


def test_leaves() -> None:
    """All of them, however deep, in order; one alone is itself."""
    group = ExceptionGroup("", [A, ExceptionGroup("", [ExceptionGroup("", [B]), C])])

    assert (errors_in_group(group), errors_in_group(A)) == ([A, B, C], [A])


def test_only() -> None:
    assert errors_if_all_are(ValueError, ExceptionGroup("", [A, B])) == [A, B]
    assert errors_if_all_are(ValueError, ExceptionGroup("", [A, C])) is None
    assert (errors_if_all_are(LookupError, C), errors_if_all_are(LookupError, A)) == ([C], None)


async def test_a_task_that_ends_in_time_is_waited_for() -> None:
    """The wait is over with the last task, not with the time."""
    clock = VirtualClock()
    tasks = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 3)]
    waiting = asyncio.create_task(finish_within(clock, 5, tasks))

    await clock.advance(2.5)
    early = waiting.done()
    await clock.advance(0.5)

    assert (early, await waiting, clock.waits_s) == (False, set(), [])


async def test_a_task_that_does_not_end_in_time_is_returned_and_left_running() -> None:
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
