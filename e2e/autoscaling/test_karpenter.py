"""Karpenter itself, with its KWOK provider, for gangs that wait for nodes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.autoscaling.karpenter import NODE_CLAIMS, PROGRAM, karpenter, set_pool
from e2e.autoscaling.test_nodes_come_and_go import make_queue, marked, says
from e2e.cluster.binaries import ensure_built
from e2e.cluster.resources import NODES, PODS, TRAINJOBS
from e2e.cluster.timeline import State, replay
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import pods_in
from e2e.fixtures.trainjobs import Job, failures, is_gone, on_nodes, submit

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]  # the first run builds it

_WATCHED = (TRAINJOBS, PODGROUPS, PODS, NODES)


@pytest.fixture(scope="session")
def program() -> str:
    """Build it before the chain is up: that takes minutes, in which nothing else runs here."""
    return str(ensure_built(PROGRAM).program(PROGRAM))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_karpenter(
    program: str, autoscaled: Installation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("karpenter")
    async with karpenter(autoscaled.cluster, program, folder):
        yield autoscaled


def claims(state: State) -> int:
    return sum(key.resource == NODE_CLAIMS for key in state)


async def test_karpenter_adds_what_gangs_need_and_may_have(
    with_karpenter: Installation, autoscaled_namespace: str
) -> None:
    """Four nodes for a gang, none twice, none for gangs beyond a limit; then they go."""
    cluster = with_karpenter.cluster
    await make_queue(with_karpenter, "karpenter", autoscaled_namespace, 16)
    async with cluster.timeline(*_WATCHED, NODE_CLAIMS) as seen:
        await submit(cluster, autoscaled_namespace, Job("gang", "default-queue", 4, gpus=8))
        await seen.until(on_nodes("gang", 4), "it runs", 180)
        for i in range(10):
            await submit(cluster, autoscaled_namespace, Job(f"more-{i}", "karpenter", 2, gpus=8))
        await seen.until(
            lambda state: sum(bool(it["spec"].get("nodeName")) for it in pods_in(state)) == 6,
            "one of the others runs",
            180,
        )
        await seen.until(says("queue karpenter is at its limit"), "the others say why", 60)
        assert claims(seen.state) == 6
        await cluster.api.request("DELETE", TRAINJOBS.path(autoscaled_namespace))
        await seen.until(is_gone("gang"), "its pods are gone", 60)
        await seen.until(lambda state: claims(state) == 0, "the nodes go", 180)
    made = {it.key for it, _ in replay(seen.history()) if it.key.resource == NODE_CLAIMS}
    assert len(made) <= 8  # another pair of nodes for the gang that came next in its queue


async def test_karpenter_takes_back_what_is_not_enough(
    with_karpenter: Installation, autoscaled_namespace: str
) -> None:
    """Three of four nodes fit its pool: they go, and all four come when the pool is larger."""
    cluster = with_karpenter.cluster
    await set_pool(cluster, 24)
    async with cluster.timeline(*_WATCHED, NODE_CLAIMS) as seen:
        await submit(cluster, autoscaled_namespace, Job("gang", "default-queue", 4, gpus=8))
        await seen.until(lambda state: claims(state) == 3, "three nodes come", 120)
        await seen.until(lambda state: len(marked(state)) == 4, "it asks", 60)
        await seen.until(lambda state: not marked(state), "it gives up", 120)
        await seen.until(says("; released after"), "it says so", 90)
        await seen.until(lambda state: claims(state) == 0, "the nodes go", 180)
        await set_pool(cluster, 64)
        await seen.until(on_nodes("gang", 4), "it runs", 240)
        assert failures(seen.state, "gang") == (0, 0)
        await cluster.api.request("DELETE", TRAINJOBS.path(autoscaled_namespace))
        await seen.until(lambda state: claims(state) == 0, "the nodes go", 180)
