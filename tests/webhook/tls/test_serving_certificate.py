"""What is shown and when, for each source; what readiness and metrics say of it."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from structlog.testing import capture_logs

from tests.support.clock import VirtualClock
from tests.webhook.fake_api_server import (
    DAY_S,
    HOST,
    MUTATING,
    SETTINGS,
    VALIDATING,
    FakeApiServer,
    Replica,
    encoded,
    short_lived,
)
from trainer_kai.service.settings import TlsSettings
from webhook.tls.make import SecretContent, apply_step, parse_host
from webhook.tls.rotation_plan import CertificateLifetimes, RotationAction, RotationStep
from webhook.tls.serving_certificate import CertManagerCertificate, FileCertificate

START = datetime(2026, 1, 1, tzinfo=UTC)
LIVES = CertificateLifetimes(timedelta(days=90), timedelta(days=900))
BY_CERT_MANAGER = SETTINGS.model_copy(update={"source": "cert-manager"})


def made(host: str = HOST, now: datetime = START) -> SecretContent:
    return apply_step(RotationStep(RotationAction.REMAKE), None, (parse_host(host),), LIVES, now)


def issue(api_server: FakeApiServer, content: SecretContent) -> None:
    data = {"tls.crt": content.certificate, "tls.key": content.key, "ca.crt": content.authorities}
    annotations = {"cert-manager.io/certificate-name": "webhook"}
    fields = {name: encoded(pem) for name, pem in data.items()}
    api_server.put_secret({"metadata": {"annotations": annotations}, "data": fields})


def weak_key() -> bytes:
    """Return a key that OpenSSL takes for none."""
    return rsa.generate_private_key(65537, 1024).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


async def test_what_cert_manager_writes_is_shown_and_nothing_is_written(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """Not even the authorities: cainjector writes those."""
    replica = await Replica(api_server, clock, BY_CERT_MANAGER, CertManagerCertificate).start()
    await clock.advance(5)
    absent = replica.unready
    first = made()
    issue(api_server, first)
    await clock.advance(15)
    untold = replica.unready
    api_server.publish(encoded(first.authorities))
    await clock.advance(15)

    assert "Secret ns/trainer-kai-webhook-tls does not exist" in absent["loaded"]
    assert untold["trusted"].endswith("has no caBundle yet")
    assert replica.unready == {}
    assert replica.shown_certificate == first.certificate
    assert api_server.writes() == []


async def test_the_way_back_from_cert_manager(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """Its Secret has to go, which ends no replica; running ones make ours in its place."""
    content = made()
    issue(api_server, content)
    api_server.publish(encoded(content.authorities))
    old = await Replica(api_server, clock, BY_CERT_MANAGER, CertManagerCertificate).start()
    early = await Replica(api_server, clock).start()
    await clock.advance(15)
    in_the_way = early.unready["loaded"]
    await early.kill()
    api_server.secret = None
    await clock.advance(15)
    meanwhile = old.unready, old.shown_certificate
    new = await Replica(api_server, clock).start()
    await clock.advance(15)

    assert "belongs to another program: it has annotations of cert-manager" in in_the_way
    assert meanwhile == ({}, content.certificate)
    assert (old.unready, new.unready) == ({}, {})
    assert (
        old.shown_certificate
        == new.shown_certificate
        == api_server.content.certificate
        != content.certificate
    )
    assert api_server.bundles() == {encoded(api_server.content.authorities)}


async def test_a_new_one_is_shown_when_it_is_trusted(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """The old one is shown until then, unless it has ended or is not trusted any more."""
    first, second, third = made(), made(), made()
    issue(api_server, first)
    api_server.publish(encoded(first.authorities))
    replica = await Replica(api_server, clock, BY_CERT_MANAGER, CertManagerCertificate).start()
    issue(api_server, second)
    await clock.advance(60)
    early, unready = replica.shown_certificate, replica.unready
    api_server.publish(encoded(second.authorities))
    await clock.advance(1.5)
    on_time = replica.shown_certificate
    api_server.publish(encoded(third.authorities))
    await clock.advance(15)
    issue(api_server, third)
    await clock.advance(15)

    assert early == first.certificate
    assert unready == {}
    assert on_time == second.certificate
    assert replica.shown_certificate == third.certificate


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tls.key": b"x"}, "the key (tls.key) cannot be used: "),
        ({"tls.key": weak_key()}, "the key (tls.key) cannot be used: "),
        ({"tls.key": made().key}, "the key (tls.key) cannot be used: key values mismatch"),
        ({"tls.crt": b"x"}, "the certificate (tls.crt) cannot be read"),
        ({"tls.crt": b""}, "the certificate (tls.crt) cannot be read"),
    ],
)
async def test_what_cannot_be_shown_is_reported(
    api_server: FakeApiServer, clock: VirtualClock, fields: dict[str, bytes], why: str
) -> None:
    """It replaces nothing that can, and ends no replica."""
    first = made()
    issue(api_server, first)
    api_server.publish(encoded(first.authorities))
    replica = await Replica(api_server, clock, BY_CERT_MANAGER, CertManagerCertificate).start()
    assert api_server.secret is not None
    data = {**api_server.secret["data"], **{name: encoded(pem) for name, pem in fields.items()}}
    api_server.put_secret({**api_server.secret, "data": data})
    with capture_logs() as logs:
        await clock.advance(60)
        second = await Replica(api_server, clock, BY_CERT_MANAGER, CertManagerCertificate).start()

    assert replica.unready == {}
    assert replica.shown_certificate == first.certificate
    assert why in second.unready["loaded"]
    assert why in logs[0]["error"]


async def test_files_are_read_again(
    api_server: FakeApiServer, clock: VirtualClock, tmp_path: Path
) -> None:
    """As they are mounted: a folder is exchanged under its name."""
    first, second = made(), made()
    for number, content in enumerate((first, second)):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "tls.crt").write_bytes(content.certificate)
        (tmp_path / f"{number}" / "tls.key").write_bytes(content.key)
    data = tmp_path / "data"
    settings = TlsSettings(
        source="files",
        certificate_file=f"{data}/tls.crt",
        key_file=f"{data}/tls.key",
    )
    replica = await Replica(
        api_server, clock, settings, lambda _: FileCertificate(f"{data}/tls.crt", f"{data}/tls.key")
    ).start()
    absent = replica.unready
    data.symlink_to("0")
    await clock.advance(15)
    shown_certificate = replica.shown_certificate
    (tmp_path / "next").symlink_to("1")
    (tmp_path / "next").rename(data)
    await clock.advance(15)

    assert "data/tls.crt cannot be read: No such file or directory" in absent["loaded"]
    assert shown_certificate == first.certificate
    assert replica.shown_certificate == second.certificate
    assert (
        replica.unready == {}
    )  # without a caBundle it is not known which authorities API servers trust
    assert api_server.writes() == []


async def test_files_that_are_not_trusted_are_reported(
    api_server: FakeApiServer, clock: VirtualClock, tmp_path: Path
) -> None:
    """If the configurations may be read; else it is not known, and it is ready."""
    content = made()
    crt, key = tmp_path / "a", tmp_path / "b"
    crt.write_bytes(content.certificate)
    key.write_bytes(content.key)
    settings = TlsSettings(source="files", certificate_file=f"{crt}", key_file=f"{key}")
    api_server.publish(encoded(made().authorities))
    replica = await Replica(
        api_server, clock, settings, lambda _: FileCertificate(f"{crt}", f"{key}")
    ).start()
    untrusted = replica.unready
    api_server.publish(encoded(content.authorities))
    await clock.advance(15)
    trusted = replica.unready
    api_server.fail_status = 403
    unreadable = await Replica(
        api_server, clock, settings, lambda _: FileCertificate(f"{crt}", f"{key}")
    ).start()

    assert f"cannot verify {HOST}: " in untrusted["trusted"]
    assert trusted == {}
    assert unreadable.unready == {}


async def test_nothing_is_shown_before_it_is_known_which_clients_are_let_in(
    api_server: FakeApiServer, clock: VirtualClock, tmp_path: Path
) -> None:
    """The file is read again at each look; one that cannot be read later changes nothing."""
    file = tmp_path / "ca.crt"
    settings = SETTINGS.model_copy(update={"client_ca_file": f"{file}"})
    replica = await Replica(api_server, clock, settings).start()
    absent = replica.unready
    file.write_text("no PEM")
    await clock.advance(15)
    garbled = replica.unready
    file.write_bytes(made().certificate)
    await clock.advance(15)
    read = replica.unready, replica.certificate.tls.context.verify_mode
    with capture_logs() as logs:
        file.unlink()
        await clock.advance(15)

    assert f"tls.client_ca_file: {file} cannot be read: No such file" in absent["loaded"]
    assert f"tls.client_ca_file: {file} has no certificate in PEM" in garbled["loaded"]
    assert read == ({}, ssl.CERT_REQUIRED)
    assert replica.unready == {}
    assert [it["event"] for it in logs] == ["certificate not renewed"]


async def test_metrics_tell_of_the_end_from_the_start(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """Of the certificate and of the authority, long before; and whether it is trusted."""
    replica = await Replica(api_server, clock).start()
    await clock.advance(30)
    which = "certificate_expires_timestamp_seconds"
    name = "MutatingWebhookConfiguration kai-trainer"
    left_s = [
        (replica.metric(which, part=part) or 0) - START.timestamp()
        for part in ("certificate", "authority")
    ]

    assert left_s == [365 * DAY_S, 3650 * DAY_S]
    assert replica.metric("certificate_trusted", configuration=name) == 1
    api_server.fail_writes_status = 403
    api_server.publish("eA==")
    await clock.advance(30)
    assert replica.metric("certificate_trusted", configuration=name) == 0


async def test_metrics_keep_nothing_that_was_good_before(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """A replica that is not trusted, or not called any more, shows neither as before."""
    content = made()
    issue(api_server, content)
    for path in (MUTATING, VALIDATING):
        api_server.configure(encoded(content.authorities), path=path)
    replica = await Replica(api_server, clock, BY_CERT_MANAGER, CertManagerCertificate).start()
    names = [f"{kind}WebhookConfiguration kai-trainer" for kind in ("Mutating", "Validating")]

    def measured() -> list[float | None]:
        ends = replica.metric("certificate_expires_timestamp_seconds", part="authority")
        return [ends, *(replica.metric("certificate_trusted", configuration=it) for it in names)]

    before = measured()
    api_server.fail_status = 403
    await clock.advance(15)
    outage = measured()
    api_server.fail_status = None
    api_server.publish(encoded(made().authorities))
    await clock.advance(15)
    lost = measured()
    api_server.publish(encoded(content.authorities))
    await clock.advance(15)
    again = measured()
    api_server.configurations.clear()
    await clock.advance(15)

    assert before[1:] == [1, 1]
    assert before == outage == again
    assert lost == [0, 0, 1]
    assert measured() == [0, 0, 0]


async def test_metrics_do_not_guess_the_trust_of_a_machine(
    api_server: FakeApiServer, clock: VirtualClock, tmp_path: Path
) -> None:
    """Once no webhook names an authority, the end of none is known."""
    content = made()
    crt, key = tmp_path / "a", tmp_path / "b"
    crt.write_bytes(content.certificate)
    key.write_bytes(content.key)
    settings = TlsSettings(source="files", certificate_file=f"{crt}", key_file=f"{key}")
    api_server.publish(encoded(content.authorities))
    replica = await Replica(
        api_server, clock, settings, lambda _: FileCertificate(f"{crt}", f"{key}")
    ).start()
    which = "certificate_expires_timestamp_seconds"
    before = replica.metric(which, part="authority")
    for path in api_server.configurations:
        api_server.publish("", path)
    await clock.advance(15)

    assert before
    assert replica.metric(which, part="authority") is None
    assert replica.metric(which, part="certificate")


async def test_one_that_ends_is_not_ready(api_server: FakeApiServer, clock: VirtualClock) -> None:
    """A little before, for clocks differ; and ready again when it could be renewed after all."""
    settings = short_lived(certificate_days=0.1, authority_days=0.3)
    replica = await Replica(api_server, clock, settings).start()
    await clock.advance(30)
    api_server.fail_writes_status = 403
    await clock.advance(DAY_S / 10 - 6 * 60)
    before = replica.unready
    await clock.advance(60)
    at_the_end = replica.unready
    await clock.advance(600)
    after = replica.unready
    api_server.fail_writes_status = None
    await clock.advance(30)

    assert before == {}
    assert at_the_end == {
        "valid": "the certificate is valid from 2025-12-31 23:55:00 until 2026-01-01 02:24:00"
    }
    assert "valid" in after
    assert replica.unready == {}


async def test_an_authority_that_ends_is_not_ready(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """The certificate alone is of no use, though it lasts for months."""
    content = made()
    issue(api_server, content)
    api_server.publish(encoded(_until(content, START + timedelta(seconds=600))))
    replica = await Replica(api_server, clock, BY_CERT_MANAGER, CertManagerCertificate).start()
    before = replica.unready
    await clock.advance(590)
    late = replica.unready
    await clock.advance(30)

    assert before == {}
    assert late.keys() == {"valid"}
    assert replica.unready["trusted"].endswith("trusts only an authority that expired")


def _until(content: SecretContent, ends: datetime) -> bytes:
    """Return the authority with the same key and another end."""
    old = x509.load_pem_x509_certificate(content.authorities)
    key = serialization.load_pem_private_key(content.authority_key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(old.not_valid_before_utc)
        .not_valid_after(ends)
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
