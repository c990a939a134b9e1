"""Whether the API server trusts what the webhook shows: authorities, names, dates.

What a dry run shows outranks what is read: who keeps certificates elsewhere, or has an authority
that every machine trusts, is not at fault where the webhook is answered. Who makes certificates is
said by the setting, and by the Secret only where that does not show: a Secret may be left over.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from trainer_kai.api.names import CERT_MANAGER_PREFIX
from trainer_kai.cli.doctor.facts import Facts, Obj, at, labels_of, listed
from trainer_kai.cli.doctor.finding import (
    CannotTell,
    Finding,
    Unread,
    fault,
    known,
    ok,
    warning,
)
from trainer_kai.cli.doctor.hooks import live_hooks
from trainer_kai.cli.doctor.settled import ELSEWHERE, told_webhook
from trainer_kai.cli.doctor.tried import answered, has_policy_only, refused_by

__all__ = [
    "check_certificate",
    "check_trust",
    "is_in_files",
    "is_made_by_others",
    "secret_name",
]

_OWN_KEY: Final = "ca.key"  # only where the webhook makes certificates itself
_OWN: Final = "self-managed"
_FILES: Final = "files"
_LATE: Final = 20  # a certificate with less than this part of its life left was forgotten
_RESTART: Final = "a webhook that makes a new one: look into its log, or start it anew"
_RENEW: Final = "a new one, from whoever makes your certificates"
_TOLD: Final = "the authority of the certificate that the webhook shows, in every caBundle"


class _Shown(NamedTuple):
    """What the Secret holds."""

    chain: tuple[x509.Certificate, ...]
    is_own: bool

    @property
    def leaf(self) -> x509.Certificate:
        return self.chain[0]


def check_trust(facts: Facts) -> Iterator[Finding]:
    """Say whether the authorities in the configuration are those of the certificate."""
    check, hooks = "authority", [hook for _, hook in live_hooks(facts)]
    if has_policy_only(facts):
        yield ok(check, "not needed: no webhook of ours is called")
        return
    untrusted, answers = _untrusted(facts), answered(facts)
    empty = [it["name"] for it in hooks if not at(it, "clientConfig", "caBundle")]
    if not hooks:
        raise CannotTell("there are no webhooks of ours")
    if untrusted:
        yield fault(check, f"the API server does not trust the webhook: {untrusted}", _TOLD)
    elif empty and not answers:
        right = "a webhook that runs and writes its authority there, or whoever else does"
        yield fault(check, f"{listed(empty)}: no caBundle", right)
    else:
        yield _compared(facts, hooks)


def _compared(facts: Facts, hooks: Sequence[Obj]) -> Finding:
    """Judge the authorities by the certificate in the Secret."""
    check, shown, name = "authority", _shown(facts), _secret_key(facts)
    if shown is None and not answered(facts):
        raise CannotTell(f"{_not_here(facts)}, and no dry run was answered")
    if shown is None:
        return ok(check, "the webhook is answered; its certificate is kept elsewhere")
    wrong = _wrong(hooks, shown)
    if not wrong:
        return ok(check, f"every caBundle has signed the certificate of {name}")
    if answered(facts) and len(wrong) == len(hooks):
        is_so = f"the webhook shows another certificate than that of {name}"
        return warning(check, is_so, "one Secret, for all: else the next process is not trusted")
    return fault(check, f"the caBundle of {listed(wrong)} has not signed that of {name}", _TOLD)


def check_certificate(facts: Facts) -> Iterator[Finding]:
    """Say how long the certificate is good for, and for which names."""
    check = "certificate"
    if has_policy_only(facts):
        yield ok(check, "not needed: no webhook of ours is called")
        return
    shown = _shown(facts)
    if answered(facts) and (shown is None or _is_left_over(facts, shown)):
        yield ok(check, "kept elsewhere; the webhook is answered")
    elif shown is not None:
        yield _dates(facts, shown)
    elif answered(facts) is None or is_in_files(facts):
        raise CannotTell(_not_here(facts))
    else:
        is_so = f"there is none in {_secret_key(facts)}, and the webhook does not answer"
        yield fault(check, is_so, "a webhook that runs: it makes one, or is given one")


def _dates(facts: Facts, shown: _Shown) -> Finding:
    check, right = "certificate", _RESTART if shown.is_own else _RENEW
    now, every = facts.server_now, _dated(facts, shown)
    over = [it for it in every if not _is_valid(it, now)]
    unnamed = [] if answered(facts) else sorted(_hosts(facts) - _names(shown.leaf))
    ends = min(it.not_valid_after_utc for it in every)
    if over:
        is_so = f"it is good {_span(over[0])} only, and it is {now:%F}"
        return fault(check, is_so, right)
    if unnamed:
        is_so = f"it does not name {listed(unnamed)}, as the webhook is called"
        return fault(check, is_so, right)
    if any(_is_late(it, now) for it in every):
        is_so = f"it ends on {ends:%F}, and should have been renewed"
        return warning(check, is_so, right)
    if _source(facts) == _OWN and not _may_be_ours(facts):
        is_so = f"{_secret_key(facts)} is made by others: the webhook, told {_OWN}, leaves it alone"
        return warning(check, is_so, "that Secret deleted, or tls.source as it was")
    kind = "made by the webhook" if shown.is_own else "made by others"
    return ok(check, f"good until {ends:%F}, {kind}")


def is_made_by_others(facts: Facts) -> bool:
    """Say whether the webhook is given its certificate, and needs no right to write one."""
    source = _source(facts)
    if source:
        return source != _OWN
    if isinstance(facts.secret, Unread):
        return False
    if facts.secret is None:
        return answered(facts) is True
    return _OWN_KEY not in (at(facts.secret, "data") or {})


def is_in_files(facts: Facts) -> bool:
    """Say whether the webhook reads files, and whatever is in a Secret is left over."""
    return _source(facts) == _FILES


def secret_name(facts: Facts) -> str:
    """Return in which Secret the webhook looks."""
    usual = "trainer-kai-webhook-tls"
    return _told(facts, "TLS_SECRET_NAME", usual) or usual


def _source(facts: Facts) -> str:
    """Return who makes the certificate, as the webhook is told; "" where that does not show."""
    return _told(facts, "TLS_SOURCE", _OWN)


def _told(facts: Facts, setting: str, usual: str) -> str:
    told = told_webhook(facts, setting, usual)
    return "" if told == ELSEWHERE else told


def _untrusted(facts: Facts) -> str:
    """Return why the API server did not trust us in a dry run."""
    for trial in (facts.jobset, facts.gang_pod):
        refused = None if isinstance(trial, Unread) else refused_by(facts, trial)
        if refused is not None and refused.untrusted:
            return refused.untrusted
    return ""


def _secret_key(facts: Facts) -> str:
    return f"{facts.site.namespace}/{secret_name(facts)}"


def _not_here(facts: Facts) -> str:
    if is_in_files(facts):
        return "the certificate is in files"
    return f"there is no certificate in {_secret_key(facts)}"


def _shown(facts: Facts) -> _Shown | None:
    if is_in_files(facts):
        return None
    found = known(facts.secret)
    if found is None:
        return None
    try:
        pem = base64.b64decode(at(found, "data", "tls.crt") or "", validate=True)
        chain = tuple(x509.load_pem_x509_certificates(pem))
    except (ValueError, binascii.Error):
        return None
    return _Shown(chain, not is_made_by_others(facts))


def _may_be_ours(facts: Facts) -> bool:
    """Say whether the webhook takes a Secret for one that it wrote itself."""
    found = known(facts.secret) or {}
    notes = labels_of(found, "annotations")
    is_issued = any(it.startswith(CERT_MANAGER_PREFIX) for it in notes)
    return _OWN_KEY in (at(found, "data") or {}) and not is_issued


def _wrong(hooks: Sequence[Obj], shown: _Shown) -> list[str]:
    """Return the webhooks whose authorities have not signed what the Secret holds."""
    told = [it for it in hooks if at(it, "clientConfig", "caBundle")]
    return [it["name"] for it in told if not _trusts(it, shown)]


def _is_left_over(facts: Facts, shown: _Shown) -> bool:
    """Say whether every webhook is told of another authority: whoever answers shows that one's."""
    if isinstance(facts.configurations, Unread):
        return False
    hooks = [hook for _, hook in live_hooks(facts)]
    return bool(hooks) and len(_wrong(hooks, shown)) == len(hooks)


