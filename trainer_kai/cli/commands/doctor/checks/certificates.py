"""Whether the API server trusts the webhook's certificate: CAs, names, dates.

A dry run is stronger evidence than what is read: a certificate that is stored elsewhere is no fault
if the webhook responds. The setting says how certificates are created; the Secret counts only if
the setting is not visible, because a Secret may be left over.
"""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from trainer_kai.api.names import CERT_MANAGER_PREFIX
from trainer_kai.cli.commands.doctor.checks.dry_runs import refused_by, webhook_answered
from trainer_kai.cli.commands.doctor.checks.webhooks import installed_webhooks
from trainer_kai.cli.commands.doctor.facts import (
    UNKNOWN_VALUE,
    CannotTell,
    CheckFinding,
    Fact,
    Findings,
    InstallationFacts,
    Obj,
    Unread,
    annotations_of,
    fault,
    listed,
    nested_field,
    ok,
    require,
    warning,
    webhook_setting,
)

Chain: TypeAlias = tuple[x509.Certificate, ...]  # the first one, and its issuers

_CA_KEY: Final = "ca.key"  # exists only if the webhook creates certificates itself
_SELF_MANAGED: Final = "self-managed"
_FILES: Final = "files"
_RENEWAL_PART: Final = 20  # the last part of a lifetime, when renewal is overdue
_RESTART: Final = "check the log of the webhook, which renews the certificate; restart it if needed"
_RENEW: Final = "renew the certificate where your certificates are issued"
_SET_CA_BUNDLE: Final = "set every caBundle to the CA of the certificate that the webhook uses"


def check_trust(facts: InstallationFacts, _: object) -> Findings:
    hooks = [hook for _, hook in installed_webhooks(facts)]
    trust_error, is_answered = _trust_error(facts), webhook_answered(facts)
    empty = [it["name"] for it in hooks if not nested_field(it, "clientConfig", "caBundle")]
    if not hooks:
        raise CannotTell("the webhooks of trainer-kai are not installed")
    if trust_error:
        observed = f"the API server does not trust the webhook: {trust_error}"
        yield fault(observed, _SET_CA_BUNDLE)
    elif empty and not is_answered:
        remedy = "start the webhook, which writes its CA there, or set the caBundle of your own CA"
        yield fault(f"{listed(empty)}: no caBundle", remedy)
    else:
        yield _authority_finding(facts, hooks)


def _authority_finding(facts: InstallationFacts, hooks: Sequence[Obj]) -> CheckFinding:
    chain, name = require(served_certificate(facts)), _secret_key(facts)
    if chain is None and not webhook_answered(facts):
        raise CannotTell(f"{_missing_text(facts)}, and no dry run was answered")
    if chain is None:
        return ok("the webhook responds; its certificate is stored elsewhere")
    untrusting = _untrusting_webhooks(hooks, chain)
    if not untrusting:
        return ok(f"every caBundle matches the certificate in {name}")
    if webhook_answered(facts) and len(untrusting) == len(hooks):
        observed = f"the webhook uses another certificate than the one in {name}"
        remedy = "let all replicas use one Secret; otherwise a restarted replica is not trusted"
        return warning(observed, remedy)
    observed = f"the caBundle of {listed(untrusting)} does not match the certificate in {name}"
    return fault(observed, _SET_CA_BUNDLE)


def check_certificate(facts: InstallationFacts, chain: Chain | None) -> Findings:
    if webhook_answered(facts) and (chain is None or _is_left_over(facts, chain)):
        yield ok("stored elsewhere; the webhook responds")
    elif chain is not None:
        yield _validity_finding(facts, chain)
    elif webhook_answered(facts) is None or certificate_in_files(facts):
        raise CannotTell(_missing_text(facts))
    else:
        observed = f"{_secret_key(facts)} has no certificate, and the webhook does not respond"
        yield fault(observed, "start the webhook, which creates a certificate, or provide one")


def _validity_finding(facts: InstallationFacts, chain: Chain) -> CheckFinding:
    is_self_managed = not is_external_certificate(facts)
    remedy = _RESTART if is_self_managed else _RENEW
    now, certificates = facts.server_now, _certificates_to_check(facts, chain)
    expired = [it for it in certificates if not _is_valid(it, now)]
    is_answered = webhook_answered(facts)
    unnamed = [] if is_answered else sorted(_called_hosts(facts) - _certificate_names(chain[0]))
    ends = min(it.not_valid_after_utc for it in certificates)
    if expired:
        observed = f"it is valid {_validity_text(expired[0])} only, and today is {now:%F}"
        return fault(observed, remedy)
    if unnamed:
        observed = f"it does not contain {listed(unnamed)}, the name by which the webhook is called"
        return fault(observed, remedy)
    if any(_needs_renewal(it, now) for it in certificates):
        return warning(f"it expires on {ends:%F}, and should have been renewed", remedy)
    if _certificate_source(facts) == _SELF_MANAGED and not _may_be_self_managed(facts):
        observed = (
            f"{_secret_key(facts)} was created by another tool, so the webhook with tls.source="
            f"{_SELF_MANAGED} does not change it"
        )
        return warning(observed, "delete that Secret, or set tls.source back")
    creator = "the webhook" if is_self_managed else "another tool"
    return ok(f"valid until {ends:%F}, created by {creator}")


def served_certificate(facts: InstallationFacts) -> Fact[Chain | None]:
    """Return the certificate in the Secret, and those that follow it; None if it has none."""
    if certificate_in_files(facts):
        return None
    if isinstance(facts.secret, Unread):
        return facts.secret
    return _chain(nested_field(facts.secret, "data", "tls.crt")) or None


