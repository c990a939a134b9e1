"""What a TLS context is made of, and the error when it cannot be made."""

import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from e2e.cluster.certificates import Authority
from tests.support.case import Case, ids
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.rest_config import (
    ClientCertificate,
    RestConfig,
    ServerTrust,
    StaticToken,
    tls_context,
)

NO_CERTIFICATE: Final = (
    "the test: client-certificate: is not a certificate in PEM format with its key"
)


class Pair:
    """A certificate, its key in several forms, and a key of another."""

    def __init__(self, folder: Path) -> None:
        authority = Authority.create(folder)
        pair = authority.serve_loopback(folder)
        self.authority = authority.pem.decode()
        self.chain, self.key = pair.certificate.read_bytes(), pair.key.read_bytes()
        private = load_pem_private_key(self.key, password=None)
        self.locked = private.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
        self.other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path)
    yield tmp_path
    tempfile.tempdir = before


def made(
    trust: ServerTrust, certificate: ClientCertificate | None = None, server: str = "https://h"
) -> ssl.SSLContext | None:
    return tls_context(RestConfig(server, StaticToken(""), trust, certificate, origin="the test"))


def test_without_tls_there_is_none() -> None:
    assert made(ServerTrust("no certificate"), server="http://h") is None


def test_an_authority_is_the_only_one(pair: Pair) -> None:
    """What the machine trusts does not count then."""
    context = made(ServerTrust(pair.authority))

    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    (found,) = context.get_ca_certs()
    assert "trainer-kai test authority" in str(found["subject"])


def test_an_authority_may_be_commented(pair: Pair) -> None:
    """In any language: what stands around a certificate is nothing."""
    context = made(ServerTrust(f"# Behörde für Tests\n{pair.authority}# Ende\n"))

    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_an_insecure_server_is_not_checked() -> None:
    """An authority is not even read then."""
    context = made(ServerTrust("no certificate", insecure=True))

    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_authorities_without_key_identifiers_are_trusted(pair: Pair) -> None:
    """Newer Pythons are strict about them, clusters are not."""
    context = made(ServerTrust(pair.authority))

    assert context is not None
    assert not context.verify_flags & getattr(ssl, "VERIFY_X509_STRICT", 0)


@pytest.mark.parametrize(
    "authority",
    ["no PEM", "ü", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_an_authority_that_is_none(authority: str) -> None:
    """Where it was given, and what to do."""
    with pytest.raises(
        ConfigError, match="certificate-authority: has no certificate in PEM format"
    ):
        made(ServerTrust(authority))


def test_a_certificate_leaves_no_file(pair: Pair, folder: Path) -> None:
    """OpenSSL reads it from one; the key must not stay there."""
    assert made(ServerTrust(), ClientCertificate(pair.chain, pair.key)) is not None
    assert [*folder.iterdir()] == []


WRONG: list[Case[tuple[str, str], str]] = [
    Case("a key of somebody else", ("chain", "other"), NO_CERTIFICATE),
    Case("no certificate", ("key", "key"), NO_CERTIFICATE),
    Case("no key", ("chain", "chain"), NO_CERTIFICATE),
    Case("a key with a password asks nobody for it", ("chain", "locked"), "without a password"),
]


@pytest.mark.parametrize("case", WRONG, ids=ids)
def test_a_certificate_that_does_not_fit(
    pair: Pair, folder: Path, case: Case[tuple[str, str], str]
) -> None:
    """It is reported in one line, and leaves no file either."""
    chain, key = (getattr(pair, name) for name in case.given)

    with pytest.raises(ConfigError, match=case.want) as raised:
        made(ServerTrust(), ClientCertificate(chain, key))

    assert "\n" not in str(raised.value)
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(("chain", "key"), [(b"", b""), (b"x", b"y"), (b"\xff", b"\0")])
def test_a_certificate_that_is_none(chain: bytes, key: bytes) -> None:
    with pytest.raises(ConfigError, match=NO_CERTIFICATE):
        made(ServerTrust(), ClientCertificate(chain, key))
