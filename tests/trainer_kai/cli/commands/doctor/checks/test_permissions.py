"""The permissions that accounts lack."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    check_results,
    deployment,
    healthy_installation,
)
from trainer_kai.cli.commands.doctor.checks.processes import needed_permissions
from trainer_kai.cli.commands.doctor.expected import Permission
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, Unread

BIND = Permission(verb="create", group="", resource="pods", subresource="binding")
READ = Permission(verb="list", group="coordination.k8s.io", resource="leases", name="kai-scheduler")
LEASES = "leases.coordination.k8s.io"
SCHEDULER = "trainer-kai/trainer-kai-scheduler"


def denied(*rights: Permission) -> InstallationFacts:
    facts = healthy_installation()
    return facts._replace(
        denied_permissions={**facts.denied_permissions, "trainer-kai-scheduler": rights}
    )


FORBIDDEN: InstallationFacts = healthy_installation()._replace(
    denied_permissions=dict.fromkeys(
        healthy_installation().denied_permissions, Unread("you may not create reviews")
    )
)
NO_ACCOUNT: InstallationFacts = healthy_installation()._replace(
    accounts={**healthy_installation().accounts, "trainer-kai-scheduler": False}
)

CASES: list[Case[InstallationFacts, tuple[str, str]]] = [
    Case(
        "two rights",
        denied(BIND, READ),
        ("fault", f"{SCHEDULER} may not create pods/binding, list {LEASES} kai-scheduler"),
    ),
    Case("the account", NO_ACCOUNT, ("fault", f"the ServiceAccount {SCHEDULER} does not exist")),
    Case("nobody may ask", FORBIDDEN, ("unknown", "you may not create reviews")),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_the_scheduler_lacks(case: Case[InstallationFacts, tuple[str, str]]) -> None:
    """Named as a rule names it."""
    results = check_results(case.given, "permissions")

    assert len(results) == 4
    assert results[1] == case.want


def with_settings(**environment: str) -> InstallationFacts:
    return healthy_installation()._replace(
        deployments=[deployment("trainer-kai-scheduler", 2, **environment)]
    )


def added(facts: InstallationFacts) -> list[Permission]:
    """Return what the scheduler needs beyond the rights of the manifests."""
    (account,) = (it for it in facts.manifests.accounts if it.name == "trainer-kai-scheduler")
    return [it for it in needed_permissions(account, facts) if it not in account.rights]


def get(resource: str, name: str, *, everywhere: bool = True) -> Permission:
    group = "apps" if resource == "deployments" else "coordination.k8s.io"
    return Permission(verb="get", group=group, resource=resource, name=name, everywhere=everywhere)


A, DEFAULT = "kai-scheduler-a", "kai-scheduler-default"
ADDED: list[Case[InstallationFacts, list[Permission]]] = [
    Case("the settings of the manifests", healthy_installation(), []),
    Case(
        "one more shard",
        with_settings(TRAINER_KAI_KAI_SHARDS="default,a"),
        [get("leases", A), get("deployments", A)],
    ),
    Case("another namespace", with_settings(TRAINER_KAI_KAI_NAMESPACES="gpu-system"), []),
    Case(
        "our own namespace alone",
        with_settings(TRAINER_KAI_KAI_NAMESPACES=""),
        [
            get("leases", "kai-scheduler", everywhere=False),
            get("leases", DEFAULT, everywhere=False),
            get("deployments", DEFAULT, everywhere=False),
        ],
    ),
]


@pytest.mark.parametrize("case", ADDED, ids=ids)
def test_the_scheduler_reads_other_schedulers_by_name(
    case: Case[InstallationFacts, list[Permission]],
) -> None:
    """Where its settings have it look."""
    assert added(case.given) == case.want


def test_no_other_account_reads_them() -> None:
    """Only the scheduler looks."""
    facts = with_settings(TRAINER_KAI_KAI_SHARDS="a")
    others = [it for it in facts.manifests.accounts if it.name != "trainer-kai-scheduler"]

    assert [needed_permissions(it, facts) for it in others] == [it.rights for it in others]
