"""While another scheduler of our name is there: what is said on PodGroups, once, and taken away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from scheduler.shell.pause import Pause
from scheduler.shell.report import PAUSED
from tests.scheduler.shell.conftest import House
from tests.scheduler.shell.test_departures import trainjob
from tests.support.clusters import group, node, pod
from trainer_kai.cli.titles import Title
from trainer_kai.log import logger

_WHY = "scheduler paused: another scheduler holds Lease kai-scheduler/kai-scheduler (holder kai-0)"


@asynccontextmanager
async def paused(house: House) -> AsyncIterator[None]:
    """Be paused, inside."""
    house.api.heard_by(house.live)
    pause = Pause(house.api.client, house.live, house.recorder, _WHY, logger("test"))
    tasks = [asyncio.create_task(it) for it in (house.recorder.run(), pause.run())]
    await house.passes(0.1)
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def conditions(house: House, name: str) -> list[dict[str, Any]]:
    """Return the conditions of a PodGroup."""
    found: list[dict[str, Any]] = (
        house.api.get("PodGroup", name).get("status", {}).get("schedulingConditions", [])
    )
    return found


async def test_a_pod_group_that_waits_is_told_once(house: House) -> None:
    """By a condition, and by Events on it and on its TrainJob; one that runs is not."""
    house.api.put(node("a"), group("w"), pod("w0", "w"), *trainjob("j", "a"))
    house.api.put(pod("j9", "pg-j"))
    async with paused(house):
        await house.passes(600)

    assert house.api.said() == ["patch podgroups/status w", "patch podgroups/status pg-j"]
    (condition,) = conditions(house, "w")
    assert (condition["type"], condition["message"]) == (PAUSED, _WHY)
    assert condition["reasons"] == [{"reason": PAUSED, "message": _WHY}]
    told = {(who, PAUSED) for who in ("PodGroup w", "PodGroup pg-j", "TrainJob j")}
    assert sorted(house.events()) == sorted(told)
    assert str(Title.SCHEDULER_PAUSED) == PAUSED


async def test_a_pod_group_that_does_not_wait_for_us_is_left_alone(house: House) -> None:
    """Its pods run, there are none, or another scheduler is asked."""
    house.api.put(node("a"), group("r"), pod("r0", "r", node="a"), group("empty"), group("o"))
    theirs = pod("o0", "o")
    theirs["spec"]["schedulerName"] = "default-scheduler"
    house.api.put(theirs)
    async with paused(house):
        await house.passes(60)

    assert house.api.said() == []


async def test_what_the_other_scheduler_says_stands(house: House) -> None:
    """Its condition stays before ours; if it then writes its own alone, we do not write again."""
    theirs = {"type": "UnschedulableOnNodePool", "nodePool": "default", "reason": "Unschedulable"}
    waiting = {**group("w"), "status": {"schedulingConditions": [theirs]}}
    house.api.put(waiting, pod("w0", "w"))
    async with paused(house):
        assert [it["type"] for it in conditions(house, "w")] == [theirs["type"], PAUSED]
        house.api.put(waiting)
        await house.passes(600)

    assert house.api.said() == ["patch podgroups/status w"]


async def test_it_is_written_over_the_version_that_was_seen(house: House) -> None:
    """A conflict is nothing: it is looked at again as it is by then."""
    refusals = [409]
    house.api.refuse = lambda _: refusals.pop() if refusals else None
    house.api.put(group("w"), pod("w0", "w"))
    version = house.api.get("PodGroup", "w")["metadata"]["resourceVersion"]
    async with paused(house):
        assert not house.api.said()
        await house.passes(5)

    body = house.api.body("patch podgroups/status w")
    assert body["metadata"] == {"uid": "w", "resourceVersion": version}


async def test_many_are_told_bit_by_bit(house: House) -> None:
    """At most 50 a second."""
    for number in range(200):
        house.api.put(group(f"w{number}"), pod(f"w{number}-0", f"w{number}"))
    async with paused(house):
        await house.passes(0.9)
        assert 20 <= len(house.api.said()) <= 52
        await house.passes(10)

    assert len(house.api.said()) == 200


async def test_the_next_leader_does_not_say_it_again(house: House) -> None:
    """It stands there."""
    house.api.put(group("w"), pod("w0", "w"))
    async with paused(house):
        pass
    async with paused(house.again()):
        await house.passes(60)

    assert house.api.said() == ["patch podgroups/status w"]


async def test_it_goes_when_we_schedule_again(house: House) -> None:
    """Also where it was said beside a verdict, of which there is a new one."""
    house.api.put(node("a", gpu=1), group("w"), pod("w0", "w"))
    house.api.put(group("n"), pod("n0", "n", asks={"nvidia.com/gpu": "8"}))
    async with paused(house):
        assert conditions(house, "n")
    async with house.leading():
        await house.passes(5)

    assert conditions(house, "w") == []
    assert [it["type"] for it in conditions(house, "n")] == ["UnschedulableOnNodePool"]
