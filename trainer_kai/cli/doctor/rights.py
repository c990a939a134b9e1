"""Whether each process may do what it does, as the API server judges its ServiceAccount."""

from collections.abc import Iterator

from trainer_kai.cli.doctor.expected import Right
from trainer_kai.cli.doctor.facts import Facts, listed
from trainer_kai.cli.doctor.finding import CannotTell, Finding, fault, known, ok, unknown
from trainer_kai.cli.doctor.tried import mode_of

__all__ = ["SCHEDULER", "check_rights"]

SCHEDULER = "trainer-kai-scheduler"  # account, Deployment and Lease are called alike
_APPLY = "the roles and bindings of manifests/base/rbac, applied again"


def check_rights(facts: Facts) -> Iterator[Finding]:
    """Say for each account what it lacks."""
    for account in facts.manifests.accounts:
        check = f"rights of {account.name.removeprefix('trainer-kai-')}"
        try:
            yield _judged(check, facts, account.name, len(account.rights))
        except CannotTell as error:
            yield unknown(check, error)


def _judged(check: str, facts: Facts, name: str, number: int) -> Finding:
    where = f"{facts.site.namespace}/{name}"
    if not known(facts.accounts[name]):
        if name == SCHEDULER and mode_of(facts) == "external":
            return ok(check, "there is no such account: a KAI schedules")
        return fault(check, f"there is no ServiceAccount {where}", _APPLY)
    lacking = known(facts.lacking[name])
    if lacking:
        return fault(check, f"{where} may not {listed(map(_named, lacking), 3)}", _APPLY)
    return ok(check, f"{where} has all {number}")


def _named(right: Right) -> str:
    part = f"/{right.subresource}" if right.subresource else ""
    group = f".{right.group}" if right.group else ""
    name = f" {right.name}" if right.name else ""
    return f"{right.verb} {right.resource}{part}{group}{name}"