def _bundle(hook: Obj) -> tuple[x509.Certificate, ...]:
    try:
        pem = base64.b64decode(at(hook, "clientConfig", "caBundle") or "", validate=True)
        return tuple(x509.load_pem_x509_certificates(pem))
    except (ValueError, binascii.Error):
        return ()


def _trusts(hook: Obj, shown: _Shown) -> bool:
    """Say whether a chain leads from the certificate to one of a webhook's authorities."""
    trusted, one = _bundle(hook), shown.leaf
    for _ in range(len(shown.chain) + 1):
        if one in trusted or any(_signed(one, it) for it in trusted):
            return True
        above = next((it for it in shown.chain if it != one and _signed(one, it)), None)
        if above is None:
            return False
        one = above
    return False


def _signed(one: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        one.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _dated(facts: Facts, shown: _Shown) -> Sequence[x509.Certificate]:
    """Return the certificate, and the authorities that speak for it."""
    bundles = [] if isinstance(facts.configurations, Unread) else live_hooks(facts)
    authorities = {it for _, hook in bundles for it in _bundle(hook) if _signed(shown.leaf, it)}
    # of two authorities of one key the newer one counts: the older is on its way out
    newest = sorted(authorities, key=lambda it: it.not_valid_after_utc)[-1:]
    return shown.leaf, *newest


def _is_valid(one: x509.Certificate, now: datetime) -> bool:
    return one.not_valid_before_utc <= now < one.not_valid_after_utc


def _is_late(one: x509.Certificate, now: datetime) -> bool:
    life: timedelta = one.not_valid_after_utc - one.not_valid_before_utc
    return one.not_valid_after_utc - now < life / _LATE


def _span(one: x509.Certificate) -> str:
    return f"from {one.not_valid_before_utc:%F} to {one.not_valid_after_utc:%F}"


def _hosts(facts: Facts) -> set[str]:
    """Return the names by which the API server calls the webhook."""
    if isinstance(facts.configurations, Unread):
        return set()
    return {_host(hook) for _, hook in live_hooks(facts)} - {""}


def _host(hook: Obj) -> str:
    service = at(hook, "clientConfig", "service")
    if service:
        return f"{at(service, 'name')}.{at(service, 'namespace')}.svc"
    return urlsplit(at(hook, "clientConfig", "url") or "").hostname or ""


def _names(leaf: x509.Certificate) -> set[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return {*names.get_values_for_type(x509.DNSName), *addresses}
