"""Verifies a certificate by a TLS handshake in memory; the TLS context that the server uses.

Whether OpenSSL accepts a key, whether it belongs to the certificate, and whether a chain leads to
an authority: a handshake answers it. Time is left out of it and returned apart, since the caller
knows what time it is.
"""

import base64
import os
import ssl
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from webhook.tls.make import (
    CertificateHost,
    SecretContent,
    TlsKeyPair,
    fingerprint,
    hosts_in,
    signing_keys,
)
from webhook.tls.plan import NEVER, Authority, SecretState

__all__ = [
    "CertificateValidity",
    "DynamicTlsContext",
    "TrustResult",
    "certificate_validity",
    "inspect_content",
    "server_context",
    "verify_trust",
]

_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, unnamed in Python
_MAX_ROUNDS: Final = 4  # a handshake is over by then


class CertificateValidity(NamedTuple):
    """When a certificate, and those that lead to its authority, can be used."""

    begins: datetime = NEVER
    ends: datetime = NEVER
    fault: str = ""  # why it cannot be shown at any time

    def holds_at(self, now: datetime) -> bool:
        """Say whether it is so."""
        return self.begins <= now < self.ends


class TrustResult(NamedTuple):
    """Whether a client trusts a server."""

    until: datetime | None  # when the last authority ends by which it does; None: it does not
    why_not: str = ""


class DynamicTlsContext:
    """The certificate that a server shows: new connections get the newest, others go on.

    Whole contexts are exchanged within the one that the server listens with. To load another pair
    into that one would leave the old one beside it where its key is of another kind.
    """

    def __init__(self) -> None:
        self.context: ssl.SSLContext = _empty_context()
        """What to listen with; without a certificate it refuses everybody."""
        self.pair: TlsKeyPair | None = None
        self._newest = self.context
        self._client_authorities = ""
        self.context.sni_callback = self._swap

    def set_pair(self, pair: TlsKeyPair) -> None:
        """Show this one from now on; one that cannot be shown raises `ssl.SSLError`."""
        self._newest = server_context(pair, self._client_authorities)
        self.pair = pair

    def require_client_certificates(self, authorities: str) -> None:
        """Let only clients in, from now on, with a certificate signed by one of these, in PEM.

        `ssl.SSLError` or `ValueError` says that there are none; then nothing changes.
        """
        _require_client_certificates(_empty_context(), authorities)
        _require_client_certificates(
            self.context, authorities
        )  # whether to ask is read here, whom to trust there
        self._client_authorities = authorities
        if self.pair is not None:
            self.set_pair(self.pair)

    def _swap(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._newest


def server_context(pair: TlsKeyPair, client_authorities: str = "") -> ssl.SSLContext:
    """Return what a server shows, and whom it lets in; `ssl.SSLError` says that it cannot."""
    context = _empty_context()
    if client_authorities:
        _require_client_certificates(context, client_authorities)
    file = os.memfd_create("tls")  # OpenSSL reads files only; this one is in memory, and ours alone
    try:
        os.write(file, pair.key + b"\n" + pair.certificate)
        # Asked for no password, OpenSSL would ask the person at the terminal for one.
        context.load_cert_chain(f"/dev/fd/{file}", password="")
    finally:
        os.close(file)
    return context


@lru_cache(maxsize=4)
def inspect_content(content: SecretContent, hosts: tuple[CertificateHost, ...]) -> SecretState:
    """Return what a decision needs to know of a Secret."""
    try:
        authorities = x509.load_pem_x509_certificates(content.authorities)
    except ValueError:
        return SecretState(fault="its authority cannot be read")
    keys = signing_keys(content, authorities)
    known = tuple(
        Authority(
            fingerprint(it),
            it.not_valid_before_utc,
            it.not_valid_after_utc,
            fingerprint(it) in keys,
        )
        for it in authorities
    )
    begins, ends, fault = certificate_validity(content.pair)
    if fault:
        return SecretState(known, fault=fault)
    missing = ", ".join(sorted(map(str, set(hosts) - hosts_in(content.certificate))))
    if missing:
        return SecretState(known, begins=begins, ends=ends, missing=missing)
    host = str(hosts[0])
    signers = (fingerprint(it) for it in authorities if not _handshake(it, content.pair, host))
    return SecretState(known, next(signers, ""), begins, ends)


def certificate_validity(pair: TlsKeyPair) -> CertificateValidity:
    """Return from when until when all that is shown is valid, and why it cannot be shown at all."""
    try:
        chain = x509.load_pem_x509_certificates(pair.certificate)
        server_context(pair)
    except ValueError:
        return CertificateValidity(fault="it cannot be read")
    except ssl.SSLError as error:
        why = (error.reason or "no key in PEM, free of a password").lower().replace("_", " ")
        return CertificateValidity(fault=f"its key will not do: {why}")
    begins = max(it.not_valid_before_utc for it in chain)
    return CertificateValidity(begins, min(it.not_valid_after_utc for it in chain))


@lru_cache(maxsize=32)
def verify_trust(bundle: str, pair: TlsKeyPair, host: str) -> TrustResult:
    """Say whether whoever trusts a caBundle, in base64, trusts a server under a name."""
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:  # binascii's errors are such
        return TrustResult(None, "no authority can be read")
    why, until = "", None
    for authority in authorities:
        why_not = _handshake(authority, pair, host)
        if not why_not:
            ends = authority.not_valid_after_utc
            until = max(until, ends) if until else ends
        why = why or why_not
    return TrustResult(until, "" if until else why)


def _handshake(authority: x509.Certificate, pair: TlsKeyPair, host: str) -> str:
    """Connect; return why the client hung up."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.hostname_checks_common_name = False  # API servers do not look there
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    client.load_verify_locations(cadata=authority.public_bytes(serialization.Encoding.DER))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(to_client, to_server, server_hostname=host)
    try:
        server_end = server_context(pair).wrap_bio(to_server, to_client, server_side=True)
        for _ in range(_MAX_ROUNDS):
            if _handshake_done(client_end) & _handshake_done(server_end):
                return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except ssl.SSLError as error:
        return str(error.reason or error)
    return "the handshake does not end"


def _handshake_done(end: ssl.SSLObject) -> bool:
    """Let one end do what it can."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _require_client_certificates(context: ssl.SSLContext, authorities: str) -> None:
    context.load_verify_locations(cadata=authorities)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # each connection shows its certificate, also after these were replaced
    context.options |= ssl.OP_NO_TICKET
