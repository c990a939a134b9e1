"""Creates certificates and authorities for a step of `rotation_plan`.

It reads neither clock nor cluster; `self_managed` stores the result.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhook.tls.rotation_plan import CertificateLifetimes, RotationAction, RotationStep

CertificateHost: TypeAlias = str | IPv4Address | IPv6Address  # compared by value
_Key: TypeAlias = ec.EllipticCurvePrivateKey
_ValidityPeriod: TypeAlias = tuple[datetime, datetime]

_BACKDATING: Final = timedelta(minutes=5)  # for clocks that are behind
_MIN_KEY_BITS: Final = 256


class TlsKeyPair(NamedTuple):
    certificate: bytes
    key: bytes


class SecretContent(NamedTuple):
    """The content of the Secret, as PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes  # concatenated
    authority_key: bytes = b""  # of the authority that signed the certificate
    next_key: bytes = b""  # of the authority that signs the next certificate

    @property
    def pair(self) -> TlsKeyPair:
        return TlsKeyPair(self.certificate, self.key)


def parse_host(name: str) -> CertificateHost:
    """Return a name or an address in a form that compares by value."""
    try:
        return ip_address(name)
    except ValueError:
        return name.lower().rstrip(".")


def fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


def hosts_in(certificate: bytes) -> set[CertificateHost]:
    try:
        leaf = x509.load_pem_x509_certificate(certificate)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    single = (it for it in addresses if isinstance(it, IPv4Address | IPv6Address))
    return {*map(parse_host, names.get_values_for_type(x509.DNSName)), *single}


def signing_keys(
    content: SecretContent, authorities: Iterable[x509.Certificate]
) -> dict[str, ec.EllipticCurvePrivateKey]:
    """Return the keys of the authorities, by fingerprint, if the Secret has them."""
    keys = [key for pem in (content.authority_key, content.next_key) if (key := _read_key(pem))]
    return {
        fingerprint(authority): key
        for authority in authorities
        for key in keys
        if key.public_key() == authority.public_key()
    }


def apply_step(
    step: RotationStep,
    content: SecretContent | None,
    hosts: Sequence[CertificateHost],
    lifetimes: CertificateLifetimes,
    now: datetime,
) -> SecretContent:
    """Return the content of the Secret after a step that changes it."""
    kept: list[x509.Certificate] = []
    if step.kept_authorities and content:
        authorities = x509.load_pem_x509_certificates(content.authorities)
        kept = [it for it in authorities if fingerprint(it) in step.kept_authorities]
    keys = signing_keys(content, kept) if content else {}
    if step.action is RotationAction.REMAKE:
        authority, key = _new_authority(lifetimes, now)
        pair = _sign_certificate(hosts, (authority, key), lifetimes, now)
        return SecretContent(*pair, _pem([*kept, authority]), _private_pem(key))
    assert content is not None, step
    if step.action is RotationAction.ADD:
        [signer] = step.kept_authorities
        authority, key = _new_authority(lifetimes, now)
        signer_key = _private_pem(keys[signer]) if signer in keys else b""
        return SecretContent(*content.pair, _pem([*kept, authority]), signer_key, _private_pem(key))
    if step.action is RotationAction.DROP:
        return content._replace(authorities=_pem(kept), next_key=b"")
    assert step.action is RotationAction.SIGN, step
    issuer = next(it for it in kept if fingerprint(it) == step.signer)
    pair = _sign_certificate(hosts, (issuer, keys[step.signer]), lifetimes, now)
    signer_key = _private_pem(keys[step.signer])
    is_renewal = signer_key == content.authority_key
    return SecretContent(*pair, _pem(kept), signer_key, content.next_key if is_renewal else b"")


def _new_authority(lifetimes: CertificateLifetimes, now: datetime) -> tuple[x509.Certificate, _Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("trainer-kai webhook authority")
    valid = (now - _backdating(lifetimes.authority), now + lifetimes.authority)
    certificate = (
        _builder(name, name, key.public_key(), valid)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _sign_certificate(
    hosts: Sequence[CertificateHost],
    issuer: tuple[x509.Certificate, _Key],
    lifetimes: CertificateLifetimes,
    now: datetime,
) -> TlsKeyPair:
    authority, signing_key = issuer
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + lifetimes.certificate, authority.not_valid_after_utc)
    valid = (now - _backdating(ends - now), ends)
    leaf = (
        _builder(_subject(str(hosts[0])), authority.subject, key.public_key(), valid)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_authority_key_identifier(signing_key), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    return TlsKeyPair(_pem([leaf]), _private_pem(key))


def _backdating(life: timedelta) -> timedelta:
    return min(_BACKDATING, life / 10)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    valid: _ValidityPeriod,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _authority_key_identifier(key: _Key) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _key_usage(*, signs: bool) -> x509.KeyUsage:
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


def _general_name(host: CertificateHost) -> x509.GeneralName:
    return x509.DNSName(host) if isinstance(host, str) else x509.IPAddress(host)


def _read_key(pem: bytes) -> _Key | None:
    """Read a key that can sign; None if it is missing, invalid, weak or of another kind."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.key_size >= _MIN_KEY_BITS:
        return key
    return None


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(it.public_bytes(serialization.Encoding.PEM) for it in certificates)


def _private_pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
