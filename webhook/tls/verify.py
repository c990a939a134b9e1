"""Verifies a certificate by a TLS handshake in memory; the TLS context that the server uses.

A handshake shows whether OpenSSL accepts a key, whether it belongs to the certificate, and whether
a chain leads to an authority. It ignores the time; validity is returned apart, since the caller
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
    "certificate_validity",
    "inspect_content",
    "server_context",
    "verify_trust",
]

_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, unnamed in Python
_MAX_HANDSHAKE_ROUNDS: Final = 4  # a handshake is over by then


class CertificateValidity(NamedTuple):
    """When a certificate and its chain are valid."""

    begins: datetime = NEVER
    ends: datetime = NEVER
    fault: str = ""  # why it cannot be shown at any time

    def holds_at(self, now: datetime) -> bool:
        """Say whether it is valid."""
        return self.begins <= now < self.ends


class TrustResult(NamedTuple):
    """Whether a client trusts a server."""

    until: datetime | None  # the end of the last authority that it trusts; None: not trusted
    why_not: str = ""


class DynamicTlsContext:
    """The certificate that a server shows: new connections get the newest, open ones keep theirs.

    Whole contexts are exchanged within the one that the server listens with. To load another pair
    into that one would leave the old one beside it where its key is of another kind.
    """

    def __init__(self) -> None:
        self.context: ssl.SSLContext = _empty_context()
        """To listen with; without a certificate every handshake fails."""
        self.pair: TlsKeyPair | None = None
        self._newest = self.context
        self._client_authorities = ""
        self.context.sni_callback = self._swap

    def set_pair(self, pair: TlsKeyPair) -> None:
        """Show this pair from now on; one that cannot be shown raises `ssl.SSLError`."""
        self._newest = server_context(pair, self._client_authorities)
        self.pair = pair

    def require_client_certificates(self, authorities: str) -> None:
        """Accept only clients with a certificate signed by one of these authorities, in PEM.

        `ssl.SSLError` or `ValueError` says that there are none; then nothing changes.
        """
        _require_client_certificates(_empty_context(), authorities)
        # The listening context decides whether to ask, the newest one which authorities count.
        _require_client_certificates(self.context, authorities)
        self._client_authorities = authorities
        if self.pair is not None:
            self.set_pair(self.pair)

    def _swap(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._newest


def server_context(pair: TlsKeyPair, client_authorities: str = "") -> ssl.SSLContext:
    """Return the TLS context of a key pair; `ssl.SSLError` says that it cannot be shown."""
    context = _empty_context()
    if client_authorities:
        _require_client_certificates(context, client_authorities)
    file = os.memfd_create("tls")  # OpenSSL reads files only; this one is in memory
    try:
        os.write(file, pair.key + b"\n" + pair.certificate)
        # Without a password argument OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(f"/dev/fd/{file}", password="")
    finally:
        os.close(file)
    return context


@lru_cache(maxsize=4)
def inspect_content(content: SecretContent, hosts: tuple[CertificateHost, ...]) -> SecretState:
    """Return the state of a Secret, for `next_step`."""
    try:
        authorities = x509.load_pem_x509_certificates(content.authorities)
    except ValueError:
        return SecretState(fault="its authority cannot be read")
    keys = signing_keys(content, authorities)
    authority_states = tuple(
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
        return SecretState(authority_states, fault=fault)
    missing = ", ".join(sorted(map(str, set(hosts) - hosts_in(content.certificate))))
    if missing:
        return SecretState(authority_states, begins=begins, ends=ends, missing=missing)
    host = str(hosts[0])
    signers = (fingerprint(it) for it in authorities if not _handshake(it, content.pair, host))
    return SecretState(authority_states, next(signers, ""), begins, ends)


def certificate_validity(pair: TlsKeyPair) -> CertificateValidity:
    """Return when the whole chain is valid, or why it cannot be shown at all."""
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
    """Say whether a client with this caBundle, in base64, trusts a server under a host name."""
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
    """Do a handshake; return why the client ended it."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.hostname_checks_common_name = False  # API servers ignore common names
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    client.load_verify_locations(cadata=authority.public_bytes(serialization.Encoding.DER))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(to_client, to_server, server_hostname=host)
    try:
        server_end = server_context(pair).wrap_bio(to_server, to_client, server_side=True)
        for _ in range(_MAX_HANDSHAKE_ROUNDS):
            if _handshake_done(client_end) & _handshake_done(server_end):
                return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except ssl.SSLError as error:
        return str(error.reason or error)
    return "the handshake does not end"


def _handshake_done(end: ssl.SSLObject) -> bool:
    """Take one step at one end; say whether its handshake is done."""
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
    context.num_tickets = 0  # no resumption: each connection shows its certificate
    context.options |= ssl.OP_NO_TICKET
