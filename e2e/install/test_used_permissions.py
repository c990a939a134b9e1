"""Every permission of our roles is used: the audit log shows it."""

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import until
from e2e.cluster.resources import SECRETS
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.processes import NAMESPACE, PODGROUPER, WEBHOOK
from e2e.install.feature_checks import remove_checks, run_checks
from e2e.install.rbac_permissions import NEVER_ASKED, RbacPermission, is_used_by_request
from e2e.install.service_accounts import ServiceAccounts
from trainer_kai.api.names import GANG

_WAIT_S = 40.0
_ORPHANED_S = 90.0  # the podgrouper waits for a minute
_LEFT = "left-behind"


async def test_every_right_is_used(service_accounts: ServiceAccounts) -> None:
    """From the first start to the last scene, under the roles as they are: none is left over."""
    await _make_podgroup_without_owner(service_accounts.cluster)
    try:
        assert (
            await run_checks(
                service_accounts.cluster, "all", _WAIT_S, service_accounts.snapshot_url
            )
            == []
        )
    finally:
        await remove_checks(service_accounts.cluster, "all")
    await _start_with_a_useless_secret(service_accounts)
    await until(lambda: _is_gone(service_accounts.cluster), "it is deleted", _ORPHANED_S)

    unused = await _unused(service_accounts.cluster, service_accounts.permissions)

    assert [str(right) for right in unused] == []


async def _make_podgroup_without_owner(cluster: Cluster) -> None:
    """Make a PodGroup as a JobSet leaves one behind that is deleted without its dependents."""
    metadata = {"namespace": "default", "name": _LEFT, "labels": {GANG: "Main"}}
    left = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": metadata,
        "spec": {"minMember": 1, "queue": "default-queue"},
    }
    await cluster.api.request(
        "PATCH",
        PODGROUPS.path("default", _LEFT),
        left,
        query={"fieldManager": PODGROUPER.account},
        content_type="application/apply-patch+yaml",
    )


async def _is_gone(cluster: Cluster) -> bool:
    groups, _ = await cluster.api.list(PODGROUPS, "default")
    return all(it["metadata"]["name"] != _LEFT for it in groups)


async def _start_with_a_useless_secret(service_accounts: ServiceAccounts) -> None:
    """See a Secret that cannot be read written anew."""
    webhook = service_accounts.processes[WEBHOOK.account]
    await webhook.stop()
    useless = {"data": {"tls.crt": "", "tls.key": ""}}
    await service_accounts.cluster.api.merge(SECRETS, NAMESPACE, "trainer-kai-webhook-tls", useless)
    await webhook.start()


async def _unused(cluster: Cluster, rights: list[RbacPermission]) -> list[RbacPermission]:
    asked = {it for it in await cluster.audit.requests() if ":trainer-kai:" in it.user}
    return [
        right
        for right in rights
        if right.resource not in NEVER_ASKED
        and not any(is_used_by_request(right, it) for it in asked)
    ]
