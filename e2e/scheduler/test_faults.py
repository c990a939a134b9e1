"""What may happen to the scheduler, and to the API server behind it."""

import asyncio

from e2e.cluster.resources import PODS, TRAINJOBS
from e2e.cluster.timeline import State
from e2e.front.install import PODGROUPS
from e2e.front.ours import is_complete
from e2e.scheduler.conftest import House
from e2e.scheduler.test_gangs import bound, submit

_WATCHED = (TRAINJOBS, PODGROUPS, PODS)


class FirstTwo:
    """Picks every bind but the first two."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, method: str, path: str) -> bool:
        """Say whether to refuse this."""
        if method != "POST" or not path.endswith("/binding"):
            return False
        self.seen += 1
        return self.seen > 2


async def test_killed_between_two_binds_of_a_gang(own_house: House) -> None:
    """Whoever leads next binds the others."""
    async with own_house.cluster.timeline(*_WATCHED, namespace="room") as seen:
        own_house.proxy.burst(503, 1000, applies=FirstTwo(), retry_after_s=None)
        await submit(own_house, "room", nodes=8)
        await seen.until(lambda state: bound(state) == 2, "two are bound")
        await own_house.scheduler.kill()
        own_house.proxy.burst(503, 0)
        await asyncio.sleep(0.5)
        assert bound(seen.state) == 2
        await own_house.scheduler.start()
        await seen.until(is_complete, "the gang is Complete")


async def test_a_storm_of_refusals(own_house: House) -> None:
    """429 is waited out, and fewer binds are under way meanwhile."""
    async with own_house.cluster.timeline(*_WATCHED, namespace="room") as seen:
        own_house.proxy.burst(429, 60, applies=lambda method, _: method == "POST")
        for i in range(4):
            await submit(own_house, "room", f"job-{i}", nodes=4)
        await seen.until(is_complete, "all are Complete", 60)
    assert not own_house.proxy.refusals_left


async def test_the_api_server_is_started_again(own_house: House) -> None:
    """In the middle of the work: nothing is lost, and nothing is bound twice."""
    apiserver = own_house.cluster.process("kube-apiserver")
    async with own_house.cluster.timeline(*_WATCHED, namespace="room") as seen:
        for i in range(4):
            await submit(own_house, "room", f"job-{i}", nodes=4, run_for="3s")
        await seen.until(_some_run, "some run")
    await apiserver.kill()
    apiserver.start()
    await own_house.cluster.ready("kube-apiserver")
    async with own_house.cluster.timeline(*_WATCHED, namespace="room") as seen:
        for i in range(4, 6):
            await submit(own_house, "room", f"job-{i}", nodes=4)
        await seen.until(is_complete, "all are Complete", 90)


def _some_run(state: State) -> bool:
    return any(bound(state, f"job-{i}") for i in range(4))
