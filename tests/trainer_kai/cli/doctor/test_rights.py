"""What accounts lack."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.doctor.sound import sound, states
from trainer_kai.cli.doctor.expected import Right
from trainer_kai.cli.doctor.facts import Facts
from trainer_kai.cli.doctor.finding import Unread

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
