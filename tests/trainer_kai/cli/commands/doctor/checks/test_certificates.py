"""Certificates and authorities: what was read, and what a dry run showed of it."""

import base64
from datetime import timedelta
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.certificates import make_certificates
from tests.trainer_kai.cli.commands.doctor.installation import (
    HOSTS,
    NOW,
    certificate_files,
    check_results,
    deployment,
    healthy_installation,
    refused_jobset,
    secret,
    webhook_configurations,
)
from trainer_kai.cli.commands.doctor.expected import expected_manifests
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, Obj, listed

HOOK = "jobset-create.trainer-kai.dev"
X509 = "x509: certificate signed by unknown authority"
UNTRUSTED = refused_jobset(
    f'failed calling webhook "{HOOK}": failed to call webhook: Post "u": {X509}'
)
UNREACHABLE = refused_jobset(f'failed calling webhook "{HOOK}": connection refused')
DENIED = refused_jobset("exceeded quota", 403)
OTHER = make_certificates(HOSTS, NOW)
EARLY = make_certificates(HOSTS, NOW + timedelta(days=2))
NAME = "trainer-kai/trainer-kai-webhook-tls"
HOOKS = [
    hook.name
    for configuration in expected_manifests().configurations
    for hook in configuration.hooks
]
ALL = listed(HOOKS)


def empty(found: Any) -> None:
    for hook in (it for configuration in found for it in configuration["webhooks"]):
        del hook["clientConfig"]["caBundle"]


def one_wrong(found: Any) -> None:
    wrong = base64.b64encode(OTHER.authority).decode()
    found[0]["webhooks"][2]["clientConfig"]["caBundle"] = wrong


def with_source(source: str) -> list[Obj]:
    return [deployment("trainer-kai-webhook", TRAINER_KAI_TLS_SOURCE=source)]


def issued() -> Obj:
    """Return a Secret of ours that cert-manager has written over."""
    return {**secret(), "metadata": {"annotations": {"cert-manager.io/issuer-name": "x"}}}


def facts(**fields: Any) -> InstallationFacts:
    return healthy_installation()._replace(**fields)


TRUSTED: list[Case[InstallationFacts, tuple[str, str]]] = [
    Case(
        "a wrong authority, seen and said",
        facts(jobset=UNTRUSTED, configurations=webhook_configurations(OTHER.authority)),
        ("fault", f"the API server does not trust the webhook: {X509}"),
    ),
    Case(
        "a wrong authority, and nobody answers anyway",
        facts(jobset=UNREACHABLE, configurations=webhook_configurations(OTHER.authority)),
        ("fault", f"the caBundle of {ALL} does not match the certificate in {NAME}"),
    ),
    Case(
        "one webhook of three has a wrong one",
        facts(configurations=webhook_configurations(change=one_wrong)),
        ("fault", f"the caBundle of pod.trainer-kai.dev does not match the certificate in {NAME}"),
    ),
    Case(
        "another Secret than that of the process",
        facts(secret=secret(OTHER)),
        ("warning", f"the webhook uses another certificate than the one in {NAME}"),
    ),
    Case(
        "none, and no answer",
        facts(jobset=UNREACHABLE, configurations=webhook_configurations(change=empty)),
        ("fault", f"{ALL}: no caBundle"),
    ),
    Case(
        "the old and the new one",
        facts(
            configurations=webhook_configurations(OTHER.authority + certificate_files().authority)
        ),
        ("ok", f"every caBundle matches the certificate in {NAME}"),
    ),
    Case(
        "the certificate itself is the authority",
        facts(configurations=webhook_configurations(certificate_files().certificate)),
        ("ok", f"every caBundle matches the certificate in {NAME}"),
    ),
    Case(
        "nobody knows",
        facts(jobset=DENIED, secret=None),
        ("unknown", f"{NAME} has no certificate, and no dry run was answered"),
    ),
    Case(
        "no certificate at all in the Secret",
        facts(secret={"data": {"tls.crt": "????"}}),
        ("ok", "the webhook responds; its certificate is stored elsewhere"),
    ),
]


