"""Clusters with all our processes, each under its own ServiceAccount."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from e2e.conftest import failed, make_namespace
from e2e.fixtures.installation import Installation, namespace_in, run_installation
from e2e.fixtures.trainjobs import make_queue
from trainer_kai.service.settings import LeaderSettings

_SHIPPED_LEASE: Final = {  # a Lease as it is shipped: nobody here waits for another leader
    f"TRAINER_KAI_LEADER_{name.upper()}": str(LeaderSettings.model_fields[name].default)
    for name in ("lease_s", "renew_deadline_s", "retry_s", "write_s")
}
_WITH_KUEUE: Final = {"TRAINER_KAI_KUEUE": "true"}


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return the chain that all tests here share, eight nodes of eight; none of them harms it."""
    folder = tmp_path_factory.mktemp("house")
    async with run_installation("test-house", folder, 8, settings=_SHIPPED_LEASE) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def own_namespace(installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own."""
    async with namespace_in(installation) as name:
        yield name


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def one_node_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with one node of six GPUs, for the tests of one module."""
    async with run_installation("test-narrow", tmp_path_factory.mktemp("narrow"), 1, 6) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def one_node_namespace(one_node_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there; it is empty when the next test begins."""
    async with namespace_in(one_node_installation) as name:
        yield name


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def damaged_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with two nodes, to do it harm that each test makes good again."""
    async with run_installation("test-battered", tmp_path_factory.mktemp("battered"), 2) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def damaged_namespace(damaged_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there; nothing is broken when the next one begins."""
    async with namespace_in(damaged_installation) as name:
        yield name
        damaged_installation.proxy.burst(503, 0)
        for process in (
            damaged_installation.cluster.process("kube-apiserver"),
            damaged_installation.scheduler.process,
        ):
            if process.identity is None:
                process.start()
        await damaged_installation.cluster.ready("kube-apiserver")
        await damaged_installation.scheduler.ready()


@pytest_asyncio.fixture(loop_scope="session")
async def own_installation(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Installation]:
    """Return a chain of the test's own with two nodes, to do it harm; settings may be given."""
    settings: Mapping[str, str] = getattr(request, "param", {})
    async with run_installation("test-own-house", tmp_path, 2, settings=settings) as own:
        await make_namespace(own.cluster, "room")
        yield own
        if failed(request.node):
            own.cluster.keep_logs()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def two_teams_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with one node of eight GPUs, of which a team owns all, and one none."""
    folder = tmp_path_factory.mktemp("teams")
    async with run_installation("test-teams", folder, 1, 8, _WITH_KUEUE) as shared:
        await make_queue(shared.cluster, "owner", 8)
        await make_queue(shared.cluster, "borrower", 0)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def two_teams_namespace(two_teams_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there; it is empty when the next test begins."""
    async with namespace_in(two_teams_installation, "owner", "borrower") as name:
        yield name
