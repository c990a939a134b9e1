"""Faults during reclaim: crashes, and mistakes of the administrators."""

import asyncio
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from e2e.cluster.resources import TRAINJOBS
from e2e.cluster.timeline import State
from e2e.conftest import make_namespace
from e2e.fixtures.installation import Installation, run_installation
from e2e.fixtures.queues import delete_queue_in_use
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    complete,
    failures,
    has_no_annotation,
    is_suspended,
    kubelets_paused,
    let_finish,
    make_queue,
    on_nodes,
    resumptions,
    submit,
    suspensions,
)
from e2e.size import size

_TIMES: Final = size(2, 20)
_LONG_ENOUGH_S = 6.0  # for several plans, also without news


@pytest.mark.sized
@pytest.mark.timeout(600)
async def test_killed_between_suspend_and_resume(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Each time the scheduler that leads next resumes it, and nothing of ours stays behind."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        await submit(cluster, two_teams_namespace, Job("victim", "borrower", 8))
        for i in range(_TIMES):
            await seen.until(on_nodes("victim", 8), f"the borrower runs, killed {i} times", 60)
            with kubelets_paused(cluster):  # nobody resumes it before its pods are gone
                await submit(cluster, two_teams_namespace, Job(f"owner-{i}", "owner", 8, "1s"))
                await seen.until(is_suspended("victim"), "it makes room")
                await two_teams_installation.scheduler.kill()
            await two_teams_installation.scheduler.start()
            await seen.until(complete(f"owner-{i}"), "whoever owns the GPUs has run", 60)
        await let_finish(cluster, seen, "victim", 8)
        history = seen.history()

        assert failures(seen.state, "victim") == (0, 0)
        assert has_no_annotation("victim", "trainer-kai.dev/evicted-by")(seen.state)
    assert (suspensions(history, "victim"), resumptions(history, "victim")) == (_TIMES, _TIMES)


async def test_no_eviction_while_a_queue_is_missing(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """The tree is deleted by mistake: all that runs goes on, and claims wait until it is back."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        await submit(cluster, two_teams_namespace, Job("victim", "borrower", 8))
        await seen.until(on_nodes("victim", 8), "the borrower runs")
        for name in ("owner", "borrower"):
            await delete_queue_in_use(cluster, name)
        await submit(cluster, two_teams_namespace, Job("claim", "owner", 8, "1s"))
        await asyncio.sleep(_LONG_ENOUGH_S)
        await make_queue(cluster, "owner", 8)
        await asyncio.sleep(_LONG_ENOUGH_S)
        assert on_nodes("victim", 8)(seen.state)
        await make_queue(cluster, "borrower", 0)
        await seen.until(complete("claim"), "the claim is met", 60)
        await let_finish(cluster, seen, "victim", 8)
        history = seen.history()

    assert suspensions(history, "victim") == 1


async def test_a_mistake_does_not_empty_a_cluster(tmp_path: Path) -> None:
    """All of it is claimed at once: within a minute 64 GPUs are taken back, and no more."""
    async with run_installation("test-breaker", tmp_path, 2, 64) as installation:
        cluster = installation.cluster
        own_namespace = "mistake"
        await make_namespace(cluster, own_namespace)
        await make_queue(cluster, "owner", 128, own_namespace)
        await make_queue(cluster, "borrower", 0, own_namespace)
        async with cluster.timeline(*WATCHED, namespace=own_namespace) as seen:
            for i in range(16):
                await submit(cluster, own_namespace, Job(f"b{i}", "borrower", 1, gpus=8))
            await seen.until(lambda state: running(state, "b") == 16, "all borrowers run", 60)
            for i in range(16):
                await submit(cluster, own_namespace, Job(f"o{i}", "owner", 1, gpus=8))
            await seen.until(lambda state: running(state, "o") == 8, "some owners run", 60)
            await asyncio.sleep(_LONG_ENOUGH_S)
            assert (running(seen.state, "b"), running(seen.state, "o")) == (8, 8)
            (line,) = [
                it for it in await metrics(installation) if it.startswith("trainer_kai_claims_")
            ]
            assert float(line.split()[-1]) >= 8


def running(state: State, begin: str) -> int:
    """Return how many TrainJobs of such a name have their one pod running."""
    jobs = [key.name for key in state if key.resource == TRAINJOBS and key.name.startswith(begin)]
    return sum(on_nodes(name, 1)(state) for name in jobs)


async def metrics(installation: Installation) -> list[str]:
    """Return what the scheduler counts, line by line."""
    url = installation.scheduler.ready_url.replace("/readyz", "/metrics")
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return (await answer.text()).splitlines()
