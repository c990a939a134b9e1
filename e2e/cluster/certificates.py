"""The certificate authority of one cluster, and what it signs. Thrown away with the cluster."""

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=30)


class KeyPair(NamedTuple):
    """Paths of a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that lives in one folder."""

    def __init__(
        self, folder: Path, key: ec.EllipticCurvePrivateKey, cert: x509.Certificate
    ) -> None:
        self._folder = folder
        self._key = key
        self._certificate = cert

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make a new authority and write its certificate to `ca.crt`."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named("trainer-kai test authority")
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder, key, certificate)
        authority.path.write_bytes(authority.pem)
        return authority

    @property
    def path(self) -> Path:
        """Return where the authority's certificate is written."""
        return self._folder / "ca.crt"

    @property
    def pem(self) -> bytes:
        """Return the authority's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def serve_loopback(self, folder: Path) -> KeyPair:
        """Sign a server certificate for loopback; write it as `tls.crt` and `tls.key`."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                x509.IPAddress(ipaddress.ip_address("10.0.0.1")),  # the kubernetes Service
                x509.DNSName("localhost"),
                x509.DNSName("kubernetes.default.svc"),
            ]
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(_named("loopback"), self._certificate.subject, key.public_key())
            .add_extension(names, critical=False)
            .add_extension(issuer, critical=False)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = KeyPair(folder / "tls.crt", folder / "tls.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_private(pair.key, key)
        return pair


def write_service_account_keys(folder: Path) -> KeyPair:
    """Write the key pair that signs and checks ServiceAccount tokens: `sa.pub`, `sa.key`."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / "sa.pub", folder / "sa.key")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    pair.certificate.write_bytes(public)
    _write_private(pair.key, key)
    return pair


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not sign_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
