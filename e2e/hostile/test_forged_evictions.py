"""The record of an eviction, forged by a tenant on a TrainJob that borrows."""

from typing import Final

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.resources import TRAINJOBS
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.trainjobs import Job, on_nodes, submit
from e2e.hostile.conftest import TENANT, VICTIMS, HostileTenant

_RECORD: Final = "trainer-kai.dev/evicted-by"
_MANAGER: Final = "trainer-kai-eviction"


async def test_a_forged_record_keeps_no_borrowed_gpu(hostile_tenant: HostileTenant) -> None:
    """Created with the record, and told to add it, a TrainJob gives back like any other."""
    cluster = hostile_tenant.installation.cluster
    forged = await submit(cluster, TENANT, Job("forger", TENANT, 16))
    await hostile_tenant.timeline.until(on_nodes("forger", 16), "the tenant borrows all GPUs", 60)
    path = TRAINJOBS.path(TENANT, "forger")
    fields = {"metadata": {"annotations": {_RECORD: "{}"}}}
    with pytest.raises(ApiError, match=_RECORD):
        await hostile_tenant.api.request(
            "PATCH",
            path,
            fields,
            query={"fieldManager": _MANAGER},
            content_type="application/merge-patch+json",
        )
    await hostile_tenant.api.delete(TRAINJOBS, TENANT, "forger")
    await hostile_tenant.timeline.until(on_nodes("forger", 0), "the first one is gone", 60)
    forged["metadata"] |= {"name": "marked", "annotations": {_RECORD: "{}"}}
    assert forged["metadata"]["labels"][QUEUE] == TENANT
    await hostile_tenant.api.request("POST", TRAINJOBS.path(TENANT), forged)
    await hostile_tenant.timeline.until(on_nodes("marked", 16), "it borrows all GPUs again", 60)

    await hostile_tenant.claim_quota(*VICTIMS)
    await hostile_tenant.check_unharmed(*VICTIMS)
