"""The Secret and the webhook configurations: whoever is first, all end with the same."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.clock import VirtualClock
from tests.webhook.store import (
    DAY_S,
    HOSTS,
    SECRET,
    VALIDATING,
    Replica,
    Store,
    encoded,
    short,
)
from trainer_kai.kube.errors import Unauthorized
from trainer_kai.settings import Tls
from webhook.certs import named_in
from webhook.trust import look

NAME = f"{SECRET}/trainer-kai-webhook-tls"


async def test_the_secret_is_where_we_are(store: Store, clock: VirtualClock) -> None:
    """The settings need not name the namespace: our credentials do."""
    await Replica(store, clock, Tls()).start()

    assert "POST /api/v1/namespaces/ours/secrets" in store.asked


async def test_the_first_one_makes_it_and_the_others_take_it(
    store: Store, clock: VirtualClock
) -> None:
    """However many begin at the same moment."""
    replicas = [Replica(store, clock).run() for _ in range(5)]
    await clock.advance(30)

    assert len({it.shows for it in replicas}) == 1
    assert [it.unready for it in replicas] == [{}] * 5
    assert store.secret is not None
    assert store.secret["type"] == "kubernetes.io/tls"
    assert set(store.secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert not look(store.content, HOSTS).unusable(clock.now())
    assert store.bundles() == {encoded(store.content.authorities)}


async def test_one_that_will_do_is_left_alone(store: Store, clock: VirtualClock) -> None:
    """A restart writes nothing."""
    first = await Replica(store, clock).start()
    await clock.advance(30)
    await first.kill()
    before = len(store.writes())

    second = await Replica(store, clock).start()
    await clock.advance(300)

    assert second.shows == first.shows
    assert len(store.writes()) == before


async def test_it_is_renewed_while_it_runs(store: Store, clock: VirtualClock) -> None:
    """By the same authority, once for all replicas; the labels and the type of the Secret stay."""
    replicas = [await Replica(store, clock, short()).start() for _ in range(3)]
    await clock.advance(30)
    first = store.content
    assert store.secret is not None
    store.secret["metadata"]["labels"] = {"a": "b"}
    store.secret["type"] = "Opaque"  # which cannot be changed
    before = len(store.writes())

    await clock.advance(450)

    assert store.writes()[before:].count(f"PUT {NAME}") == 1
    assert store.content.authorities == first.authorities
    assert {it.shows for it in replicas} == {store.content.certificate} != {first.certificate}
    assert store.secret["metadata"]["labels"] == {"a": "b"}
    assert store.secret["type"] == "Opaque"


async def test_an_expired_one_is_replaced(store: Store, clock: VirtualClock) -> None:
    """By the authority that is trusted already."""
    first = await Replica(store, clock).start()
    await clock.advance(30)
    await first.kill()
    before = store.content
    await clock.advance(370 * DAY_S)

    second = await Replica(store, clock).start()

    assert second.unready == {}
    assert store.content.authorities == before.authorities
    assert second.shows != before.certificate


async def test_both_are_rotated_again_and_again(store: Store, clock: VirtualClock) -> None:
    """An authority of 50 minutes, for three hours: nobody is shown what he does not trust."""
    store.configure("", path=VALIDATING)
    settings = short(check_s=15.0)
    replicas = [await Replica(store, clock, settings).start() for _ in range(2)]
    await clock.advance(30)
    authorities = set()
    for _ in range(3 * 3600 // 30):
        await clock.advance(30)
        authorities.add(store.content.authorities)
        assert [it.unready for it in replicas] == [{}, {}]
        assert all(it.is_trusted() and it.is_trusted(VALIDATING) for it in replicas)

    assert len(authorities) > 10


@pytest.mark.parametrize("damage", [None, {"data": {}}], ids=["deleted", "emptied"])
async def test_a_secret_that_is_lost_is_put_back(
    store: Store, clock: VirtualClock, damage: dict[str, Any] | None
) -> None:
    """As often as it is: whoever starts next finds the certificate that the others show."""
    replica = await Replica(store, clock).start()
    await clock.advance(30)
    before = store.content
    for _ in range(6):
        if damage is None:
            store.secret = None
        else:
            store.put_secret({"type": "kubernetes.io/tls", **damage})
        await clock.advance(20)

    assert store.content == before
    assert replica.shows == before.certificate


@pytest.mark.parametrize("file", ["tls.crt", "tls.key", "ca.crt", "ca.key"])
async def test_what_is_garbled_is_made_good(store: Store, clock: VirtualClock, file: str) -> None:
    """Whatever it is, nobody who shows the old one is left untrusted meanwhile."""
    replica = await Replica(store, clock, short()).start()
    await clock.advance(30)
    assert store.secret is not None
    data = {**store.secret["data"], file: encoded(b"-----BEGIN NONSENSE-----")}
    store.put_secret({**store.secret, "data": data})
    for _ in range(60):
        await clock.advance(5)
        assert replica.is_trusted()

    found = look(store.content, HOSTS)
    assert not found.unusable(clock.now())
    assert [it.signs for it in found.authorities] == [True]
    assert replica.unready == {}


async def test_putting_it_back_is_tried_until_it_is_done(store: Store, clock: VirtualClock) -> None:
    """A missing role ends nothing meanwhile: we answer, and are trusted."""
    replica = await Replica(store, clock).start()
    await clock.advance(30)
    before = store.content
    store.secret = None
    store.refuse_writes = 403
    with capture_logs() as logs:
        await clock.advance(60)
    unready, lost = replica.unready, store.secret is None
    store.refuse_writes = None
    await clock.advance(30)

    assert lost
    assert unready == {}
    assert [it["event"] for it in logs] == ["certificate not kept up"]
    assert "403 Forbidden" in logs[0]["error"]
    assert store.content == before


async def test_a_missing_role_is_waited_out_and_told_once(
    store: Store, clock: VirtualClock
) -> None:
    """The process is not ready, and says why."""
    store.refuse = 403
    with capture_logs() as logs:
        replica = await Replica(store, clock).start()
        await clock.advance(5)
        why = replica.unready["loaded"]
        store.refuse = None
        await clock.advance(5)

    assert "403 Forbidden" in why
    assert replica.unready == {}
    assert [it["event"] for it in logs].count("certificate not kept up") == 1


async def test_credentials_that_are_refused_end_the_process(
    store: Store, clock: VirtualClock
) -> None:
    """Waiting does not help there, neither at first nor later."""
    first = await Replica(store, clock).start()
    await clock.advance(30)
    store.refuse = 401
    second = await Replica(store, clock).start()
    await clock.advance(30)

    assert isinstance(first.task.exception(), Unauthorized)
    assert isinstance(second.task.exception(), Unauthorized)


async def test_the_authority_is_published_and_kept(store: Store, clock: VirtualClock) -> None:
    """Not before the configuration is there, and again when somebody takes it away."""
    store.configurations.clear()
    replica = await Replica(store, clock).start()
    await clock.advance(3)
    absent = replica.unready
    store.configure("", "", "")
    await clock.advance(3)
    present = replica.unready
    for bundle in ("", "eA==", "", "", "", ""):
        store.configure("", bundle, "")
        await clock.advance(15)
    again = store.bundles()
    store.refuse = 503
    await clock.advance(120)
    outage = replica.unready
    store.refuse = None
    store.configurations.clear()
    await clock.advance(60)

    assert "are the manifests applied?" in absent["trusted"]
    assert present == outage == {}
    assert again == {encoded(store.content.authorities)}
    assert "are the manifests applied?" in replica.unready["trusted"]


async def test_what_calls_somebody_else_is_not_told(store: Store, clock: VirtualClock) -> None:
    """Its authority is that of another installation, and we say that we are not asked."""
    store.configure("eA==", host="trainer-kai-webhook.other.svc")
    replica = await Replica(store, clock).start()
    await clock.advance(60)

    assert store.bundles() == {"eA=="}
    assert "calls trainer-kai-webhook.other.svc" in replica.unready["trusted"]
    assert not [it for it in store.writes() if it.startswith("PATCH")]


async def test_replicas_with_other_names_agree(store: Store, clock: VirtualClock) -> None:
    """While settings are rolled out: the certificate has the names of both."""
    others = short(extra_hosts="new.example.org, 2001:DB8:0::0:1, Other.Example.ORG")
    replicas = [await Replica(store, clock, it).start() for it in (short(), others)]
    await clock.advance(200)
    before = len(store.writes())
    await clock.advance(100)

    assert {str(it) for it in named_in(store.content.certificate)} >= {
        "new.example.org",
        "2001:db8::1",
        "10.0.0.7",
        "other.example.org",
    }
    assert len(store.writes()) == before
    assert [it.unready for it in replicas] == [{}, {}]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"data": {"password": "eA=="}}, "it holds password"),
        (
            {"metadata": {"annotations": {"cert-manager.io/certificate-name": "x"}}, "data": {}},
            "cert-manager writes it",
        ),
        ({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}, "it holds a certificate without ca.key"),
    ],
)
async def test_a_secret_of_somebody_else_is_left_alone(
    store: Store, clock: VirtualClock, fields: dict[str, Any], why: str
) -> None:
    """And it is said what to do."""
    store.put_secret(fields)
    replica = await Replica(store, clock).start()
    await clock.advance(60)

    assert store.writes() == []
    assert why in replica.unready["loaded"]
    assert "tls.secret_name" in replica.unready["loaded"]


async def test_a_slow_replica_does_not_bring_back_what_was_replaced(
    store: Store, clock: VirtualClock
) -> None:
    """It writes into the configuration that it has read, and into no later one."""
    await Replica(store, clock).start()
    await clock.advance(30)
    store.publish("")
    seen: list[set[str]] = []

    def meanwhile(request: Any) -> None:
        if request.method == "PATCH" and not seen:
            store.publish("eA==")
            seen.append(store.bundles())
        elif len(seen) == 1:
            seen.append(store.bundles())

    store.before = meanwhile
    await clock.advance(12)

    assert seen == [{"eA=="}, {"eA=="}]
