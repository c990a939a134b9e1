"""The Secret and the webhook configurations: all replicas end with the same."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.clock import VirtualClock
from tests.webhook.fake_api_server import (
    DAY_S,
    HOSTS,
    SECRET,
    VALIDATING,
    FakeApiServer,
    Replica,
    encoded,
    short_lived,
)
from trainer_kai.kube.rest.response import Unauthorized
from trainer_kai.service.settings import TlsSettings
from webhook.tls.make import hosts_in
from webhook.tls.verify import inspect_content

NAME = f"{SECRET}/trainer-kai-webhook-tls"


async def test_the_secret_is_where_we_are(api_server: FakeApiServer, clock: VirtualClock) -> None:
    """The settings need not name the namespace: our credentials do."""
    await Replica(api_server, clock, TlsSettings()).start()

    assert "POST /api/v1/namespaces/ours/secrets" in api_server.requests


async def test_the_first_one_makes_it_and_the_others_take_it(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """However many begin at the same moment."""
    replicas = [Replica(api_server, clock).run() for _ in range(5)]
    await clock.advance(30)

    assert len({it.shown_certificate for it in replicas}) == 1
    assert [it.unready for it in replicas] == [{}] * 5
    assert api_server.secret is not None
    assert api_server.secret["type"] == "kubernetes.io/tls"
    assert set(api_server.secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert not inspect_content(api_server.content, HOSTS).unusable_reason(clock.now())
    assert api_server.bundles() == {encoded(api_server.content.authorities)}


async def test_one_that_will_do_is_left_alone(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """A restart writes nothing."""
    first = await Replica(api_server, clock).start()
    await clock.advance(30)
    await first.kill()
    before = len(api_server.writes())

    second = await Replica(api_server, clock).start()
    await clock.advance(300)

    assert second.shown_certificate == first.shown_certificate
    assert len(api_server.writes()) == before


async def test_it_is_renewed_while_it_runs(api_server: FakeApiServer, clock: VirtualClock) -> None:
    """By the same authority, once for all replicas; the labels and the type of the Secret stay."""
    replicas = [await Replica(api_server, clock, short_lived()).start() for _ in range(3)]
    await clock.advance(30)
    first = api_server.content
    assert api_server.secret is not None
    api_server.secret["metadata"]["labels"] = {"a": "b"}
    api_server.secret["type"] = "Opaque"  # which cannot be changed
    before = len(api_server.writes())

    await clock.advance(450)

    assert api_server.writes()[before:].count(f"PUT {NAME}") == 1
    assert api_server.content.authorities == first.authorities
    assert (
        {it.shown_certificate for it in replicas}
        == {api_server.content.certificate}
        != {first.certificate}
    )
    assert api_server.secret["metadata"]["labels"] == {"a": "b"}
    assert api_server.secret["type"] == "Opaque"


async def test_an_expired_one_is_replaced(api_server: FakeApiServer, clock: VirtualClock) -> None:
    """By the authority that is trusted already."""
    first = await Replica(api_server, clock).start()
    await clock.advance(30)
    await first.kill()
    before = api_server.content
    await clock.advance(370 * DAY_S)

    second = await Replica(api_server, clock).start()

    assert second.unready == {}
    assert api_server.content.authorities == before.authorities
    assert second.shown_certificate != before.certificate


async def test_both_are_rotated_again_and_again(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """An authority of 50 minutes, for three hours: no client is shown what it does not trust."""
    api_server.configure("", path=VALIDATING)
    settings = short_lived(check_s=15.0)
    replicas = [await Replica(api_server, clock, settings).start() for _ in range(2)]
    await clock.advance(30)
    authorities = set()
    for _ in range(3 * 3600 // 30):
        await clock.advance(30)
        authorities.add(api_server.content.authorities)
        assert [it.unready for it in replicas] == [{}, {}]
        assert all(it.is_trusted() and it.is_trusted(VALIDATING) for it in replicas)

    assert len(authorities) > 10


@pytest.mark.parametrize("damage", [None, {"data": {}}], ids=["deleted", "emptied"])
async def test_a_secret_that_is_lost_is_put_back(
    api_server: FakeApiServer, clock: VirtualClock, damage: dict[str, Any] | None
) -> None:
    """As often as it is: the next replica finds the certificate that the others show."""
    replica = await Replica(api_server, clock).start()
    await clock.advance(30)
    before = api_server.content
    for _ in range(6):
        if damage is None:
            api_server.secret = None
        else:
            api_server.put_secret({"type": "kubernetes.io/tls", **damage})
        await clock.advance(20)

    assert api_server.content == before
    assert replica.shown_certificate == before.certificate


@pytest.mark.parametrize("file", ["tls.crt", "tls.key", "ca.crt", "ca.key"])
async def test_what_is_garbled_is_made_good(
    api_server: FakeApiServer, clock: VirtualClock, file: str
) -> None:
    """Whatever it is, no replica with the old one is untrusted meanwhile."""
    replica = await Replica(api_server, clock, short_lived()).start()
    await clock.advance(30)
    assert api_server.secret is not None
    data = {**api_server.secret["data"], file: encoded(b"-----BEGIN NONSENSE-----")}
    api_server.put_secret({**api_server.secret, "data": data})
    for _ in range(60):
        await clock.advance(5)
        assert replica.is_trusted()

    found = inspect_content(api_server.content, HOSTS)
    assert not found.unusable_reason(clock.now())
    assert [it.can_sign for it in found.authorities] == [True]
    assert replica.unready == {}


async def test_putting_it_back_is_tried_until_it_is_done(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """A missing role ends nothing meanwhile: we answer, and are trusted."""
    replica = await Replica(api_server, clock).start()
    await clock.advance(30)
    before = api_server.content
    api_server.secret = None
    api_server.fail_writes_status = 403
    with capture_logs() as logs:
        await clock.advance(60)
    unready, lost = replica.unready, api_server.secret is None
    api_server.fail_writes_status = None
    await clock.advance(30)

    assert lost
    assert unready == {}
    assert [it["event"] for it in logs] == ["certificate not renewed"]
    assert "403 Forbidden" in logs[0]["error"]
    assert api_server.content == before


async def test_a_missing_role_is_waited_out_and_logged_once(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """The process is not ready, and says why."""
    api_server.fail_status = 403
    with capture_logs() as logs:
        replica = await Replica(api_server, clock).start()
        await clock.advance(5)
        why = replica.unready["loaded"]
        api_server.fail_status = None
        await clock.advance(5)

    assert "403 Forbidden" in why
    assert replica.unready == {}
    assert [it["event"] for it in logs].count("certificate not renewed") == 1


async def test_credentials_that_are_refused_end_the_process(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """Waiting does not help there, neither at first nor later."""
    first = await Replica(api_server, clock).start()
    await clock.advance(30)
    api_server.fail_status = 401
    second = await Replica(api_server, clock).start()
    await clock.advance(30)

    assert isinstance(first.task.exception(), Unauthorized)
    assert isinstance(second.task.exception(), Unauthorized)


async def test_the_authority_is_published_and_kept(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """Not before the configuration is there, and again when it was removed."""
    api_server.configurations.clear()
    replica = await Replica(api_server, clock).start()
    await clock.advance(3)
    absent = replica.unready
    api_server.configure("", "", "")
    await clock.advance(3)
    present = replica.unready
    for bundle in ("", "eA==", "", "", "", ""):
        api_server.configure("", bundle, "")
        await clock.advance(15)
    again = api_server.bundles()
    api_server.fail_status = 503
    await clock.advance(120)
    outage = replica.unready
    api_server.fail_status = None
    api_server.configurations.clear()
    await clock.advance(60)

    assert "does not exist: apply the manifests" in absent["trusted"]
    assert present == outage == {}
    assert again == {encoded(api_server.content.authorities)}
    assert "does not exist: apply the manifests" in replica.unready["trusted"]


async def test_a_webhook_of_another_service_is_not_patched(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """Its authority is that of another installation, and we say that we are not asked."""
    api_server.configure("eA==", host="trainer-kai-webhook.other.svc")
    replica = await Replica(api_server, clock).start()
    await clock.advance(60)

    assert api_server.bundles() == {"eA=="}
    assert "cannot verify trainer-kai-webhook.other.svc" in replica.unready["trusted"]
    assert not [it for it in api_server.writes() if it.startswith("PATCH")]


async def test_replicas_with_other_names_agree(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """While settings are rolled out: the certificate has the names of both."""
    others = short_lived(extra_hosts="new.example.org, 2001:DB8:0::0:1, Other.Example.ORG")
    replicas = [await Replica(api_server, clock, it).start() for it in (short_lived(), others)]
    await clock.advance(200)
    before = len(api_server.writes())
    await clock.advance(100)

    assert {str(it) for it in hosts_in(api_server.content.certificate)} >= {
        "new.example.org",
        "2001:db8::1",
        "10.0.0.7",
        "other.example.org",
    }
    assert len(api_server.writes()) == before
    assert [it.unready for it in replicas] == [{}, {}]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"data": {"password": "eA=="}}, "it has the keys password"),
        (
            {"metadata": {"annotations": {"cert-manager.io/certificate-name": "x"}}, "data": {}},
            "it has annotations of cert-manager",
        ),
        ({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}, "it has a certificate and no ca.key"),
    ],
)
async def test_a_foreign_secret_is_left_alone(
    api_server: FakeApiServer, clock: VirtualClock, fields: dict[str, Any], why: str
) -> None:
    """And it is said what to do."""
    api_server.put_secret(fields)
    replica = await Replica(api_server, clock).start()
    await clock.advance(60)

    assert api_server.writes() == []
    assert why in replica.unready["loaded"]
    assert "tls.secret_name" in replica.unready["loaded"]


async def test_a_slow_replica_does_not_bring_back_what_was_replaced(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """It writes into the configuration that it has read, and into no later one."""
    await Replica(api_server, clock).start()
    await clock.advance(30)
    api_server.publish("")
    seen: list[set[str]] = []

    def meanwhile(request: Any) -> None:
        if request.method == "PATCH" and not seen:
            api_server.publish("eA==")
            seen.append(api_server.bundles())
        elif len(seen) == 1:
            seen.append(api_server.bundles())

    api_server.before_request = meanwhile
    await clock.advance(12)

    assert seen == [{"eA=="}, {"eA=="}]
