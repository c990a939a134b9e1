"""A chain with the kinds of all operators: one node of eight GPUs, a lender and a borrower."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.admission_grouping.test_kinds import reading_rights
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.resources import Obj
from e2e.conftest import failed
from e2e.fixtures.gpu_agents import install_runtime_class
from e2e.fixtures.install import apply, apply_all, install
from e2e.fixtures.installation import Installation, namespace_in
from e2e.fixtures.processes import PODGROUPER, SCHEDULER, WEBHOOK, running, webhook_port
from e2e.fixtures.trainjobs import make_queue
from e2e.kinds.stand_ins import MODELS, definitions


@asynccontextmanager
async def installed_beside_kube_scheduler(
    name: str, folder: Path, kinds: Iterable[Obj]
) -> AsyncIterator[Installation]:
    """Run a chain on which some kinds are served before our processes start."""
    async with running_cluster(Options(name=name, kube_scheduler=True)) as cluster:
        await cluster.add_nodes(1)
        await apply_all(cluster, [*kinds])
        await install_runtime_class(cluster)
        await install(cluster, port=webhook_port(cluster))
        async with (
            running(cluster, WEBHOOK, folder) as webhook,
            running(cluster, PODGROUPER, folder),
            cluster.proxy() as proxy,
            running(cluster, SCHEDULER, folder, {}, proxy.url) as ours,
        ):
            await make_queue(cluster, "owner", 8)
            await make_queue(cluster, "borrower", 0)
            yield Installation(cluster, ours, proxy, webhook)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def kinds_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("kinds")
    async with installed_beside_kube_scheduler("test-kinds", folder, definitions()) as shared:
        for it in reading_rights(MODELS):
            await apply(shared.cluster, it)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def kinds_namespace(kinds_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there, empty again afterwards."""
    async with namespace_in(kinds_installation, "owner", "borrower") as name:
        yield name
