"""What Deployments show of the settings of the webhook."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import deployment, healthy_installation
from trainer_kai.cli.commands.doctor.facts import webhook_setting

WEBHOOK = "trainer-kai-webhook"


def with_more(**fields: Any) -> dict[str, Any]:
    """Return a webhook whose other settings are in another object."""
    found: Any = deployment(WEBHOOK)
    found["spec"]["template"]["spec"]["containers"][0] |= fields
    return dict(found)


CASES: list[Case[list[Any], str]] = [
    Case("nothing", [deployment(WEBHOOK)], "usual"),
    Case("by a variable", [deployment(WEBHOOK, TRAINER_KAI_TLS_SOURCE="files")], "files"),
    Case("by a flag", [with_more(args=["--tls-source", "files"])], "files"),
    Case("all in one", [deployment("all", TRAINER_KAI_WEBHOOK_TLS_SOURCE="files")], "files"),
    Case(
        "somebody else beside it",
        [deployment("proxy", TRAINER_KAI_TLS_SOURCE="files"), deployment(WEBHOOK)],
        "usual",
    ),
    Case("it runs elsewhere", [deployment("trainer-kai-scheduler")], "?"),
    Case("in a file", [with_more(args=["--config", "/etc/x.yaml"])], "?"),
    Case("by all that is in a ConfigMap", [with_more(envFrom=[{"configMapRef": {}}])], "?"),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_settings_of_the_webhook(case: Case[list[Any], str]) -> None:
    """What does not show is not guessed."""
    assert (
        webhook_setting(
            healthy_installation()._replace(deployments=case.given), "TLS_SOURCE", "usual"
        )
        == case.want
    )