@pytest.mark.parametrize("case", TRUSTED, ids=ids)
def test_authorities(case: Case[InstallationFacts, tuple[str, str]]) -> None:
    """A dry run outranks what is read."""
    assert check_results(case.given, "CA bundle") == [case.want]


DATED: list[Case[InstallationFacts, tuple[str, str]]] = [
    Case(
        "it is over",
        facts(
            secret=secret(certificate_files(400)),
            configurations=webhook_configurations(certificate_files(400).authority),
        ),
        ("fault", "it is valid from 2025-03-27 to 2026-03-27 only, and today is 2026-05-01"),
    ),
    Case(
        "it has not begun",
        facts(secret=secret(EARLY), configurations=webhook_configurations(EARLY.authority)),
        ("fault", "it is valid from 2026-05-03 to 2027-05-03 only, and today is 2026-05-01"),
    ),
    Case(
        "it has begun by the clock of the API server",
        facts(
            secret=secret(EARLY),
            configurations=webhook_configurations(EARLY.authority),
            skew_s=3 * 86400.0,
        ),
        ("ok", "valid until 2027-05-03, created by the webhook"),
    ),
    Case(
        "it was forgotten",
        facts(
            secret=secret(certificate_files(355)),
            configurations=webhook_configurations(certificate_files(355).authority),
        ),
        ("warning", "it expires on 2026-05-11, and should have been renewed"),
    ),
    Case(
        "there is time to renew it",
        facts(
            secret=secret(certificate_files(340)),
            configurations=webhook_configurations(certificate_files(340).authority),
        ),
        ("ok", "valid until 2026-05-26, created by the webhook"),
    ),
    Case(
        "it is for another name",
        facts(jobset=UNREACHABLE, secret=secret(make_certificates(("other.svc",), NOW))),
        ("fault", f"it does not contain {HOSTS[0]}, the name by which the webhook is called"),
    ),
    Case(
        "there is none, and no answer",
        facts(jobset=UNREACHABLE, secret=None),
        ("fault", f"{NAME} has no certificate, and the webhook does not respond"),
    ),
    Case(
        "it was made by others",
        facts(secret=secret(key=False), deployments=[]),
        ("ok", "valid until 2027-05-01, created by another tool"),
    ),
    Case(
        "it is made by cert-manager, in a Secret that was ours",
        facts(deployments=with_source("cert-manager")),
        ("ok", "valid until 2027-05-01, created by another tool"),
    ),
    Case(
        "it was made by others, and is to be ours",
        facts(secret=secret(key=False)),
        (
            "warning",
            (
                f"{NAME} was created by another tool, so the webhook with tls.source=self-managed "
                "does not change it"
            ),
        ),
    ),
    Case(
        "cert-manager has written into what was ours, and it is to be ours again",
        facts(secret=issued(), deployments=with_source("self-managed")),
        (
            "warning",
            (
                f"{NAME} was created by another tool, so the webhook with tls.source=self-managed "
                "does not change it"
            ),
        ),
    ),
    Case(
        "it is in files, and an old one is left over",
        facts(secret=secret(certificate_files(400)), deployments=with_source("files")),
        ("ok", "stored elsewhere; the webhook responds"),
    ),
    Case(
        "it is in files, and nobody answers",
        facts(
            jobset=UNREACHABLE,
            secret=secret(certificate_files(400)),
            deployments=with_source("files"),
        ),
        ("unknown", "the certificate is in files"),
    ),
    Case(
        "an old one is left over, and the API server trusts another",
        facts(secret=secret(certificate_files(400)), deployments=[]),
        ("ok", "stored elsewhere; the webhook responds"),
    ),
]


@pytest.mark.parametrize("case", DATED, ids=ids)
def test_certificates(case: Case[InstallationFacts, tuple[str, str]]) -> None:
    """By dates and names."""
    assert check_results(case.given, "certificate") == [case.want]
