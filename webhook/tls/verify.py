"""Verifies a certificate by a TLS handshake in memory; the TLS context that the server uses.

A handshake shows whether OpenSSL accepts a key, whether it belongs to the certificate, and whether
a chain leads to an authority. It ignores the time: the caller has the clock, so the validity is
returned separately.
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
from webhook.tls.rotation_plan import NEVER, Authority, SecretState

_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, unnamed in Python
_MAX_HANDSHAKE_ROUNDS: Final = 4  # a handshake needs fewer


class CertificateValidity(NamedTuple):
    begins: datetime = NEVER
    ends: datetime = NEVER
    fault: str = ""  # why it cannot be used at any time

    def holds_at(self, now: datetime) -> bool:
        return self.begins <= now < self.ends


class TrustResult(NamedTuple):
    until: datetime | None  # when the last trusted authority expires; None: not trusted
    why_not: str = ""


class DynamicTlsContext:
    """The certificate of a server: new connections use the newest one, open ones keep theirs.

    Each certificate has a context of its own, and the listening context selects the newest one.
    Loading a second pair into one context would keep the first if its key is of another kind.
    """

    def __init__(self) -> None:
        # The context to listen with; without a certificate every handshake fails.
        self.context: ssl.SSLContext = _empty_context()
        self.pair: TlsKeyPair | None = None
        self._newest = self.context
        self._client_authorities = ""
        self.context.sni_callback = self._swap

    def set_pair(self, pair: TlsKeyPair) -> None:
        """Use this pair from now on; raise `ssl.SSLError` if it cannot be used."""
        self._newest = server_context(pair, self._client_authorities)
        self.pair = pair

    def require_client_certificates(self, authorities: str) -> None:
        """Accept only clients with a certificate signed by one of these authorities, in PEM.

        Raise `ssl.SSLError` or `ValueError` if there is no certificate, and change nothing.
        """
        _require_client_certificates(_empty_context(), authorities)
        # The listening context decides whether a certificate is requested, the newest one which
        # authorities are accepted.
        _require_client_certificates(self.context, authorities)
        self._client_authorities = authorities
        if self.pair is not None:
            self.set_pair(self.pair)

    def _swap(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._newest


def server_context(pair: TlsKeyPair, client_authorities: str = "") -> ssl.SSLContext:
    """Return the TLS context of a key pair; raise `ssl.SSLError` if it cannot be used."""
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
    try:
        authorities = x509.load_pem_x509_certificates(content.authorities)
    except ValueError:
        return SecretState(fault="the authority (ca.crt) cannot be read")
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
    """Return when the whole chain is valid, or why it cannot be used at all."""
    try:
        chain = x509.load_pem_x509_certificates(pair.certificate)
        server_context(pair)
    except ValueError:
        return CertificateValidity(fault="the certificate (tls.crt) cannot be read")
    except ssl.SSLError as error:
        why = (error.reason or "no PEM key without a password").lower().replace("_", " ")
        return CertificateValidity(fault=f"the key (tls.key) cannot be used: {why}")
    begins = max(it.not_valid_before_utc for it in chain)
    return CertificateValidity(begins, min(it.not_valid_after_utc for it in chain))


@lru_cache(maxsize=32)
def verify_trust(bundle: str, pair: TlsKeyPair, host: str) -> TrustResult:
    """Return whether a client with this caBundle, in base64, trusts the server of a host."""
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:  # also the errors of binascii
        return TrustResult(None, "the caBundle has no valid certificate")
    why, until = "", None
    for authority in authorities:
        why_not = _handshake(authority, pair, host)
        if not why_not:
            ends = authority.not_valid_after_utc
            until = max(until, ends) if until else ends
        why = why or why_not
    return TrustResult(until, "" if until else why)


def _handshake(authority: x509.Certificate, pair: TlsKeyPair, host: str) -> str:
    """Do a handshake; return why the client ended it, or "" if it succeeded."""
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
    return "the TLS handshake does not complete"


def _handshake_done(end: ssl.SSLObject) -> bool:
    """Take one step at one end; return whether its handshake is done."""
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
