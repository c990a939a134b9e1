"""One chain with all our processes and policies, two teams, and a tenant with the role `edit`."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.api import Api
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import JOBS, JOBSETS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import Timeline
from e2e.conftest import failed, make_namespace
from e2e.fixtures.install import CLUSTER_ROLES, PODGROUPS, apply
from e2e.fixtures.installation import Installation, run_installation
from e2e.fixtures.processes import ProductProcess
from e2e.fixtures.trainjobs import WATCHED, Job, make_queue, on_nodes, submit, suspensions

TENANT: Final = "tenant"
VICTIMS: Final = ("red", "blue")
_NODES: Final = 2
_GPUS: Final = 8
MAX_MIB: Final = 512
MAX_GRACE_S: Final = 5  # that a pod may take to end
_SETTINGS: Final = {"TRAINER_KAI_MAX_TERMINATION_GRACE_S": str(MAX_GRACE_S)}
# What an administrator adds to the role `edit`, so that users of a namespace can train.
_TRAINS: Final[Obj] = {
    "apiVersion": CLUSTER_ROLES.api_version,
    "kind": CLUSTER_ROLES.kind,
    "metadata": {"name": "e2e-trains"},
    "rules": [
        {
            "apiGroups": [TRAINJOBS.group, JOBSETS.group],
            "resources": ["trainjobs", "trainingruntimes", "jobsets"],
            "verbs": ["*"],
        }
    ],
}
_BINDINGS: Final = Resource(CLUSTER_ROLES.group, "v1", "rolebindings", "RoleBinding")


class HostileTenant(NamedTuple):
    """The chain, the tenant's own connection, and what happens in all namespaces."""

    installation: Installation
    api: Api
    timeline: Timeline

    async def claim_quota(self, *names: str) -> None:
        """Let victims ask for their quota, and wait until they have it."""
        for name in names:
            await submit(self.installation.cluster, name, Job(f"{name}-job", name, _GPUS))
        for name in names:
            await self.timeline.until(on_nodes(f"{name}-job", _GPUS), f"{name} has its quota", 60)

    async def check_unharmed(self, *names: str) -> None:
        """Check that victims run and were never suspended, and that the scheduler stayed small."""
        await self.timeline.settle()
        for name in names:
            assert on_nodes(f"{name}-job", _GPUS)(self.timeline.state), f"{name} does not run"
            assert suspensions(self.timeline.history(), f"{name}-job") == 0
        assert peak_mib(self.installation.scheduler) < MAX_MIB


def peak_mib(ours: ProductProcess) -> int:
    """Return how much memory a process ever had since it was started."""
    identity = ours.process.identity
    assert identity is not None, f"{ours.process.name} does not run"
    lines = Path(f"/proc/{identity.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if "VmHWM" in line)) // 1024


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def hostile(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return the chain: two nodes of eight GPUs, of which each victim owns one, the tenant none."""
    folder = tmp_path_factory.mktemp("hostile")
    async with run_installation("test-hostile", folder, _NODES, _GPUS, _SETTINGS) as shared:
        for name in (TENANT, *VICTIMS):
            await make_namespace(shared.cluster, name)
            await make_queue(shared.cluster, name, 0 if name == TENANT else _GPUS, name)
        await _let_edit(shared.cluster)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


async def _let_edit(cluster: Cluster) -> None:
    """Make the tenant's ServiceAccount, with the role `edit` in its own namespace."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(TENANT)}
    await cluster.api.create(account)
    await apply(cluster, _TRAINS)
    for role in ("edit", _TRAINS["metadata"]["name"]):
        binding = {
            "apiVersion": _BINDINGS.api_version,
            "kind": _BINDINGS.kind,
            "metadata": _named(role),
            "roleRef": {"apiGroup": _BINDINGS.group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", **_named(TENANT)}],
        }
        await apply(cluster, binding)


def _named(name: str) -> Obj:
    return {"namespace": TENANT, "name": name}


@pytest_asyncio.fixture(loop_scope="session")
async def hostile_tenant(hostile: Installation) -> AsyncIterator[HostileTenant]:
    """Return the chain with empty namespaces, and empty them afterwards."""
    api = hostile.cluster.api
    token = await api.service_account_token(TENANT, TENANT)
    async with Api(api.url, token, api.tls) as tenant:
        async with hostile.cluster.timeline(*WATCHED, PODGROUPS) as seen:
            yield HostileTenant(hostile, tenant, seen)
        for name in (TENANT, *VICTIMS):
            await _empty(api, name)


async def _empty(api: Api, namespace: str) -> None:
    for resource in (TRAINJOBS, JOBSETS, JOBS):
        await api.request("DELETE", resource.path(namespace))
    await api.until_no_pods(namespace)
