"""Certificates for tests: those of loopback, made once, and of any authority and lifetime."""

import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from e2e.cluster.certificates import Authority


@cache
def _loopback_certificates() -> tuple[str, ssl.SSLContext]:
    with TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder))
        pair = authority.serve_loopback(Path(folder))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*pair)
        return authority.pem.decode(), context


def authority_pem() -> str:
    """Return the authority that signed the server's certificate."""
    return _loopback_certificates()[0]


def server_tls() -> ssl.SSLContext:
    """Return what a server on 127.0.0.1 shows."""
    return _loopback_certificates()[1]


_BACKDATED_BY: Final = timedelta(minutes=5)
_SERVER_LIFE: Final = timedelta(days=365)
_AUTHORITY_NAME: Final = timedelta(days=3650)


class CertificateFiles(NamedTuple):
    """A certificate and its authority, with their keys, as PEM."""

    authority: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


def make_certificates(hosts: Sequence[str], now: datetime) -> CertificateFiles:
    """Make both, as they are made on that day."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, it)]) for it in ("ca", "leaf")]
    lives = [_AUTHORITY_NAME, _SERVER_LIFE]
    made = []
    for number, (key, name, life) in enumerate(zip(keys, names, lives, strict=True)):
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED_BY)
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=not number, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([*map(_name, hosts)]), critical=False)
        )
        made.append(builder.sign(keys[0], hashes.SHA256()))
    pem = serialization.Encoding.PEM
    authority, certificate = (it.public_bytes(pem) for it in made)
    texts = [
        it.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        for it in keys
    ]
    return CertificateFiles(authority, texts[0], certificate, texts[1])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
