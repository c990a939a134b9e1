"""A chain with all our processes, nodes without GPUs as resources, and slices of devices."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.claims.devices import DRIVER, device, device_class, resource_slice
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import DEVICE_CLASSES
from e2e.conftest import failed, make_namespace
from e2e.fixtures.gpu_agents import install_runtime_class
from e2e.fixtures.install import install
from e2e.fixtures.installation import Installation, namespace_in, run_installation
from e2e.fixtures.processes import PODGROUPER, SCHEDULER, WEBHOOK, running, webhook_port


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def claims_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with two nodes of two devices each."""
    folder = tmp_path_factory.mktemp("claims")
    async with run_installation("test-claims", folder, 2, 0) as shared:
        await shared.cluster.api.create(device_class())
        for node in ("node-0", "node-1"):
            devices = [device(f"gpu-{n}") for n in range(2)]
            await shared.cluster.api.create(resource_slice(node, devices))
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def claims_namespace(claims_installation: Installation) -> AsyncIterator[str]:
    async with namespace_in(claims_installation) as name:
        yield name


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def judged_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with kube-scheduler beside ours, and two nodes without devices."""
    folder = tmp_path_factory.mktemp("judge")
    options = Options(name="test-judge", kube_scheduler=True)
    async with running_cluster(options) as cluster:
        await cluster.add_nodes(2, NodeShape(gpus=0))
        await install_runtime_class(cluster)
        await install(cluster, port=webhook_port(cluster))
        async with (
            running(cluster, WEBHOOK, folder) as webhook,
            running(cluster, PODGROUPER, folder),
            cluster.proxy() as proxy,
            running(cluster, SCHEDULER, folder, {}, proxy.url) as ours,
        ):
            await make_namespace(cluster, "judge")
            await cluster.api.create(device_class(DRIVER, f"device.driver == '{DRIVER}'"))
            yield Installation(cluster, ours, proxy, webhook)
            if failed(request.config):
                cluster.keep_logs()
            await cluster.api.delete(DEVICE_CLASSES, None, DRIVER)
