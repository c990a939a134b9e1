"""Large TrainJobs and runtimes of a tenant, and connections that it holds open."""

import asyncio
from contextlib import AsyncExitStack, closing
from typing import Final

import pytest

from e2e.cluster.resources import CLUSTER_RUNTIMES, RUNTIMES, Obj
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.processes import webhook_port
from e2e.hostile.conftest import MAX_MIB, TENANT, VICTIMS, HostileTenant, peak_mib
from e2e.size import size

_MANY: Final = size(60, 300)  # 300 are more than the webhook keeps the texts of
_LONG: Final = "x" * 240_000
_CONNECTIONS: Final = 600
_ADDRESS: Final = "127.0.0.2"  # of a pod of the tenant


@pytest.mark.sized
async def test_what_a_tenant_stores_and_holds_open_keeps_no_team_out(
    hostile_tenant: HostileTenant,
) -> None:
    """The webhook starts again, stays small, and the teams' TrainJobs are admitted and start."""
    cluster, webhook = hostile_tenant.installation.cluster, hostile_tenant.installation.webhook
    runtime = await cluster.api.get(CLUSTER_RUNTIMES, None, "torch-distributed")
    await hostile_tenant.api.create_all(
        _runtime(runtime["spec"], number) for number in range(_MANY)
    )
    await hostile_tenant.api.create_all(map(_trainjob, range(_MANY)))
    try:
        await webhook.stop()
        await webhook.start()
        async with AsyncExitStack() as stack:
            for _ in range(_CONNECTIONS):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", webhook_port(cluster), local_addr=(_ADDRESS, 0)
                )
                stack.enter_context(closing(writer))
            await hostile_tenant.claim_quota(*VICTIMS)
        await hostile_tenant.check_unharmed(*VICTIMS)
        print(f"the webhook had {peak_mib(webhook)} MiB")
        assert peak_mib(webhook) < MAX_MIB
    finally:
        await cluster.api.request("DELETE", RUNTIMES.path(TENANT))


def _runtime(spec: Obj, number: int) -> Obj:
    """Return a runtime with a template that has much to say."""
    metadata = {**spec["template"].get("metadata", {}), "annotations": {"note": _LONG}}
    return {
        "apiVersion": RUNTIMES.api_version,
        "kind": RUNTIMES.kind,
        "metadata": {"namespace": TENANT, "name": f"runtime-{number}"},
        "spec": {**spec, "template": {**spec["template"], "metadata": metadata}},
    }


def _trainjob(number: int) -> Obj:
    """Return a TrainJob that is another controller's to start, with a wish that is a long one."""
    made = Submission(f"large-{number}", "torch-distributed", TENANT).trainjob()
    made["metadata"]["annotations"] = {"kai.scheduler/topology": _LONG}
    made["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    return made
