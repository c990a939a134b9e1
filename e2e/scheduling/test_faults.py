"""What may happen to the scheduler, and to the API server behind it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from e2e.cluster.resources import JOBSETS, LEASES, NODES, PODS, TRAINJOBS
from e2e.cluster.timeline import Key, State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import is_complete, pods_in
from e2e.fixtures.processes import NAMESPACE, SCHEDULER, running
from e2e.fixtures.trainjobs import end_stage_now
from e2e.scheduling.gang_check import check_gangs
from e2e.scheduling.test_gangs import bound, submit

_WATCHED = (TRAINJOBS, PODGROUPS, PODS)
_LEASE: Final = Key(LEASES, NAMESPACE, "trainer-kai-scheduler")


class FirstTwo:
    """Picks every bind but the first two."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, method: str, path: str) -> bool:
        """Say whether to refuse this."""
        if not _is_bind(method, path):
            return False
        self.seen += 1
        return self.seen > 2


async def test_killed_between_two_binds_of_a_gang(
    damaged_installation: Installation, damaged_namespace: str
) -> None:
    """Whoever leads next binds the others."""
    async with damaged_installation.cluster.timeline(
        *_WATCHED, namespace=damaged_namespace
    ) as seen:
        damaged_installation.proxy.burst(503, 1000, applies=FirstTwo(), retry_after_s=None)
        await submit(damaged_installation, damaged_namespace, nodes=8)
        await seen.until(lambda state: bound(state) == 2, "two are bound")
        await damaged_installation.scheduler.kill()
        damaged_installation.proxy.burst(503, 0)
        await asyncio.sleep(0.5)
        assert bound(seen.state) == 2
        await damaged_installation.scheduler.start()
        await seen.until(is_complete, "the gang is Complete")


async def test_another_takes_over(
    damaged_installation: Installation, damaged_namespace: str, tmp_path: Path
) -> None:
    """It knows all there is when the Lease runs out, and begins without another list."""
    cluster = damaged_installation.cluster
    second = SCHEDULER._replace(name="second")
    async with running(cluster, second, tmp_path):
        async with cluster.timeline(*_WATCHED, LEASES) as seen:
            # Whoever leads now binds nobody, so that all are there when the Lease runs out.
            damaged_installation.proxy.burst(503, 1000, applies=_is_bind, retry_after_s=None)
            await submit(damaged_installation, damaged_namespace, nodes=8, run_for="600s")
            await seen.until(lambda state: len(pods_in(state)) == 8, "its pods are there")
            await damaged_installation.scheduler.kill()
            first = _leader(seen.state)
            assert bound(seen.state) == 0
            mark = await cluster.audit.mark()
            await seen.until(lambda state: bound(state) == 8, "the gang is bound")
            asked = await cluster.audit.requests(mark)
        damaged_installation.proxy.burst(503, 0)
        await damaged_installation.scheduler.start()

    assert _leader(seen.state) not in ("", first)
    ours = Counter((it.verb, it.resource) for it in asked if it.user.endswith(SCHEDULER.account))
    assert ours["create", "pods/binding"] == 8
    assert [it for it in ours if it[0] == "list"] == []


@pytest.mark.soak
async def test_a_paused_leader_binds_nothing_when_it_wakes_up(
    damaged_installation: Installation, damaged_namespace: str, tmp_path: Path
) -> None:
    """It is paused in the middle of a gang, loses its Lease, and goes on beside the new leader."""
    cluster, proxy = damaged_installation.cluster, damaged_installation.proxy
    first = damaged_installation.scheduler
    async with cluster.timeline(*_WATCHED, LEASES, JOBSETS, NODES) as seen:
        proxy.burst(503, 1000, applies=FirstTwo(), retry_after_s=None)
        await submit(damaged_installation, damaged_namespace, nodes=8, run_for="600s")
        await seen.until(lambda state: bound(state) == 2, "two are bound")
        paused = _leader(seen.state)
        async with running(cluster, SCHEDULER._replace(name="second"), tmp_path):
            first.process.pause()
            proxy.burst(503, 0)
            await seen.until(lambda state: _leader(state) not in ("", paused), "another leads", 60)
            await seen.until(lambda state: bound(state) == 8, "the gang is bound", 60)
            first.process.resume()
            await submit(damaged_installation, damaged_namespace, "next", run_for="600s")
            await seen.until(lambda state: bound(state, "next") == 4, "the next one is bound")
            assert _leader(seen.state) != paused
        await end_stage_now(cluster, pods_in(seen.state))
        await first.kill()  # it ended as it found its Lease lost; a Deployment starts it again
        await first.start()

    assert check_gangs(seen.history()).faults == []


def _is_bind(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/binding")


def _leader(state: State) -> str:
    """Return who has the Lease of the scheduler."""
    spec = state[_LEASE]["spec"] if _LEASE in state else {}
    holder: str = spec.get("holderIdentity", "")
    return holder


async def test_a_storm_of_refusals(
    damaged_installation: Installation, damaged_namespace: str
) -> None:
    """429 is waited out, and fewer binds are under way meanwhile."""
    async with damaged_installation.cluster.timeline(
        *_WATCHED, namespace=damaged_namespace
    ) as seen:
        damaged_installation.proxy.burst(429, 60, applies=lambda method, _: method == "POST")
        for i in range(4):
            await submit(damaged_installation, damaged_namespace, f"job-{i}", nodes=4)
        await seen.until(is_complete, "all are Complete", 60)
    assert not damaged_installation.proxy.refusals_left


async def test_the_api_server_is_started_again(
    damaged_installation: Installation, damaged_namespace: str
) -> None:
    """In the middle of the work: nothing is lost, and nothing is bound twice."""
    async with damaged_installation.cluster.timeline(
        *_WATCHED, namespace=damaged_namespace
    ) as seen:
        for i in range(4):
            await submit(damaged_installation, damaged_namespace, f"job-{i}", nodes=4, run_for="3s")
        await seen.until(_some_run, "some run")
    await damaged_installation.cluster.restart_api_server()
    async with damaged_installation.cluster.timeline(
        *_WATCHED, namespace=damaged_namespace
    ) as seen:
        # KWOK gives up what an API server that ends or starts does not do, until a pod changes.
        await end_stage_now(damaged_installation.cluster, pods_in(seen.state))
        for i in range(4, 6):
            await submit(damaged_installation, damaged_namespace, f"job-{i}", nodes=4)
        await seen.until(is_complete, "all are Complete", 90)


def _some_run(state: State) -> bool:
    return any(bound(state, f"job-{i}") for i in range(4))
