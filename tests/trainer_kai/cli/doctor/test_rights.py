"""What accounts lack."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.doctor.sound import deployment, sound, states
from trainer_kai.cli.doctor.expected import Right
from trainer_kai.cli.doctor.facts import Facts
from trainer_kai.cli.doctor.finding import Unread
from trainer_kai.cli.doctor.rights import rights_of

BIND = Right(verb="create", group="", resource="pods", subresource="binding")
READ = Right(verb="list", group="coordination.k8s.io", resource="leases", name="kai-scheduler")
LEASES = "leases.coordination.k8s.io"
SCHEDULER = "trainer-kai/trainer-kai-scheduler"


def lacking(*rights: Right) -> Facts:
    """Return an installation whose scheduler may do less."""
    facts = sound()
    return facts._replace(lacking={**facts.lacking, "trainer-kai-scheduler": rights})


FORBIDDEN: Facts = sound()._replace(
    lacking=dict.fromkeys(sound().lacking, Unread("you may not create reviews"))
)
GONE: Facts = sound()._replace(accounts={**sound().accounts, "trainer-kai-scheduler": False})

SAID: list[Case[Facts, tuple[str, str]]] = [
    Case(
        "two rights",
        lacking(BIND, READ),
        ("fault", f"{SCHEDULER} may not create pods/binding, list {LEASES} kai-scheduler"),
    ),
    Case("the account", GONE, ("fault", f"there is no ServiceAccount {SCHEDULER}")),
    Case("nobody may ask", FORBIDDEN, ("unknown", "cannot tell: you may not create reviews")),
]


@pytest.mark.parametrize("case", SAID, ids=ids)
def test_what_the_scheduler_lacks(case: Case[Facts, tuple[str, str]]) -> None:
    """Named as a rule names it."""
    said = states(case.given, "rights")

    assert len(said) == 3
    assert said[1] == case.want


def told(**environment: str) -> Facts:
    """Return an installation whose scheduler has other settings."""
    return sound()._replace(deployments=[deployment("trainer-kai-scheduler", 2, **environment)])


def added(facts: Facts) -> list[Right]:
    """Return what the scheduler needs beyond the rights of the manifests."""
    (account,) = (it for it in facts.manifests.accounts if it.name == "trainer-kai-scheduler")
    return [it for it in rights_of(account, facts) if it not in account.rights]


def get(resource: str, name: str, *, everywhere: bool = True) -> Right:
    """Return the right to read one object."""
    group = "apps" if resource == "deployments" else "coordination.k8s.io"
    return Right(verb="get", group=group, resource=resource, name=name, everywhere=everywhere)


A, DEFAULT = "kai-scheduler-a", "kai-scheduler-default"
ADDED: list[Case[Facts, list[Right]]] = [
    Case("the settings of the manifests", sound(), []),
    Case(
        "one more shard",
        told(TRAINER_KAI_KAI_SHARDS="default,a"),
        [get("leases", A), get("deployments", A)],
    ),
    Case("another namespace", told(TRAINER_KAI_KAI_NAMESPACES="gpu-system"), []),
    Case(
        "our own namespace alone",
        told(TRAINER_KAI_KAI_NAMESPACES=""),
        [
            get("leases", "kai-scheduler", everywhere=False),
            get("leases", DEFAULT, everywhere=False),
            get("deployments", DEFAULT, everywhere=False),
        ],
    ),
]


@pytest.mark.parametrize("case", ADDED, ids=ids)
def test_the_scheduler_reads_other_schedulers_by_name(case: Case[Facts, list[Right]]) -> None:
    """Where its settings have it look."""
    assert added(case.given) == case.want


def test_no_other_account_reads_them() -> None:
    """Only the scheduler looks."""
    facts = told(TRAINER_KAI_KAI_SHARDS="a")
    others = [it for it in facts.manifests.accounts if it.name != "trainer-kai-scheduler"]

    assert [rights_of(it, facts) for it in others] == [it.rights for it in others]
