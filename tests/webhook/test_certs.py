"""Certificates: which will do, and that a client trusts what a server shows."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from tests.support.case import Case, ids
from webhook.certs import MARGIN, Pair, fault_of, make, needs_renewal, server_context

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("webhook.ns", "webhook.ns.svc", "127.0.0.1")
GOOD = make(HOSTS, NOW)
OTHER = make(HOSTS, NOW)
DAY = timedelta(days=1)

# a pair and when it is looked at -> what is wrong with it
CASES: list[Case[tuple[Pair, datetime], str | None]] = [
    Case("one that was made now", (GOOD, NOW), None),
    Case("one that lasts a while", (GOOD, NOW + 300 * DAY), None),
    Case("one that will end soon", (GOOD, NOW + 336 * DAY), "it is valid until 2027-01-01"),
    Case("one that has ended", (GOOD, NOW + 366 * DAY), "it is valid until 2027-01-01"),
    Case("one of the future", (GOOD, NOW - DAY), "it is valid until 2027-01-01"),
    Case(
        "one that lacks a name",
        (make(HOSTS[:1], NOW), NOW),
        "it does not name 127.0.0.1, webhook.ns.svc",
    ),
    Case(
        "one of another authority",
        (GOOD._replace(authority=OTHER.authority), NOW),
        "its authority did not sign it",
    ),
    Case(
        "one with another key",
        (GOOD._replace(key=OTHER.key), NOW),
        "its key belongs to another certificate",
    ),
    Case(
        "one whose authority has ended",
        (make(HOSTS, NOW - 9 * 365 * DAY), NOW + 2 * 365 * DAY),
        "it is valid until 2018-01-03",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_which_certificates_will_do(case: Case[tuple[Pair, datetime], str | None]) -> None:
    """And why others will not."""
    pair, now = case.given

    assert fault_of(pair, HOSTS, now, MARGIN) == case.want


@pytest.mark.parametrize("part", ["authority", "certificate", "key"])
@pytest.mark.parametrize("text", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAA==\n"])
def test_what_is_no_certificate_is_told(part: str, text: bytes) -> None:
    """Whichever part of it is broken."""
    fault = fault_of(GOOD._replace(**{part: text}), HOSTS, NOW, MARGIN)

    assert fault is not None
    assert fault.startswith("it cannot be read: ")


def test_a_new_certificate_comes_from_the_old_authority() -> None:
    """Whoever trusts the old one trusts the new one."""
    renewed = make(HOSTS, NOW + 336 * DAY, GOOD)

    assert renewed.authority == GOOD.authority
    assert renewed.certificate != GOOD.certificate
    assert fault_of(renewed, HOSTS, NOW + 336 * DAY, MARGIN) is None


@pytest.mark.parametrize(
    ("old", "now"),
    [
        (GOOD, NOW + 3300 * DAY),
        (GOOD._replace(authority_key=b""), NOW),
        (GOOD._replace(authority_key=OTHER.authority_key), NOW),
        (GOOD._replace(authority=b"x"), NOW),
    ],
)
def test_an_authority_that_will_not_do_is_made_anew(old: Pair, now: datetime) -> None:
    """It has to outlive what it signs, and we have to have its key."""
    made = make(HOSTS, now, old)

    assert made.authority != old.authority
    assert fault_of(made, HOSTS, now, MARGIN) is None


def test_when_a_certificate_needs_renewal() -> None:
    """The margin counts, to the second."""
    certificate = x509.load_pem_x509_certificate(GOOD.certificate)
    ends = certificate.not_valid_after_utc

    assert not needs_renewal(certificate, ends - MARGIN - timedelta(seconds=1), MARGIN)
    assert needs_renewal(certificate, ends - MARGIN, MARGIN)


async def test_a_client_that_trusts_the_authority_trusts_the_server() -> None:
    """By each of its names, and only by those; an old TLS is refused."""
    pair = make((*HOSTS, "localhost"), datetime.now(UTC))
    context = server_context(pair)
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cadata=pair.authority.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT

    for host in (*HOSTS, "localhost"):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting, server_hostname=host
        )
        writer.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="other")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2

    server.close()
    await server.wait_closed()
