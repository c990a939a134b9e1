"""Whether each process may do what it does, as the API server judges its ServiceAccount."""

from collections.abc import Iterator

from trainer_kai.api.resources import DEPLOYMENTS, LEASES
from trainer_kai.cli.doctor.expected import Account, Right
from trainer_kai.cli.doctor.facts import Facts, listed
from trainer_kai.cli.doctor.finding import CannotTell, Finding, fault, known, ok, unknown
from trainer_kai.cli.doctor.settled import rivals_of
from trainer_kai.cli.doctor.tried import POLICY, has_kai, mode_of
from trainer_kai.cli.doctor.trust import is_in_files, is_made_by_others

__all__ = ["SCHEDULER", "check_rights", "rights_of"]

SCHEDULER = "trainer-kai-scheduler"  # account, Deployment and Lease are called alike
_APPLY = "the roles and bindings of manifests/base/rbac, applied again"
_ADD = "add to resourceNames in scheduler.yaml what kai.shards names"


def check_rights(facts: Facts) -> Iterator[Finding]:
    """Say for each account what it lacks."""
    for account in facts.manifests.accounts:
        check = f"rights of {account.name.removeprefix('trainer-kai-')}"
        try:
            yield _judged(check, facts, account)
        except CannotTell as error:
            yield unknown(check, error)


def rights_of(account: Account, facts: Facts) -> tuple[Right, ...]:
    """Return what an account needs: the scheduler looks for others by names that settings say."""
    if account.name != SCHEDULER:
        return account.rights
    places = rivals_of(facts)
    named = (
        Right(
            verb="get",
            group=resource.group,
            resource=resource.plural,
            name=key.name,
            everywhere=any(it.namespace != facts.site.namespace for it in keys),
        )
        for resource, keys in ((LEASES, places.leases), (DEPLOYMENTS, places.deployments))
        for key in keys
    )
    return tuple(dict.fromkeys((*account.rights, *named)))


def _judged(check: str, facts: Facts, account: Account) -> Finding:
    name, where = account.name, f"{facts.site.namespace}/{account.name}"
    if not known(facts.accounts[name]):
        if mode_of(facts) == POLICY or (name == SCHEDULER and has_kai(facts)):
            return ok(check, "there is no such account, and none is needed")
        return fault(check, f"there is no ServiceAccount {where}", _APPLY)
    rights, spared = rights_of(account, facts), set(_spared(facts, account))
    lacking = [it for it in known(facts.lacking[name]) if it not in spared]
    if lacking:
        unnamed = dict.fromkeys(it.name for it in lacking if it not in account.rights)
        add = f"; first {_ADD}: {listed(unnamed)}" if any(unnamed) else ""
        return fault(check, f"{where} may not {listed(map(_named, lacking), 3)}", _APPLY + add)
    return ok(check, f"{where} has all {len(rights) - len(spared)}")


def _spared(facts: Facts, account: Account) -> Iterator[Right]:
    """Yield the rights that only who makes certificates himself needs."""
    if not is_made_by_others(facts):
        return
    for right in account.rights:
        is_of_hooks = right.resource.endswith("webhookconfigurations")
        is_of_files = right.resource == "secrets" and (facts.secret is None or is_in_files(facts))
        if ((is_of_hooks or right.resource == "secrets") and right.verb != "get") or is_of_files:
            yield right


def _named(right: Right) -> str:
    part = f"/{right.subresource}" if right.subresource else ""
    group = f".{right.group}" if right.group else ""
    name = f" {right.name}" if right.name else ""
    return f"{right.verb} {right.resource}{part}{group}{name}"
