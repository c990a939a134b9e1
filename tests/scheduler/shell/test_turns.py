"""When a turn begins: soon, but not for each piece of news, nor for what helps nobody."""

from tests.scheduler.shell.conftest import House
from tests.support.clusters import gang, node, pod

_READY = [{"type": "Ready", "status": "True"}]


def longest_wait_s(house: House, put_s: list[float]) -> float:
    """Return how long news ever waited for a plan, but for the end of one that was under way."""
    waits_s = []
    for at_s in put_s:
        last_s, next_s = (
            max(it for it in house.began_s if it < at_s),
            min(it for it in house.began_s if it >= at_s),
        )
        waits_s.append(next_s - max(at_s, last_s + house.planning_s - 0.05))
    return round(max(waits_s), 6)


async def test_a_burst_is_one_plan_or_a_few(house: House) -> None:
    """A turn waits for a pause, and for no longer than a moment."""
    house.api.put(node("a", gpu=100, has={"pods": "500"}))
    async with house.leading():
        before, put_s = house.plans, []
        for i in range(100):
            put_s.append(house.api.clock.monotonic_s())
            house.api.put(pod(f"p{i}"))
            await house.passes(0.002)
        await house.passes(0.1)

        assert len(house.api.where()) == 100
        assert house.plans - before <= 6
        assert longest_wait_s(house, put_s) <= 0.05


async def test_long_turns_are_few(house: House) -> None:
    """After one comes a rest that is three times as long, but news waits for a moment only."""
    house.api.put(node("a", gpu=200, has={"pods": "500"}))
    house.planning_s = 0.03
    async with house.leading():
        await house.passes(2)
        before, put_s = house.plans, []
        for i in range(100):  # 800 ms, and each is a pause
            put_s.append(house.api.clock.monotonic_s())
            house.api.put(pod(f"p{i}"))
            await house.passes(0.008)
        assert house.plans - before <= 16  # else there would be 20, of 30 ms and a pause each

        await house.passes(1)
        assert len(house.api.where()) == 100
        assert longest_wait_s(house, put_s) <= 0.05


async def test_there_is_no_rest_without_news(house: House) -> None:
    """What comes alone is planned for at once, however lately something else did."""
    house.api.put(node("a"))
    house.planning_s = 0.03
    async with house.leading():
        await house.passes(2)
        house.api.put(pod("first"))
        await house.passes(0.036)
        assert len(house.api.where()) == 1
        at_s = house.api.clock.monotonic_s()
        house.api.put(pod("second"))
        await house.passes(0.035)
        assert len(house.api.where()) == 2
        assert house.began_s[-1] - at_s <= 0.01


async def test_news_of_a_long_plan_has_waited_already(house: House) -> None:
    """What ended while a plan was made helps whom it says to wait: they are seen to at once."""
    house.api.put(node("a", gpu=1), pod("p"))
    async with house.leading():
        await house.passes(2)
        house.planning_s = 0.3
        house.api.put(*gang("g", 1))
        await house.passes(0.05)
        house.api.delete("Pod", "p")
        at_s = house.began_s[-1]
        await house.passes(0.3)
        assert house.began_s[-1] - at_s <= 0.302
        await house.passes(0.3)
        assert house.api.where() == {"g0": "a"}


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
        assert house.plans - before == 1


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