def is_external_certificate(facts: InstallationFacts) -> bool:
    """Say whether the webhook gets its certificate from elsewhere, and writes none."""
    source = _certificate_source(facts)
    if source:
        return source != _SELF_MANAGED
    if isinstance(facts.secret, Unread):
        return False
    if facts.secret is None:
        return webhook_answered(facts) is True
    return _CA_KEY not in (nested_field(facts.secret, "data") or {})


def certificate_in_files(facts: InstallationFacts) -> bool:
    """Say whether the webhook reads files; a Secret is then left over."""
    return _certificate_source(facts) == _FILES


def secret_name(facts: InstallationFacts) -> str:
    default = "trainer-kai-webhook-tls"
    return _webhook_value(facts, "TLS_SECRET_NAME", default) or default


def _certificate_source(facts: InstallationFacts) -> str:
    """Return the setting tls.source of the webhook; "" if not known."""
    return _webhook_value(facts, "TLS_SOURCE", _SELF_MANAGED)


def _webhook_value(facts: InstallationFacts, setting: str, default: str) -> str:
    configured = webhook_setting(facts, setting, default)
    return "" if configured == UNKNOWN_VALUE else configured


def _trust_error(facts: InstallationFacts) -> str:
    """Return why a dry run says that the API server does not trust the webhook; "" for none."""
    for dry_run in (facts.jobset, facts.gang_pod):
        refused = None if isinstance(dry_run, Unread) else refused_by(facts, dry_run)
        if refused is not None and refused.trust_error:
            return refused.trust_error
    return ""


def _secret_key(facts: InstallationFacts) -> str:
    return f"{facts.installation.namespace}/{secret_name(facts)}"


def _missing_text(facts: InstallationFacts) -> str:
    if certificate_in_files(facts):
        return "the certificate is in files"
    return f"{_secret_key(facts)} has no certificate"


def _may_be_self_managed(facts: InstallationFacts) -> bool:
    """Say whether the webhook considers the Secret its own."""
    found = require(facts.secret) or {}
    is_issued = any(it.startswith(CERT_MANAGER_PREFIX) for it in annotations_of(found))
    return _CA_KEY in (nested_field(found, "data") or {}) and not is_issued


def _untrusting_webhooks(hooks: Sequence[Obj], chain: Chain) -> list[str]:
    configured = [it for it in hooks if nested_field(it, "clientConfig", "caBundle")]
    return [it["name"] for it in configured if not _trusts(it, chain)]


def _is_left_over(facts: InstallationFacts, chain: Chain) -> bool:
    """Say whether no webhook trusts the Secret: its certificate is then not in use."""
    hooks = _hooks_if_read(facts)
    return bool(hooks) and len(_untrusting_webhooks(hooks, chain)) == len(hooks)


def _hooks_if_read(facts: InstallationFacts) -> list[Obj]:
    """Return our webhooks as they are installed; none if the configurations are unread."""
    is_unread = isinstance(facts.configurations, Unread)
    return [] if is_unread else [hook for _, hook in installed_webhooks(facts)]


def _ca_bundle(hook: Obj) -> Chain:
    return _chain(nested_field(hook, "clientConfig", "caBundle"))


def _chain(text: str | None) -> Chain:
    """Return the certificates in PEM in base64; none if it cannot be read."""
    try:
        pem = base64.b64decode(text or "", validate=True)
        return tuple(x509.load_pem_x509_certificates(pem))
    except (ValueError, binascii.Error):
        return ()


def _trusts(hook: Obj, chain: Chain) -> bool:
    trusted, certificate = _ca_bundle(hook), chain[0]
    for _ in range(len(chain) + 1):
        if certificate in trusted or any(_is_signed_by(certificate, it) for it in trusted):
            return True
        issuers = (it for it in chain if it != certificate and _is_signed_by(certificate, it))
        issuer = next(issuers, None)
        if issuer is None:
            return False
        certificate = issuer
    return False


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificates_to_check(facts: InstallationFacts, chain: Chain) -> Chain:
    """Return the certificate, and the newest CA that signed it."""
    leaf = chain[0]
    hooks = _hooks_if_read(facts)
    authorities = {it for hook in hooks for it in _ca_bundle(hook) if _is_signed_by(leaf, it)}
    # of two CAs with one key the newer one counts: the older one is being replaced
    newest = sorted(authorities, key=lambda it: it.not_valid_after_utc)[-1:]
    return leaf, *newest


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _needs_renewal(certificate: x509.Certificate, now: datetime) -> bool:
    lifetime: timedelta = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < lifetime / _RENEWAL_PART


def _validity_text(certificate: x509.Certificate) -> str:
    return f"from {certificate.not_valid_before_utc:%F} to {certificate.not_valid_after_utc:%F}"


def _called_hosts(facts: InstallationFacts) -> set[str]:
    return {_called_host(hook) for hook in _hooks_if_read(facts)} - {""}


def _called_host(hook: Obj) -> str:
    service = nested_field(hook, "clientConfig", "service")
    if service:
        return f"{nested_field(service, 'name')}.{nested_field(service, 'namespace')}.svc"
    return urlsplit(nested_field(hook, "clientConfig", "url") or "").hostname or ""


def _certificate_names(leaf: x509.Certificate) -> set[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return {*names.get_values_for_type(x509.DNSName), *addresses}
