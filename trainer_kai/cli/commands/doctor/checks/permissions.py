"""Whether each ServiceAccount has the permissions of its process, by access reviews."""

from collections.abc import Iterator
from typing import Final

from trainer_kai.api.names import RESERVATION_APP
from trainer_kai.api.resources import DEPLOYMENTS, LEASES
from trainer_kai.cli.commands.doctor.checks.certificates import (
    certificate_in_files,
    is_external_certificate,
)
from trainer_kai.cli.commands.doctor.checks.dry_runs import (
    MODE_POLICY,
    binding_mode,
    kai_binds,
)
from trainer_kai.cli.commands.doctor.checks.gpu_sharing import shares_gpus
from trainer_kai.cli.commands.doctor.expected import ExpectedAccount, Permission
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, listed, other_scheduler_objects
from trainer_kai.cli.commands.doctor.finding import (
    CannotTell,
    CheckFinding,
    fault,
    ok,
    require,
    unknown,
)

SCHEDULER: Final = "trainer-kai-scheduler"  # the name of the account, the Deployment and the Lease
_APPLY_ROLES: Final = "apply the roles and bindings of manifests/base/rbac again"
_APPLY_SHARING: Final = "apply manifests/base/gpu-sharing again"
_AGENT: Final = RESERVATION_APP
_ADD_NAMES: Final = "add the names in kai.shards to resourceNames in scheduler.yaml"


def check_permissions(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say for each account which permissions it lacks."""
    for account in facts.manifests.accounts:
        title = "agent" if account.name == _AGENT else account.name
        check = f"permissions of {title.removeprefix('trainer-kai-')}"
        try:
            yield _account_finding(check, facts, account)
        except CannotTell as error:
            yield unknown(check, error)


def needed_permissions(
    account: ExpectedAccount, facts: InstallationFacts
) -> tuple[Permission, ...]:
    """Return the permissions of an account; settings name further objects for the scheduler."""
    if account.name != SCHEDULER:
        return account.rights
    places = other_scheduler_objects(facts)
    named = (
        Permission(
            verb="get",
            group=resource.group,
            resource=resource.plural,
            name=key.name,
            everywhere=any(it.namespace != facts.installation.namespace for it in keys),
        )
        for resource, keys in ((LEASES, places.leases), (DEPLOYMENTS, places.deployments))
        for key in keys
    )
    return tuple(dict.fromkeys((*account.rights, *named)))


def _account_finding(
    check: str, facts: InstallationFacts, account: ExpectedAccount
) -> CheckFinding:
    name = account.name
    where = f"{account.namespace or facts.installation.namespace}/{name}"
    if name == _AGENT and not shares_gpus(facts):
        return ok(check, "not needed: trainer-kai shares no GPU")
    if not require(facts.accounts[name]):
        if binding_mode(facts) == MODE_POLICY or (name == SCHEDULER and kai_binds(facts)):
            return ok(check, "the account does not exist, and is not needed")
        remedy = _APPLY_SHARING if name == _AGENT else _APPLY_ROLES
        return fault(check, f"the ServiceAccount {where} does not exist", remedy)
    permissions, unneeded = needed_permissions(account, facts), set(_unneeded(facts, account))
    denied = [it for it in require(facts.denied_permissions[name]) if it not in unneeded]
    if denied:
        unnamed = dict.fromkeys(it.name for it in denied if it not in account.rights)
        add = f"; before that, {_ADD_NAMES}: {listed(unnamed)}" if any(unnamed) else ""
        return fault(
            check,
            f"{where} may not {listed(map(_permission_text, denied), 3)}",
            _APPLY_ROLES + add,
        )
    return ok(check, f"{where} has all {len(permissions) - len(unneeded)} permissions")


def _unneeded(facts: InstallationFacts, account: ExpectedAccount) -> Iterator[Permission]:
    """Yield the permissions that the settings make superfluous."""
    if not shares_gpus(facts):
        yield from (it for it in account.rights if _is_for_sharing(it))
    # Only a webhook that creates its certificates writes them.
    if not is_external_certificate(facts):
        return
    for permission in account.rights:
        is_for_webhooks = permission.resource.endswith("webhookconfigurations")
        is_for_secret = permission.resource == "secrets" and (
            facts.secret is None or certificate_in_files(facts)
        )
        if (
            (is_for_webhooks or permission.resource == "secrets") and permission.verb != "get"
        ) or is_for_secret:
            yield permission


def _is_for_sharing(permission: Permission) -> bool:
    own_pod = Permission(verb="get", group="", resource="pods", everywhere=False)
    return bool(
        permission.namespace or permission == own_pod or permission.resource == "configmaps"
    )


def _permission_text(permission: Permission) -> str:
    subresource = f"/{permission.subresource}" if permission.subresource else ""
    group = f".{permission.group}" if permission.group else ""
    name = f" {permission.name}" if permission.name else ""
    return f"{permission.verb} {permission.resource}{subresource}{group}{name}"
