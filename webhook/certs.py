"""A certificate and its authority: made, judged, and shown.

Nothing here knows a clock or a cluster: `rotate` keeps what is made here.
"""

import ipaddress
import os
import ssl
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["MARGIN", "Pair", "fault_of", "make", "needs_renewal", "server_context"]

_Authority: TypeAlias = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]

MARGIN: Final = timedelta(days=30)  # so long before its end a certificate is made anew
_LEAF: Final = timedelta(days=365)
_AUTHORITY: Final = timedelta(days=3650)
_EARLY: Final = timedelta(minutes=5)  # for clocks that are behind


class Pair(NamedTuple):
    """A certificate and its authority, with their keys, as PEM."""

    authority: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


def needs_renewal(certificate: x509.Certificate, now: datetime, margin: timedelta) -> bool:
    """Say whether a certificate is not valid now, or not for long."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return not begins <= now < ends - margin


def fault_of(pair: Pair, hosts: Iterable[str], now: datetime, margin: timedelta) -> str | None:
    """Say why a certificate cannot be shown, or None."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        authority = x509.load_pem_x509_certificate(pair.authority)
        key = serialization.load_pem_private_key(pair.key, None)
        certificate.verify_directly_issued_by(authority)
        missing = set(hosts) - _named(certificate)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        return f"it cannot be read: {error}" if str(error) else "its authority did not sign it"
    if key.public_key() != certificate.public_key():
        return "its key belongs to another certificate"
    if needs_renewal(authority, now, timedelta()) or needs_renewal(certificate, now, margin):
        return f"it is valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
    return f"it does not name {', '.join(sorted(missing))}" if missing else None


def make(hosts: Sequence[str], now: datetime, old: Pair | None = None) -> Pair:
    """Make a certificate, by the authority of the old one where that will do for its whole life."""
    authority = _authority_of(old, now) if old else None
    certificate, signing_key = authority or _new_authority(now)
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = (
        _builder(hosts[0], certificate.subject, key.public_key(), (now - _EARLY, now + _LEAF))
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_of(signing_key), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    return Pair(_pem(certificate), _private(signing_key), _pem(leaf), _private(key))


def server_context(pair: Pair) -> ssl.SSLContext:
    """Return what a server shows; loading another pair into it serves new connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    file = os.memfd_create("tls")  # OpenSSL reads files only; this one is in memory, and ours alone
    try:
        os.write(file, pair.key + pair.certificate)
        context.load_cert_chain(f"/dev/fd/{file}")
    finally:
        os.close(file)
    return context


def _authority_of(old: Pair, now: datetime) -> _Authority | None:
    """Return an authority that can sign another certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(old.authority)
        key = serialization.load_pem_private_key(old.authority_key, None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or needs_renewal(certificate, now, _LEAF):
        return None
    return (certificate, key) if key.public_key() == certificate.public_key() else None


def _new_authority(now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("trainer-kai webhook authority")
    certificate = (
        _builder(name, name, key.public_key(), (now - _EARLY, now + _AUTHORITY))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _builder(
    subject: x509.Name | str,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    valid: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(subject) if isinstance(subject, str) else subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _key_of(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _named(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
