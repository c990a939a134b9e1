"""Whether each ServiceAccount has the permissions of its process, by access reviews."""

from collections.abc import Iterator
from typing import Final

from trainer_kai.api.names import RESERVATION_APP
from trainer_kai.api.resources import DEPLOYMENTS, LEASES
from trainer_kai.cli.commands.doctor.checks.certificates import (
    certificate_in_files,
    is_external_certificate,
)
from trainer_kai.cli.commands.doctor.checks.dry_runs import has_policy_only, kai_binds
from trainer_kai.cli.commands.doctor.checks.gpu_sharing import shares_no_gpus
from trainer_kai.cli.commands.doctor.expected import ExpectedAccount, Permission
from trainer_kai.cli.commands.doctor.facts import (
    SCHEDULER,
    InstallationFacts,
    listed,
    other_scheduler_objects,
)
from trainer_kai.cli.commands.doctor.finding import Findings, fault, ok, require

_APPLY_ROLES: Final = "apply the roles and bindings of manifests/base/rbac again"
_APPLY_SHARING: Final = "apply manifests/base/gpu-sharing again"
_AGENT: Final = RESERVATION_APP
_ADD_NAMES: Final = "add the names in kai.shards to resourceNames in scheduler.yaml"
_OWN_POD: Final = Permission(verb="get", group="", resource="pods", everywhere=False)


def title(account: ExpectedAccount) -> str:
    return "agent" if account.name == _AGENT else account.name.removeprefix("trainer-kai-")


def check_account(account: ExpectedAccount, facts: InstallationFacts, exists: bool) -> Findings:
    name = account.name
    where = f"{account.namespace or facts.installation.namespace}/{name}"
    if not exists:
        if has_policy_only(facts) or (name == SCHEDULER and kai_binds(facts)):
            yield ok("the account does not exist, and is not needed")
        else:
            remedy = _APPLY_SHARING if name == _AGENT else _APPLY_ROLES
            yield fault(f"the ServiceAccount {where} does not exist", remedy)
        return
    permissions, unneeded = needed_permissions(account, facts), set(_unneeded(facts, account))
    denied = [it for it in require(facts.denied_permissions[name]) if it not in unneeded]
    if denied:
        unnamed = dict.fromkeys(it.name for it in denied if it not in account.rights)
        add = f"; before that, {_ADD_NAMES}: {listed(unnamed)}" if any(unnamed) else ""
        observed = f"{where} may not {listed(map(_permission_text, denied), 3)}"
        yield fault(observed, _APPLY_ROLES + add)
    else:
        yield ok(f"{where} has all {len(permissions) - len(unneeded)} permissions")


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


def _unneeded(facts: InstallationFacts, account: ExpectedAccount) -> Iterator[Permission]:
    if shares_no_gpus(facts):
        yield from (it for it in account.rights if _is_for_sharing(it))
    if not is_external_certificate(facts):
        return
    # Only a webhook that creates its certificates writes them.
    reads_secret = facts.secret is not None and not certificate_in_files(facts)
    for it in account.rights:
        is_of_secrets = it.resource == "secrets"
        is_of_certificates = is_of_secrets or it.resource.endswith("webhookconfigurations")
        if (is_of_certificates and it.verb != "get") or (is_of_secrets and not reads_secret):
            yield it


def _is_for_sharing(permission: Permission) -> bool:
    is_elsewhere = bool(permission.namespace)
    return is_elsewhere or permission == _OWN_POD or permission.resource == "configmaps"


def _permission_text(permission: Permission) -> str:
    subresource = f"/{permission.subresource}" if permission.subresource else ""
    group = f".{permission.group}" if permission.group else ""
    name = f" {permission.name}" if permission.name else ""
    return f"{permission.verb} {permission.resource}{subresource}{group}{name}"
