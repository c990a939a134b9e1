"""While another scheduler has our name: PodGroups get one condition, which is removed again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from scheduler.shell.report.status import PAUSED, PauseReporter
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import group, node, pod, trainjob
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.service.log import logger

_WHY = "scheduler paused: another scheduler holds Lease kai-scheduler/kai-scheduler (holder kai-0)"


@asynccontextmanager
async def paused(harness: SchedulerHarness) -> AsyncIterator[None]:
    """Be paused, inside."""
    harness.api.deliver_to(harness.cache)
    pause = PauseReporter(harness.api.client, harness.cache, harness.recorder, _WHY, logger("test"))
    tasks = [asyncio.create_task(it) for it in (harness.recorder.run(), pause.run())]
    await harness.advance(0.1)
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def conditions(harness: SchedulerHarness, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        harness.api.get("PodGroup", name).get("status", {}).get("schedulingConditions", [])
    )
    return found


async def test_a_pod_group_that_waits_is_reported_once(harness: SchedulerHarness) -> None:
    """By a condition, and by Events on it and on its TrainJob; one that runs is not."""
    harness.api.put(node("a"), group("w"), pod("w0", "w"), *trainjob("j", "a"))
    harness.api.put(pod("j9", "pg-j"))
    async with paused(harness):
        await harness.advance(600)

    assert harness.api.written() == [
        "patch podgroups/status w",
        "patch podgroups/status pg-j",
    ]
    (condition,) = conditions(harness, "w")
    assert (condition["type"], condition["message"]) == (PAUSED, _WHY)
    assert condition["reasons"] == [{"reason": PAUSED, "message": _WHY}]
    expected = {(involved, PAUSED) for involved in ("PodGroup w", "PodGroup pg-j", "TrainJob j")}
    assert sorted(harness.events()) == sorted(expected)
    assert str(UnschedulableReason.SCHEDULER_PAUSED) == PAUSED


async def test_a_pod_group_that_does_not_wait_for_us_is_left_alone(
    harness: SchedulerHarness,
) -> None:
    """Its pods run, there are none, or another scheduler is asked."""
    harness.api.put(node("a"), group("r"), pod("r0", "r", node="a"), group("empty"), group("o"))
    theirs = pod("o0", "o")
    theirs["spec"]["schedulerName"] = "default-scheduler"
    harness.api.put(theirs)
    async with paused(harness):
        await harness.advance(60)

    assert harness.api.written() == []


async def test_what_the_other_scheduler_says_stands(harness: SchedulerHarness) -> None:
    """Its condition stays before ours; if it then writes its own alone, we do not write again."""
    theirs = {"type": "UnschedulableOnNodePool", "nodePool": "default", "reason": "Unschedulable"}
    waiting = {**group("w"), "status": {"schedulingConditions": [theirs]}}
    harness.api.put(waiting, pod("w0", "w"))
    async with paused(harness):
        assert [it["type"] for it in conditions(harness, "w")] == [theirs["type"], PAUSED]
        harness.api.put(waiting)
        await harness.advance(600)

    assert harness.api.written() == ["patch podgroups/status w"]


async def test_it_is_written_over_the_version_that_was_seen(harness: SchedulerHarness) -> None:
    """After a conflict the new version is checked again."""
    refusals = [409]
    harness.api.refuse_with = lambda _: refusals.pop() if refusals else None
    harness.api.put(group("w"), pod("w0", "w"))
    version = harness.api.get("PodGroup", "w")["metadata"]["resourceVersion"]
    async with paused(harness):
        assert not harness.api.written()
        await harness.advance(5)

    body = harness.api.body("patch podgroups/status w")
    assert body["metadata"] == {"uid": "w", "resourceVersion": version}


async def test_many_are_reported_bit_by_bit(harness: SchedulerHarness) -> None:
    """At most 50 a second."""
    for number in range(200):
        harness.api.put(group(f"w{number}"), pod(f"w{number}-0", f"w{number}"))
    async with paused(harness):
        await harness.advance(0.9)
        assert 20 <= len(harness.api.written()) <= 52
        await harness.advance(10)

    assert len(harness.api.written()) == 200


async def test_the_next_leader_does_not_say_it_again(harness: SchedulerHarness) -> None:
    """The condition is there."""
    harness.api.put(group("w"), pod("w0", "w"))
    async with paused(harness):
        pass
    async with paused(harness.successor()):
        await harness.advance(60)

    assert harness.api.written() == ["patch podgroups/status w"]


async def test_it_goes_when_we_schedule_again(harness: SchedulerHarness) -> None:
    """Also beside another condition, which is replaced by a new one."""
    harness.api.put(node("a", gpu=1), group("w"), pod("w0", "w"))
    harness.api.put(group("n"), pod("n0", "n", asks={"nvidia.com/gpu": "8"}))
    async with paused(harness):
        assert conditions(harness, "n")
    async with harness.leading():
        await harness.advance(5)

    assert conditions(harness, "w") == []
    assert [it["type"] for it in conditions(harness, "n")] == ["UnschedulableOnNodePool"]
