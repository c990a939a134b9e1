"""A cluster with our three processes, whose permissions are revoked and restored."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.patience import patience_s
from e2e.cluster.process import ProgramDied
from e2e.cluster.resources import LEASES, MUTATING_WEBHOOKS, SECRETS, Obj, Resource
from e2e.fixtures.gpu_agents import install_runtime_class, running_gpu_agents
from e2e.fixtures.install import CLUSTER_ROLES, install
from e2e.fixtures.processes import (
    NAMESPACE,
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)
from e2e.install.feature_checks import SHARED_NODE
from e2e.install.rbac_permissions import RbacPermission, permissions_of, without
from trainer_kai.api.names import KUBEFLOW, LEADER_WORKER_SET, RAY

_ROLES: Final = Resource(CLUSTER_ROLES.group, "v1", "roles", "Role")
_PROCESSES: Final = (WEBHOOK, PODGROUPER, SCHEDULER)
_SECRET: Final = "trainer-kai-webhook-tls"  # noqa: S105 - a name
_NOTHING: Final = {"data": {"tls.crt": "", "tls.key": ""}}
_JSON: Final = "application/json-patch+json"
_WAIT_S: Final = 20.0
# The scheduler finds the image of reservation pods as in a cluster: by the pod that it runs in.
_OWN_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"namespace": NAMESPACE, "name": "trainer-kai-scheduler-0"},
    "spec": {
        "schedulerName": "none",
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "scheduler",
                "image": "trainer-kai",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}
_IN_A_POD: Final = {
    "POD_NAME": "trainer-kai-scheduler-0",
    "POD_NAMESPACE": NAMESPACE,
    "TRAINER_KAI_RESERVATION_PODS_IMAGE": "",
}
_UNKNOWN_SCHEDULER: Final = "duplicate scheduler check not permitted"
# The chain has no kinds of these groups, so no request uses the rights on them.
_NOT_SERVED: Final = frozenset({KUBEFLOW, LEADER_WORKER_SET, RAY})


class ServiceAccounts:
    """The processes by the names of their accounts, and what they may do."""

    def __init__(
        self,
        cluster: Cluster,
        processes: Mapping[str, ProductProcess],
        rights: list[RbacPermission],
    ) -> None:
        self.cluster: Final = cluster
        self.processes: Final = processes
        self.permissions: Final = rights
        self._rules: dict[str, list[Obj]] = {}  # by the path of the role

    @property
    def snapshot_url(self) -> str:
        """Return where the scheduler shows what it knows."""
        return self.processes[SCHEDULER.account].ready_url.replace("/readyz", "/snapshot")

    async def revoke(self, right: RbacPermission) -> None:
        """Take one right away."""
        rules = without(await self._read(right), right)
        await self._write(right, rules)

    async def restore(self, right: RbacPermission) -> None:
        """Let the role say again what it said at first."""
        await self._write(right, self._rules[_path(right)])

    async def record_rules(self) -> None:
        """Keep what the roles say now, to give it back."""
        for right in self.permissions:
            self._rules[_path(right)] = await self._read(right)

    async def restart_fresh(self, right: RbacPermission) -> str:
        """End the process that has a right and start it; return what stands in its way, if it does.

        It finds nothing that would spare it a request: no Lease, no Secret or a useless one.
        """
        ours = self.processes[right.role]
        await ours.stop()
        await self._clean(right)
        read = len(ours.lines())
        ours.process.start()
        deadline = time.monotonic() + patience_s(_WAIT_S)
        while time.monotonic() < deadline:
            trouble = await _readiness(ours) or _warning(ours.lines()[read:])
            if ours.process.identity is None:
                return f"it ends, with {trouble or 'nothing said'}"
            if trouble:
                return trouble
            await asyncio.sleep(0.1)
        return ""

    async def restart(self, right: RbacPermission) -> None:
        """Start the process that has a right once more: it has learned nothing yet."""
        ours = self.processes[right.role]
        await ours.stop()
        await ours.start()

    async def ready(self, right: RbacPermission) -> None:
        """Wait for the process that has a right again; some end for want of one."""
        ours = self.processes[right.role]
        try:
            await ours.ready()
        except ProgramDied:
            await ours.start()

    async def _clean(self, right: RbacPermission) -> None:
        api = self.cluster.api
        if _creates(right, LEASES):
            await api.delete(LEASES, NAMESPACE, right.role)
        elif right.resource == MUTATING_WEBHOOKS.plural or _creates(right, SECRETS):
            await api.delete(SECRETS, NAMESPACE, _SECRET)  # so that the authority is a new one
        elif right.role == WEBHOOK.account:
            await api.merge(SECRETS, NAMESPACE, _SECRET, _NOTHING)

    async def _read(self, right: RbacPermission) -> list[Obj]:
        found = await self.cluster.api.request("GET", _path(right))
        rules: list[Obj] = found["rules"]
        return rules

    async def _write(self, right: RbacPermission, rules: object) -> None:
        patch = [{"op": "replace", "path": "/rules", "value": rules}]
        await self.cluster.api.request("PATCH", _path(right), patch, content_type=_JSON)


@asynccontextmanager
async def run_with_service_accounts(name: str, folder: Path) -> AsyncIterator[ServiceAccounts]:
    """Run a chain with one node and all processes, set up by the manifests."""
    async with running_cluster(Options(name=name)) as cluster, AsyncExitStack() as stack:
        await cluster.add_nodes(1, NodeShape(gpus=8))
        await _prepare_sharing(cluster)
        objects = await install(cluster, port=webhook_port(cluster))
        await cluster.api.create(_OWN_POD)
        processes = {
            part.account: await stack.enter_async_context(
                running(cluster, part, folder, _IN_A_POD if part is SCHEDULER else {})
            )
            for part in _PROCESSES
        }
        await stack.enter_async_context(running_gpu_agents(cluster, folder))
        rights = [it for it in permissions_of(objects) if it.group not in _NOT_SERVED]
        service_accounts = ServiceAccounts(cluster, processes, rights)
        await service_accounts.record_rules()
        yield service_accounts


async def _prepare_sharing(cluster: Cluster) -> None:
    """Have a GPU that no other pod uses, and the RuntimeClass of pods that share it."""
    taint = {"key": "e2e.test/shared", "effect": "NoSchedule"}
    prefix = SHARED_NODE.removesuffix("-0")
    await cluster.add_nodes(1, NodeShape(gpus=1, taints=[taint]), prefix=prefix)
    await install_runtime_class(cluster)


def _creates(right: RbacPermission, resource: Resource) -> bool:
    return (right.resource, right.verb) == (resource.plural, "create")


def _path(right: RbacPermission) -> str:
    if right.kind == CLUSTER_ROLES.kind:
        return CLUSTER_ROLES.path(None, right.role)
    return _ROLES.path(right.namespace, right.role)


async def _readiness(ours: ProductProcess) -> str:
    """Return what a process says is forbidden to it, where it is asked whether it is ready."""
    try:
        async with aiohttp.ClientSession() as session, session.get(ours.ready_url) as response:
            output = await response.text()
    except aiohttp.ClientError:
        return ""
    forbidden = [it.removeprefix("[-]") for it in output.splitlines() if "orbidden" in it]
    return next((f"not ready: {it.partition(':')[0]}" for it in forbidden), "")


def _warning(lines: list[str]) -> str:
    """Return the first warning about something that is forbidden."""
    for line in lines:
        if line.startswith("{"):
            output = json.loads(line)
            if output["level"] in ("warning", "error") and (
                "orbidden" in line or _UNKNOWN_SCHEDULER in line
            ):
                return f"{output['level']}: {output['event']}"
    return ""
