"""Room that is taken back: who lends it gets it, and whoever had it comes back unharmed."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.cluster.resources import TRAINJOBS
from e2e.cluster.trainjobs import condition
from e2e.conftest import failed
from e2e.scheduler.conftest import House, house_on, room_in
from e2e.scheduler.teams import (
    FOLLOWED,
    Job,
    complete,
    events_of,
    failures,
    lives,
    make_queue,
    on_nodes,
    resumptions,
    submit,
    suspensions,
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def teams(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """Return a chain with one node of eight GPUs, of which a team owns all, and one none."""
    async with house_on("test-teams", tmp_path_factory.mktemp("teams"), 1, 8) as shared:
        await make_queue(shared.cluster, "owner", 8)
        await make_queue(shared.cluster, "borrower", 0)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def court(teams: House) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there."""
    async with room_in(teams) as name:
        yield name


async def test_who_is_reclaimed_five_times_reaches_complete(teams: House, court: str) -> None:
    """All eight pods leave at once each time, and not one of them counts as failed."""
    cluster = teams.cluster
    async with cluster.timeline(*FOLLOWED, namespace=court) as seen:
        await submit(cluster, court, Job("victim", "borrower", 8, "4s"))
        for i in range(5):
            await seen.until(on_nodes("victim", 8), f"the borrower runs, reclaimed {i} times")
            await submit(cluster, court, Job(f"owner-{i}", "owner", 8, "1s"))
            await seen.until(complete(f"owner-{i}"), "whoever owns the GPUs has run", 60)
        await seen.until(complete("victim"), "the borrower is Complete", 60)
        history = seen.history()

        assert failures(seen.state, "victim") == (0, 0)
        assert (suspensions(history, "victim"), resumptions(history, "victim")) == (5, 5)
        assert lives(history, "victim") == 6 * 8
        job = await cluster.api.get(TRAINJOBS, court, "victim")
        assert "trainer-kai.dev/evicted-by" not in job["metadata"].get("annotations", {})
        assert "suspend" not in {
            name
            for it in job["metadata"]["managedFields"]
            if it["manager"] == "trainer-kai-eviction"
            for name in it["fieldsV1"].get("f:spec", {})
        }
        told = await events_of(cluster, court, "victim")
        assert "queue borrower had more than its share" in told["Evicted"]
        told = await events_of(cluster, court, "owner-0")
        assert "victim" in told["Evicting"]


async def test_who_loses_its_pods_instead_is_failed(teams: House, court: str) -> None:
    """What anybody else does who takes room back: deleted pods count against the TrainJob."""
    cluster = teams.cluster
    async with cluster.timeline(*FOLLOWED, namespace=court) as seen:
        await submit(cluster, court, Job("victim", "borrower", 8))
        await seen.until(on_nodes("victim", 8), "it runs")
        await cluster.api.kill_pods(court)

        def is_failed(state: object) -> bool:
            jobs = [it for it in seen.of(TRAINJOBS) if it["metadata"]["name"] == "victim"]
            return any(condition(it, "Failed") for it in jobs)

        await seen.until(is_failed, "it has failed for good", 60)
