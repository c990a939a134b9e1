"""A label that asks for the priority of the system."""

from collections.abc import Callable
from typing import Final

from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.queues import grant_queue_use
from e2e.fixtures.trainjobs import Job, on_nodes, submit
from e2e.hostile.conftest import TENANT, HostileTenant

_SYSTEM: Final = "system-node-critical"


async def test_a_label_takes_no_gpu_from_a_shared_queue(hostile_tenant: HostileTenant) -> None:
    """In a shared queue it evicts no TrainJob, and a condition of its PodGroup says why."""
    cluster = hostile_tenant.installation.cluster
    await hostile_tenant.claim_quota("red", "blue")
    await grant_queue_use(cluster, "blue", TENANT)
    await submit(cluster, TENANT, Job("urgent", "blue", 8, priority=_SYSTEM))
    await hostile_tenant.timeline.until(
        _has_message(_SYSTEM), "the condition names the classes that are right"
    )
    await hostile_tenant.check_unharmed("red", "blue")
    assert on_nodes("urgent", 0)(hostile_tenant.timeline.state)


def _has_message(words: str) -> Callable[[State], bool]:
    """Return a test whether a condition of the tenant's PodGroup says so."""
    return lambda state: any(
        words in condition["message"]
        for key, group in state.items()
        if key.resource == PODGROUPS and key.namespace == TENANT
        for condition in group.get("status", {}).get("schedulingConditions") or ()
    )
