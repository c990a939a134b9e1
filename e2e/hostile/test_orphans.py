"""PodGroups whose JobSet a tenant deleted without them."""

from collections.abc import Callable

import pytest

from e2e.cluster.resources import JOBS, JOBSETS, TRAINJOBS
from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.trainjobs import Job, submit
from e2e.hostile.conftest import TENANT, HostileTenant

_ORPHAN = {"propagationPolicy": "Orphan"}


@pytest.mark.soak  # the podgrouper waits for a minute
async def test_a_podgroup_that_lost_its_jobset_goes(hostile_tenant: HostileTenant) -> None:
    """It would keep its queue from being deleted, and its size from the tenant's quota."""
    cluster = hostile_tenant.installation.cluster
    await submit(cluster, TENANT, Job("left", TENANT, 64))
    await hostile_tenant.timeline.until(_podgroups(1), "the PodGroup exists")
    for resource in (TRAINJOBS, JOBSETS, JOBS):
        await cluster.api.request("DELETE", resource.path(TENANT), _ORPHAN)
        await hostile_tenant.timeline.until(_is_gone(resource.plural), f"{resource} is gone")
    await cluster.api.kill_pods(TENANT)
    await hostile_tenant.timeline.until(_podgroups(0), "the PodGroup is deleted", 120)


def _podgroups(count: int) -> Callable[[State], bool]:
    def holds(state: State) -> bool:
        return sum(it.resource == PODGROUPS and it.namespace == TENANT for it in state) == count

    return holds


def _is_gone(plural: str) -> Callable[[State], bool]:
    return lambda state: (
        not any(it.resource.plural == plural and it.namespace == TENANT for it in state)
    )
