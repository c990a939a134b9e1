"""The objects of the dry runs, and their namespace."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    check_results,
    healthy_installation,
    refused_jobset,
)
from tests.webhook.objects import BUNDLED, EXTERNAL, applied, reviewed_jobset, reviewed_pod
from trainer_kai.api.meta import Meta
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.checks.dry_runs import binding_mode
from trainer_kai.cli.commands.doctor.dry_run_objects import (
    dry_run_namespace,
    namespace_fault,
)
from trainer_kai.cli.commands.doctor.facts import DryRun, InstallationFacts, Unread
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED
from webhook.rules.jobset_mutate import JobSetContext

DELETING = Meta(name="a", deletion_timestamp="2026-05-01T11:00:00Z")
DISABLED = Meta(name="a", labels={"trainer-kai.dev/inject": "disabled"})
SYSTEM = Meta(name="kube-system")


def among(*names: str, more: Meta = SYSTEM) -> InstallationFacts:
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


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=lambda it: it.mode)
def test_our_webhook_injects_what_is_tried(rules: GroupingRules) -> None:
    """Though its TrainJob does not exist; and it shows the mode."""
    jobset, pod = dry_run_objects.jobset("default"), dry_run_objects.gang_pod("default")
    answer = reviewed_jobset(jobset, JobSetContext(None), rules)
    facts = healthy_installation()._replace(
        jobset=DryRun(jobset, applied(jobset, answer)),
        gang_pod=DryRun(pod, applied(pod, reviewed_pod(pod, rules))),
    )

    assert check_results(facts, "TrainJob dry run") == [
        ("ok", "in default: queue default-queue, scheduler kai-scheduler")
    ]
    assert check_results(facts, "gang pod dry run") == [
        ("ok", "in default: the pod gets its PodGroup")
    ]
    assert binding_mode(facts) == rules.mode


def test_our_webhook_lets_others_be() -> None:
    """A pod without our mark."""
    assert reviewed_pod(dry_run_objects.foreign_pod("default")) == UNCHANGED
