"""Where it is tried dry."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import healthy_installation, refused_jobset
from trainer_kai.api.meta import Meta
from trainer_kai.cli.commands.doctor.facts import InstallationFacts
from trainer_kai.cli.commands.doctor.finding import Unread
from trainer_kai.cli.commands.doctor.read.dry_run_namespace import (
    dry_run_namespace,
    namespace_fault,
)

DELETING = Meta(name="a", deletion_timestamp="2026-05-01T11:00:00Z")
DISABLED = Meta(name="a", labels={"trainer-kai.dev/inject": "disabled"})
SYSTEM = Meta(name="kube-system")


def among(*names: str, more: Meta = SYSTEM) -> InstallationFacts:
    """Return an installation with these namespaces."""
    labels = "kubernetes.io/metadata.name"
    return healthy_installation()._replace(
        namespaces=[more, *(Meta(name=it, labels={labels: it}) for it in names)]
    )


def by_policy(facts: InstallationFacts) -> InstallationFacts:
    """Have a policy in place of the webhooks, with their selector."""
    selector = {"matchExpressions": [{"key": "trainer-kai.dev/inject", "operator": "DoesNotExist"}]}
    spec = {"matchConstraints": {"namespaceSelector": selector}}
    return facts._replace(
        configurations=[], policies=[{"metadata": {"name": "kai-trainer"}, "spec": spec}]
    )


# the context is a
NAMESPACES: list[Case[InstallationFacts, str]] = [
    Case("that of the context", among("a", "b"), "a"),
    Case("the first that there is", among("c", "b"), "b"),
    Case("not one that stays out", among("b", more=DISABLED), "b"),
    Case("not one that is being deleted", among("b", more=DELETING), "b"),
    Case("not one that a policy leaves out", by_policy(among("b", more=DISABLED)), "b"),
    Case("none", among(more=DISABLED), ""),
    Case("nobody knows", healthy_installation()._replace(namespaces=Unread("no")), "a"),
]


@pytest.mark.parametrize("case", NAMESPACES, ids=ids)
def test_a_namespace_is_found(case: Case[InstallationFacts, str]) -> None:
    """One that takes part and takes something new."""
    assert dry_run_namespace(case.given, "a") == case.want


UNREAD = healthy_installation()._replace(namespaces=Unread("no"))
UNUSABLE: list[Case[InstallationFacts, str]] = [
    Case("it is there", among("a"), ""),
    Case(
        "it is not",
        among("b", "c"),
        "namespace a does not exist; existing are b, c, kube-system",
    ),
    Case(
        "it is being deleted",
        among("b", more=DELETING),
        "namespace a is being deleted, and accepts no new objects",
    ),
    Case("nobody knows", UNREAD, ""),
    Case(
        "nobody may list them, and the API server says it",
        UNREAD._replace(jobset=refused_jobset('namespaces "a" not found', 404, "NotFound")),
        "namespace a does not exist",
    ),
    Case("nobody may look", UNREAD._replace(jobset=Unread("no")), ""),
]


@pytest.mark.parametrize("case", UNUSABLE, ids=ids)
def test_a_named_namespace_has_to_exist(case: Case[InstallationFacts, str]) -> None:
    """Else it says what is."""
    assert namespace_fault(case.given, "a") == case.want
