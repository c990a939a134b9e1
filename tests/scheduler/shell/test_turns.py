"""When a turn begins: soon, but not for each piece of news, nor for what helps nobody."""

from tests.scheduler.shell.conftest import House
from tests.support.clusters import gang, node, pod

_READY = [{"type": "Ready", "status": "True"}]


async def test_a_burst_is_one_plan_or_a_few(house: House) -> None:
    """A turn waits for a pause, and for no longer than a moment."""
    house.api.put(node("a", gpu=100, has={"pods": "500"}))
    async with house.leading():
        before = house.plans
        for i in range(100):
            house.api.put(pod(f"p{i}"))
            await house.passes(0.002)
        await house.passes(0.1)

        assert len(house.api.where()) == 100
        assert house.plans - before <= 6


async def test_long_turns_are_few(house: House) -> None:
    """After one comes a rest that is three times as long, but news waits for a moment only."""
    house.api.put(node("a", gpu=200, has={"pods": "500"}))
    house.planning_s = 0.03
    async with house.leading():
        await house.passes(2)
        before = house.plans
        for i in range(100):  # 800 ms, and each is a pause
            house.api.put(pod(f"p{i}"))
            await house.passes(0.008)
        assert house.plans - before <= 16  # else there would be 20, of 30 ms and a pause each

        await house.passes(1)
        assert len(house.api.where()) == 100
        house.api.put(pod("last"))
        await house.passes(0.035)
        assert len(house.api.where()) == 101  # it has rested, and begins at once


async def test_strangers_make_no_plan(house: House) -> None:
    """Nobody waits: what others want is nothing to us, and where they lie is looked at later."""
    house.api.put(node("a"), *gang("g", 2))
    async with house.leading():
        await house.passes(2)
        before = house.plans
        for i in range(5):
            house.api.put(pod(f"s{i}", schedulerName="else"))
            await house.passes(0.02)
        house.api.delete("Pod", "s4")
        await house.passes(2)
        assert house.plans == before

        for i in range(4):
            house.api.put(pod(f"s{i}", node="a", schedulerName="else"))
            await house.passes(0.02)
        await house.passes(2)
        assert house.plans - before <= 1


async def test_a_stranger_may_be_whom_somebody_waits_for(house: House) -> None:
    """A pod that wants to be near another one goes there as soon as that has its node."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    house.api.put(node("a", labels={"zone": "z"}), pod("p", affinity=near))
    async with house.leading():
        await house.passes(2)
        assert house.api.where() == {}
        meta = {"labels": {"app": "db"}}
        house.api.put(pod("db", node="a", schedulerName="else", meta=meta))
        await house.passes(0.1)
        assert house.api.where() == {"db": "a", "p": "a"}


async def test_a_stranger_that_is_made_anew_has_left(house: House) -> None:
    """The watch tells of its end and of the next one of its name in one: its room is free."""
    house.api.put(node("a", gpu=1), pod("db", node="a", schedulerName="else"), pod("p"))
    async with house.leading():
        await house.passes(2)
        assert house.api.where() == {"db": "a"}
        house.api.put(pod("db", schedulerName="else", meta={"uid": "db-2"}))
        await house.passes(0.1)
        assert house.api.where() == {"p": "a"}


async def test_what_helps_nobody_makes_no_plan(house: House) -> None:
    """Nobody waits: pods that start, and what we did ourselves, are no news."""
    house.api.put(node("a"), *gang("g", 2))
    async with house.leading():
        await house.passes(2)  # what they have is looked at once more
        before = house.plans
        for name in ("g0", "g1"):
            running = {**pod(name, "g", node="a"), "status": {"phase": "Running"}}
            house.api.put(running)
            house.api.put({**running, "status": {"phase": "Running", "conditions": _READY}})
        house.api.put(node("a", conditions=_READY))
        await house.passes(1)

        assert house.plans == before
