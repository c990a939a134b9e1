"""The certificates of a cluster, tried in a handshake that needs no socket."""

import ssl
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from e2e.cluster.certificates import Authority, KeyPair, write_service_account_keys

NAMES = ["127.0.0.1", "localhost", "10.0.0.1", "kubernetes.default.svc"]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_trusts_the_authority_gets_through(tmp_path: Path, name: str) -> None:
    """The server is who it says under every name it is called by, by the strict rules as well."""
    authority = Authority.create(tmp_path)

    shake_hands(authority.path, authority.serve_loopback(tmp_path / "serving"), name)


@pytest.mark.parametrize("name", ["127.0.0.2", "example.org"])
def test_another_name_is_refused(tmp_path: Path, name: str) -> None:
    """The certificate is good for this machine and its Service only."""
    authority = Authority.create(tmp_path)
    pair = authority.serve_loopback(tmp_path / "serving")

    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"):
        shake_hands(authority.path, pair, name)


def test_two_clusters_do_not_trust_each_other(tmp_path: Path) -> None:
    """Every cluster has an authority of its own, although all have the same name."""
    one, other = Authority.create(tmp_path / "one"), Authority.create(tmp_path / "other")
    pair = one.serve_loopback(tmp_path / "serving")

    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(other.path, pair, "127.0.0.1")


def test_the_file_is_the_authority(tmp_path: Path) -> None:
    """What programs read is what kubeconfigs carry."""
    authority = Authority.create(tmp_path)

    assert authority.path.read_bytes() == authority.pem


def test_tokens_that_are_signed_can_be_checked(tmp_path: Path) -> None:
    """The two halves of the pair for ServiceAccount tokens belong together."""
    pair = write_service_account_keys(tmp_path)
    private = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    public = serialization.load_pem_public_key(pair.certificate.read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)

    signed = private.sign(b"token", ec.ECDSA(hashes.SHA256()))

    public.verify(signed, b"token", ec.ECDSA(hashes.SHA256()))


def test_private_keys_are_for_the_owner(tmp_path: Path) -> None:
    """Nobody else on the machine can read them."""
    serving = Authority.create(tmp_path).serve_loopback(tmp_path)
    keys = [serving.key, write_service_account_keys(tmp_path).key]

    assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600, 0o600]


def shake_hands(trusted: Path, server: KeyPair, name: str) -> None:
    """Let a client and a server shake hands through memory; raise what the client objects to."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(server.certificate, server.key)
    calling = ssl.create_default_context(cafile=str(trusted))
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        calling.wrap_bio(to_client, to_server, server_hostname=name),
        serving.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        ends = [end for end in ends if not is_done(end)]


def is_done(end: ssl.SSLObject) -> bool:
    """Take the handshake one step on; say whether it is over for this end."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
