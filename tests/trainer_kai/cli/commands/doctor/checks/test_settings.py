"""The settings that Deployments change, as the doctor shows them."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    check_results,
    deployment,
    healthy_installation,
)
from trainer_kai.cli.commands.doctor.facts import Obj

WEBHOOK, SCHEDULER = "trainer-kai-webhook", "trainer-kai-scheduler"


def with_container(**fields: Any) -> Obj:
    made = deployment(WEBHOOK)
    made["spec"]["template"]["spec"]["containers"][0] |= fields
    return made


# Deployments -> what is shown of them
SHOWN: list[Case[list[Obj], str]] = [
    Case("none", [], "no Deployment in trainer-kai shows settings"),
    Case("another's", [deployment("other", TRAINER_KAI_KUEUE="true")], "no Deployment in"),
    Case(
        "a variable, and the default of another",
        [deployment(SCHEDULER, TRAINER_KAI_KUEUE="true", TRAINER_KAI_MODE="bundled")],
        "scheduler: kueue=true",
    ),
    Case(
        "a flag beside a variable of a section",
        [
            with_container(
                args=["--admission-lint=deny"],
                env=[{"name": "TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED", "value": "closed"}],
            )
        ],
        "webhook: queue_access.unannotated=closed, admission.lint=deny",
    ),
    Case(
        "what is elsewhere",
        [with_container(args=["--config", "/etc/a.yaml"])],
        "webhook: more in a file or ConfigMap",
    ),
    Case(
        "of two processes",
        [deployment(WEBHOOK), deployment(SCHEDULER, TRAINER_KAI_KUEUE="true")],
        "scheduler: kueue=true; webhook: defaults",
    ),
]


@pytest.mark.parametrize("case", SHOWN, ids=ids)
def test_what_is_shown(case: Case[list[Obj], str]) -> None:
    """By the names of settings, without those that have their defaults."""
    [(state, text)] = check_results(
        healthy_installation()._replace(deployments=case.given), "settings"
    )
    assert state == "ok"
    assert text.startswith(case.want)


@pytest.mark.parametrize(
    ("cluster", "states"), [("grows", ["ok", "ok"]), ("fixed", ["ok", "warning", "ok"])]
)
def test_what_autoscaling_needs(cluster: str, states: list[str]) -> None:
    """The webhook would deny TrainJobs for nodes that are yet to come."""
    given = [
        deployment(SCHEDULER, TRAINER_KAI_AUTOSCALING_ENABLED="true"),
        deployment(WEBHOOK, TRAINER_KAI_ADMISSION_CLUSTER=cluster),
    ]
    found = check_results(healthy_installation()._replace(deployments=given), "settings")

    assert [state for state, _ in found] == states
    assert "--ignore-dra-requests=false" in found[-1][1]
