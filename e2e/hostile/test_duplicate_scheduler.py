"""A Lease of the scheduler's name, held by a tenant."""

from e2e.cluster.resources import LEASES
from e2e.hostile.conftest import TENANT, VICTIMS, HostileTenant


async def test_a_lease_in_a_tenants_namespace_stops_no_scheduler(
    hostile_tenant: HostileTenant,
) -> None:
    """It claims to be held for 68 years, and the teams' TrainJobs start all the same."""
    lease = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"namespace": TENANT, "name": "kai-scheduler"},
        "spec": {
            "holderIdentity": "tenant",
            "leaseDurationSeconds": 2**31 - 1,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }
    await hostile_tenant.api.request("POST", LEASES.path(TENANT), lease)
    try:
        await hostile_tenant.claim_quota(*VICTIMS)
        await hostile_tenant.check_unharmed(*VICTIMS)
    finally:
        await hostile_tenant.api.delete(LEASES, TENANT, "kai-scheduler")
