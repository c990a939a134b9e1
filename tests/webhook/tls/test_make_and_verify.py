"""Certificates: what is made, which will do, and that clients trust what a server shows."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.case import Case, ids
from webhook.tls.make import (
    SecretContent,
    TlsKeyPair,
    apply_step,
    fingerprint,
    hosts_in,
    parse_host,
)
from webhook.tls.rotation_plan import CertificateLifetimes, RotationAction, RotationStep
from webhook.tls.verify import (
    DynamicTlsContext,
    certificate_validity,
    inspect_content,
    verify_trust,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LIVES = CertificateLifetimes(365 * DAY, 3650 * DAY)
HOSTS = tuple(map(parse_host, ("webhook.ns.svc", "webhook.ns", "127.0.0.1", "2001:DB8:0:0::1")))


def made(now: datetime = NOW, lifetimes: CertificateLifetimes = LIVES) -> SecretContent:
    return apply_step(RotationStep(RotationAction.REMAKE), None, HOSTS, lifetimes, now)


GOOD, OTHER = made(), made()


def ids_in(content: SecretContent) -> tuple[str, ...]:
    return tuple(map(fingerprint, x509.load_pem_x509_certificates(content.authorities)))


@cache
def keys() -> dict[str, bytes]:
    weak = rsa.generate_private_key(65537, 1024)
    short = ec.generate_private_key(ec.SECP192R1())
    other = ec.generate_private_key(ec.SECP256R1())
    encrypted = serialization.BestAvailableEncryption(b"secret")
    kinds: dict[str, tuple[Any, serialization.KeySerializationEncryption]] = {
        "weak": (weak, serialization.NoEncryption()),
        "short": (short, serialization.NoEncryption()),
        "another": (other, serialization.NoEncryption()),
        "locked": (other, encrypted),
    }
    return {"none": b"", "no key": b"x", "half a key": GOOD.key[:100]} | {
        name: key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
        )
        for name, (key, protection) in kinds.items()
    }


# what is held -> what is wrong with it at any time
CASES: list[Case[SecretContent, str]] = [
    Case("what was made", GOOD, ""),
    Case(
        "no certificate", GOOD._replace(certificate=b""), "the certificate (tls.crt) cannot be read"
    ),
    Case(
        "a garbled one", GOOD._replace(certificate=b"x"), "the certificate (tls.crt) cannot be read"
    ),
    Case(
        "half of one",
        GOOD._replace(certificate=GOOD.certificate[:200]),
        "the certificate (tls.crt) cannot be read",
    ),
    Case("no authority", GOOD._replace(authorities=b""), "the authority (ca.crt) cannot be read"),
    Case(
        "a garbled authority",
        GOOD._replace(authorities=b"x"),
        "the authority (ca.crt) cannot be read",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_wrong_with_it(case: Case[SecretContent, str]) -> None:
    """Whichever part is broken, it is said, and nothing is raised."""
    assert inspect_content(case.given, HOSTS).fault == case.want


@pytest.mark.parametrize("which", ["none", "no key", "half a key", "weak", "short", "another"])
def test_a_key_that_will_not_do(which: str) -> None:
    """Neither for the certificate nor for its authority."""
    dynamic_context = inspect_content(GOOD._replace(key=keys()[which]), HOSTS)
    signing = inspect_content(GOOD._replace(authority_key=keys()[which]), HOSTS)

    assert dynamic_context.fault.startswith("the key (tls.key) cannot be used: ")
    assert signing.fault == ""
    assert [it.can_sign for it in signing.authorities] == [False]


def test_a_key_with_a_password_does_not_prompt() -> None:
    """There is no terminal, or worse, there is one."""
    assert inspect_content(GOOD._replace(key=keys()["locked"]), HOSTS).fault.startswith(
        "the key (tls.key) cannot be used"
    )
    assert (
        not inspect_content(GOOD._replace(authority_key=keys()["locked"]), HOSTS)
        .authorities[0]
        .can_sign
    )


def test_what_is_known_of_a_good_one() -> None:
    """Its signer, and from when until when; a little before now, for clocks that are behind."""
    found = inspect_content(GOOD, HOSTS)

    assert (found.signer,) == ids_in(GOOD)
    assert (found.begins, found.ends) == (NOW - timedelta(minutes=5), NOW + 365 * DAY)
    assert [it.can_sign for it in found.authorities] == [True]
    assert found.unusable_reason(NOW) == ""


def test_hosts_are_compared_by_value() -> None:
    """However they are spelt: else the certificate would be made anew for ever."""
    spelt = ("Webhook.NS.svc.", "2001:0db8::0001", "127.0.0.1", "webhook.ns")

    assert inspect_content(GOOD, tuple(map(parse_host, spelt))).missing == ""
    assert inspect_content(GOOD, (*HOSTS, parse_host("a.example.org"))).missing == "a.example.org"
    assert hosts_in(GOOD.certificate) == set(HOSTS)


def test_another_authority_did_not_sign_it() -> None:
    """That its key fits itself is not enough."""
    found = inspect_content(GOOD._replace(authorities=OTHER.authorities), HOSTS)

    assert found.signer == ""
    assert found.unusable_reason(NOW) == "no authority in the Secret signed the certificate"


def test_a_rotation_step_by_step() -> None:
    """Two authorities, then the other one signs, then it is alone; keys that are done with go."""
    (old,) = ids_in(GOOD)
    added = apply_step(
        RotationStep(RotationAction.ADD, kept_authorities=(old,)), GOOD, HOSTS, LIVES, NOW
    )
    both = ids_in(added)
    renewed = apply_step(
        RotationStep(RotationAction.SIGN, kept_authorities=both, signer=old),
        added,
        HOSTS,
        LIVES,
        NOW,
    )
    signed = apply_step(
        RotationStep(RotationAction.SIGN, kept_authorities=both, signer=both[1]),
        renewed,
        HOSTS,
        LIVES,
        NOW,
    )
    dropped = apply_step(
        RotationStep(RotationAction.DROP, kept_authorities=both[1:]), signed, HOSTS, LIVES, NOW
    )
    states = [inspect_content(it, HOSTS) for it in (added, renewed, signed, dropped)]

    assert added.pair == GOOD.pair
    assert [it.signer for it in states] == [old, old, both[1], both[1]]
    assert [[a.can_sign for a in it.authorities] for it in states] == [
        [True, True],
        [True, True],
        [False, True],
        [True],
    ]
    assert dropped.pair == signed.pair
    assert dropped.next_key == b""


def test_a_certificate_does_not_outlive_its_authority() -> None:
    """It would be shown in vain."""
    (by,) = ids_in(GOOD)
    late = apply_step(
        RotationStep(RotationAction.SIGN, kept_authorities=(by,), signer=by),
        GOOD,
        HOSTS,
        LIVES,
        NOW + 3600 * DAY,
    )

    assert inspect_content(late, HOSTS).ends == NOW + 3650 * DAY


def test_others_are_kept_beside_a_new_authority() -> None:
    """Another replica may still show what they signed."""
    (old,) = ids_in(GOOD)
    again = apply_step(
        RotationStep(RotationAction.REMAKE, kept_authorities=(old,)), GOOD, HOSTS, LIVES, NOW
    )

    assert ids_in(again)[0] == old
    assert inspect_content(again, HOSTS).signer == ids_in(again)[1]


def test_one_that_was_signed_by_way_of_another_is_trusted() -> None:
    """As those of companies are: the certificate brings the one between it and its authority."""
    root, leaf = made(), made()
    assert verify_trust(encoded(root.authorities), leaf.pair, "webhook.ns.svc").until is None
    both = root.authorities + leaf.authorities
    assert verify_trust(encoded(both), leaf.pair, "webhook.ns.svc").until == NOW + 3650 * DAY
    chain = leaf.pair._replace(certificate=leaf.certificate + leaf.authorities)
    assert certificate_validity(chain).ends == NOW + 365 * DAY
    assert (
        verify_trust(encoded(leaf.authorities), chain, "webhook.ns.svc").until == NOW + 3650 * DAY
    )


@pytest.mark.parametrize(
    ("bundle", "host", "why_not"),
    [
        (GOOD.authorities, "other.ns.svc", "Hostname mismatch"),
        (GOOD.authorities, "10.0.0.1", "IP address mismatch"),
        (OTHER.authorities, "127.0.0.1", "certificate"),
        (b"x", "127.0.0.1", "the caBundle has no valid certificate"),
    ],
)
def test_untrusted_certificates(bundle: bytes, host: str, why_not: str) -> None:
    found = verify_trust(encoded(bundle), GOOD.pair, host)

    assert found.until is None
    assert why_not in found.why_not


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


async def test_a_client_that_trusts_the_authority_trusts_the_server() -> None:
    """By each of its names, and only by those; an old TLS is refused."""
    content = made(datetime.now(UTC))
    dynamic_context = DynamicTlsContext()
    dynamic_context.set_pair(content.pair)
    async with _listening(dynamic_context) as port:
        for host in ("webhook.ns.svc", "webhook.ns", "127.0.0.1"):
            await _connect(port, content, host)
        with pytest.raises(ssl.SSLCertVerificationError):
            await _connect(port, content, "other")

    assert dynamic_context.context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_another_one_is_shown_without_a_restart() -> None:
    """Also of another kind of key; open connections stay; a host name need not be sent."""
    first, second = made(datetime.now(UTC)), made(datetime.now(UTC))
    dynamic_context = DynamicTlsContext()
    dynamic_context.set_pair(_with_rsa(first))
    async with _listening(dynamic_context) as port:
        reader, writer = await _connect(port, None, "127.0.0.1")
        dynamic_context.set_pair(second.pair)
        await _connect(port, second, "127.0.0.1")
        await _connect(port, second, "webhook.ns")
        with pytest.raises(ssl.SSLCertVerificationError):
            await _connect(port, first, "127.0.0.1")
        with pytest.raises(ssl.SSLError):
            dynamic_context.set_pair(second.pair._replace(key=b"x"))
        await _connect(port, second, "127.0.0.1")
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()


async def test_with_authorities_of_clients_only_theirs_are_let_in() -> None:
    """Also when they are replaced, and the certificate too; what is no PEM changes nothing."""
    server = made(datetime.now(UTC))
    first, second = (_with_rsa(made(datetime.now(UTC))) for _ in range(2))
    dynamic_context = DynamicTlsContext()
    dynamic_context.require_client_certificates(first.certificate.decode())
    dynamic_context.set_pair(server.pair)
    async with _listening(dynamic_context) as port:
        assert [await _is_let_in(port, it) for it in (first, second, None)] == [True, False, False]
        dynamic_context.require_client_certificates(second.certificate.decode())
        dynamic_context.set_pair(made(datetime.now(UTC)).pair)
        with pytest.raises((ssl.SSLError, ValueError)):
            dynamic_context.require_client_certificates("")
        assert [await _is_let_in(port, it) for it in (first, second, None)] == [False, True, False]


async def _is_let_in(port: int, pair: TlsKeyPair | None) -> bool:
    """Say whether a client with a certificate, or with none, gets an answer."""
    context = ssl._create_unverified_context()
    if pair is not None:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "client.pem"
            file.write_bytes(pair.key + pair.certificate)
            context.load_cert_chain(file)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    return line == b"hello\n"


def _with_rsa(content: SecretContent) -> TlsKeyPair:
    """Return the same certificate with a key of another kind, signed by itself."""
    key = rsa.generate_private_key(65537, 2048)
    old = x509.load_pem_x509_certificate(content.certificate)
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(old.not_valid_before_utc)
        .not_valid_after(old.not_valid_after_utc)
    )
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return TlsKeyPair(pem, private)


@asynccontextmanager
async def _listening(dynamic_context: DynamicTlsContext) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=dynamic_context.context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _connect(
    port: int, content: SecretContent | None, host: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if content is None:
        trusting = ssl._create_unverified_context()
    else:
        trusting = ssl.create_default_context(cadata=content.authorities.decode())
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trusting, server_hostname=host
    )
    if content is not None:
        writer.close()
    return reader, writer
