"""Whatever our roles allow is needed: the API server's own record says so."""

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import SECRETS
from e2e.front.processes import NAMESPACE, WEBHOOK
from e2e.manifests.rights import RbacPermission, is_used_by_request
from e2e.manifests.scenes import remove_checks, run_checks
from e2e.manifests.staff import ServiceAccounts

_PATIENCE_S = 40.0


async def test_every_right_is_used(staff: ServiceAccounts) -> None:
    """From the first start to the last scene, under the roles as they are: none is left over."""
    try:
        assert await run_checks(staff.cluster, "all", _PATIENCE_S, staff.snapshot_url) == []
    finally:
        await remove_checks(staff.cluster, "all")
    await _start_with_a_useless_secret(staff)

    unused = await _unused(staff.cluster, staff.permissions)

    assert [str(right) for right in unused] == []


async def _start_with_a_useless_secret(staff: ServiceAccounts) -> None:
    """See a Secret that cannot be read written anew."""
    webhook = staff.processes[WEBHOOK.account]
    await webhook.stop()
    useless = {"data": {"tls.crt": "", "tls.key": ""}}
    await staff.cluster.api.merge(SECRETS, NAMESPACE, "trainer-kai-webhook-tls", useless)
    await webhook.start()


async def _unused(cluster: Cluster, rights: list[RbacPermission]) -> list[RbacPermission]:
    asked = {it for it in await cluster.audit.requests() if ":trainer-kai:" in it.user}
    return [right for right in rights if not any(is_used_by_request(right, it) for it in asked)]
