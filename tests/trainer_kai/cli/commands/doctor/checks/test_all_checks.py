"""All checks together: sound installations of every kind, and one of which nothing can be read."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    NOW,
    RESERVATIONS,
    beside_a_kai,
    by_policy,
    certificate_files,
    deployment,
    healthy_installation,
    lease,
    secret,
    webhook_configurations,
)
from trainer_kai.api.meta import Meta
from trainer_kai.cli.commands.doctor.checks.all_checks import CHECKS, run_checks
from trainer_kai.cli.commands.doctor.expected import Permission, expected_manifests
from trainer_kai.cli.commands.doctor.facts import (
    NOT_ASKED,
    CheckState,
    Installation,
    InstallationFacts,
    Obj,
    require,
)


def by_address(found: Any) -> None:
    """Call the webhooks beside the cluster, as the overlay `local` does."""
    for hook in (it for configuration in found for it in configuration["webhooks"]):
        path = hook["clientConfig"]["service"]["path"]
        bundle = hook["clientConfig"]["caBundle"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:9443{path}", "caBundle": bundle}


def trusted_by_all(found: Any) -> None:
    """Leave the authority to what every machine trusts."""
    by_address(found)
    for hook in (it for configuration in found for it in configuration["webhooks"]):
        del hook["clientConfig"]["caBundle"]


def opt_in(found: Any) -> None:
    """Let namespaces ask, as the overlay `opt-in` does."""
    for hook in (it for configuration in found for it in configuration["webhooks"]):
        if "namespaceSelector" not in hook:  # queues are in no namespace
            continue
        requirement = hook["namespaceSelector"]["matchExpressions"][1]
        requirement |= {"operator": "In", "values": ["enabled"]}


def strict(found: Any) -> None:
    """Refuse what cannot be judged, as a stricter overlay may."""
    for configuration in found:
        if configuration["kind"].startswith("Validating"):
            for hook in configuration["webhooks"]:
                hook["failurePolicy"] = "Fail"


def by_cert_manager(facts: InstallationFacts) -> InstallationFacts:
    """Take the permissions that only a webhook which makes its certificates needs."""
    return facts._replace(
        secret=secret(key=False),
        denied_permissions=_without_writing(facts),
        deployments=with_tls_source("cert-manager"),
    )


def by_files(facts: InstallationFacts) -> InstallationFacts:
    """Have no Secret, and no right to read one."""
    denied = _without_writing(facts, "get")
    return facts._replace(
        secret=None, denied_permissions=denied, deployments=with_tls_source("files")
    )


def with_old_secret(facts: InstallationFacts) -> InstallationFacts:
    """Have a Secret of an authority that is no longer trusted, and that expires soon."""
    return by_files(facts)._replace(secret=secret(certificate_files(400)))


def with_tls_source(source: str) -> list[Obj]:
    return [
        deployment(it, TRAINER_KAI_TLS_SOURCE=source) for it in expected_manifests().deployments
    ]


def _without_writing(facts: InstallationFacts, *more: str) -> dict[str, list[Permission]]:
    (webhook,) = (it for it in facts.manifests.accounts if it.name == "trainer-kai-webhook")
    secrets = {"create", "update", *more}
    lost = [it for it in webhook.rights if it.resource == "secrets" and it.verb in secrets]
    lost += [it for it in webhook.rights if "webhookconf" in it.resource and it.verb == "patch"]
    assert len(lost) > len(secrets)
    return {**{name: [] for name in facts.denied_permissions}, webhook.name: lost}


def renamed(facts: InstallationFacts) -> InstallationFacts:
    leases = [lease(it.metadata.name, namespace="gangs") for it in require(facts.leases)]
    return facts._replace(
        installation=Installation("gangs", "kai-scheduler"),
        leases=leases,
        scheduler_leases=leases[1:],
    )


labels = {"kubernetes.io/metadata.name": "default", "trainer-kai.dev/inject": "enabled"}

# what is otherwise in a sound installation
HEALTHY: list[Case[Callable[[InstallationFacts], InstallationFacts], None]] = [
    Case("as the manifests have it", lambda it: it, None),
    Case("processes may run elsewhere", lambda it: it._replace(deployments=[]), None),
    Case(
        "called by address",
        lambda it: it._replace(configurations=webhook_configurations(change=by_address)),
        None,
    ),
    Case(
        "certificates of others",
        lambda it: it._replace(secret=secret(key=False), deployments=[]),
        None,
    ),
    Case("files, and what was in the Secret before", with_old_secret, None),
    Case("a certificate kept elsewhere", lambda it: it._replace(secret=None), None),
    Case(
        "an authority that all trust",
        lambda it: it._replace(
            secret=None, configurations=webhook_configurations(change=trusted_by_all)
        ),
        None,
    ),
    Case(
        "namespaces that ask",
        lambda it: it._replace(
            configurations=webhook_configurations(change=opt_in),
            namespaces=[Meta(name="default", labels=labels), Meta(name="other"), RESERVATIONS],
        ),
        None,
    ),
    Case(
        "a webhook may fail closed",
        lambda it: it._replace(configurations=webhook_configurations(change=strict)),
        None,
    ),
    Case("a KAI that binds", beside_a_kai, None),
    Case("nothing but a policy", by_policy, None),
    Case("cert-manager may issue the certificate", by_cert_manager, None),
    Case("files may hold the certificate", by_files, None),
    Case("another namespace may hold it", renamed, None),
    Case(
        "months later nothing has expired",
        lambda it: it._replace(
            now=NOW + timedelta(days=200),
            leases=[
                lease("trainer-kai-podgrouper", ago_s=-200 * 86400),
                lease("trainer-kai-scheduler", ago_s=-200 * 86400),
            ],
        ),
        None,
    ),
]


@pytest.mark.parametrize("case", HEALTHY, ids=ids)
def test_nothing_is_wrong_with_a_healthy_installation(
    case: Case[Callable[[InstallationFacts], InstallationFacts], None],
) -> None:
    """However it is set up, every finding is ok."""
    findings = run_checks(case.given(healthy_installation()))

    assert [it for it in findings if it.state is not CheckState.OK] == []
    assert len({it.check for it in findings}) == len(findings)


def test_without_any_read_permission_no_check_fails() -> None:
    """Each says that it cannot tell."""
    manifests = expected_manifests()
    nothing = InstallationFacts(Installation("trainer-kai", "kai-scheduler"), manifests, NOW)
    accounts = {it.name: NOT_ASKED for it in manifests.accounts}
    definitions = dict.fromkeys(healthy_installation().definitions, NOT_ASKED)

    findings = run_checks(
        nothing._replace(definitions=definitions, accounts=accounts, denied_permissions=accounts)
    )

    assert {it.state for it in findings} == {CheckState.UNKNOWN}
    assert {it.observed for it in findings} >= {"it was not read"}
    assert len(findings) >= len(CHECKS)
