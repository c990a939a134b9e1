"""Where it is tried dry."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.doctor.sound import refused, sound
from trainer_kai.api.meta import Meta
from trainer_kai.cli.doctor.facts import Facts
from trainer_kai.cli.doctor.finding import Unread
from trainer_kai.cli.doctor.place import named_in_vain, place_for

GOING = Meta(name="a", deletion_timestamp="2026-05-01T11:00:00Z")
OUT = Meta(name="a", labels={"trainer-kai.dev/inject": "disabled"})
SYSTEM = Meta(name="kube-system")


def among(*names: str, more: Meta = SYSTEM) -> Facts:
    """Return an installation with these namespaces."""
    labels = "kubernetes.io/metadata.name"
    return sound()._replace(
        namespaces=[more, *(Meta(name=it, labels={labels: it}) for it in names)]
    )


def by_policy(facts: Facts) -> Facts:
    """Have a policy in place of the webhooks, with their selector."""
    selector = {"matchExpressions": [{"key": "trainer-kai.dev/inject", "operator": "DoesNotExist"}]}
    spec = {"matchConstraints": {"namespaceSelector": selector}}
    return facts._replace(
        configurations=[], policies=[{"metadata": {"name": "kai-trainer"}, "spec": spec}]
    )


# the context is a
PLACES: list[Case[Facts, str]] = [
    Case("that of the context", among("a", "b"), "a"),
    Case("the first that there is", among("c", "b"), "b"),
    Case("not one that stays out", among("b", more=OUT), "b"),
    Case("not one that is being deleted", among("b", more=GOING), "b"),
    Case("not one that a policy leaves out", by_policy(among("b", more=OUT)), "b"),
    Case("none", among(more=OUT), ""),
    Case("nobody knows", sound()._replace(namespaces=Unread("no")), "a"),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_a_place_is_found(case: Case[Facts, str]) -> None:
    """One that takes part and takes something new."""
    assert place_for(case.given, "a") == case.want


UNREAD = sound()._replace(namespaces=Unread("no"))
IN_VAIN: list[Case[Facts, str]] = [
    Case("it is there", among("a"), ""),
    Case("it is not", among("b", "c"), "there is no namespace a; there are b, c, kube-system"),
    Case(
        "it is being deleted",
        among("b", more=GOING),
        "the namespace a is being deleted, and takes nothing new",
    ),
    Case("nobody knows", UNREAD, ""),
    Case(
        "nobody may list them, and the API server says it",
        UNREAD._replace(jobset=refused('namespaces "a" not found', 404, "NotFound")),
        "there is no namespace a",
    ),
    Case("nobody may look", UNREAD._replace(jobset=Unread("no")), ""),
]


@pytest.mark.parametrize("case", IN_VAIN, ids=ids)
def test_a_place_that_is_named_has_to_be_there(case: Case[Facts, str]) -> None:
    """Else it says what is."""
    assert named_in_vain(case.given, "a") == case.want
