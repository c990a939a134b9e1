"""The Secret and the webhook configuration: whoever is first, all end with the same."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.clock import VirtualClock
from trainer_kai.api.decode import decode
from trainer_kai.kube.access import Access, Token
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.client import Client, Unobserved
from trainer_kai.kube.errors import Unauthorized
from trainer_kai.kube.request import Request
from trainer_kai.log import logger
from trainer_kai.settings import Tls
from webhook.certs import fault_of, make
from webhook.rotate import Configuration, Keeper, host_names, pair_in, publication

SETTINGS = Tls(namespace="ns", extra_hosts="10.0.0.7, other.example.org,")
HOSTS = host_names(SETTINGS, "ns")
SECRET = "/api/v1/namespaces/ns/secrets"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kai-trainer"
VALIDATING = CONFIGURATION.replace("mutating", "validating")
REASONS = {404: "NotFound", 409: "AlreadyExists", 422: "Invalid", 403: "Forbidden"}


class Store:
    """An API server with one Secret and one configuration."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.configuration: dict[str, Any] | None = None
        self.validating: dict[str, Any] | None = None
        self.asked: list[str] = []
        self.refuse: int | None = None
        self.refuse_writes: int | None = None
        self.before: Callable[[Request], None] = lambda _: None

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """Answer."""
        assert timeout_s > 0
        self.asked.append(str(request))
        self.before(request)
        await asyncio.sleep(0)
        refused = self.refuse or (self.refuse_writes if request.method != "GET" else None)
        if refused:
            return _refused(refused)
        body = json.loads(request.body or b"null")
        if request.path == CONFIGURATION:
            return self._configured(self.configuration, request.method, body)
        if request.path == VALIDATING:
            return self._configured(self.validating, request.method, body)
        if request.method == "GET":
            return _found(self.secret)
        there = self.secret
        stale = there and body["metadata"].get("resourceVersion") != self.version
        if (request.method == "POST") != (there is None) or stale:
            return _refused(409)
        number = int(self.version) + 1 if there else 1
        self.secret = {**body, "metadata": {**body["metadata"], "resourceVersion": f"{number}"}}
        return _found(self.secret)

    @property
    def version(self) -> str:
        """Return the version of the Secret."""
        assert self.secret is not None
        version: str = self.secret["metadata"]["resourceVersion"]
        return version

    def _configured(self, there: dict[str, Any] | None, method: str, body: Any) -> Answer:
        if method == "PATCH" and there is not None:
            for operation in body:
                _, _, number, *rest = operation["path"].split("/")
                webhook = there["webhooks"][int(number)]
                if operation["op"] == "test" and webhook["name"] != operation["value"]:
                    return _refused(422)
                if operation["op"] == "add":
                    assert rest == ["clientConfig", "caBundle"]
                    webhook["clientConfig"]["caBundle"] = operation["value"]
        return _found(there)

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Have nothing to follow."""
        raise NotImplementedError(request, silence_s)

    async def close(self) -> None:
        """Have nothing to close."""


def _found(obj: dict[str, Any] | None) -> Answer:
    return _refused(404) if obj is None else Answer(200, json.dumps(obj).encode())


def _refused(status: int) -> Answer:
    body = {"kind": "Status", "code": status, "reason": REASONS.get(status, ""), "message": "no"}
    return Answer(status, json.dumps(body).encode())


def keeper(store: Store, clock: VirtualClock, settings: Tls = SETTINGS) -> Keeper:
    """Return a replica's keeper."""
    access = Access("https://nowhere", Token(""), namespace="ours")
    client = Client(access, store, clock, Unobserved())
    return Keeper(client, settings, clock, logger(__name__))


def configured(*bundles: str) -> dict[str, Any]:
    """Return a configuration."""
    webhooks = [
        {"name": f"w{number}", "clientConfig": {"caBundle": bundle} if bundle else {}}
        for number, bundle in enumerate(bundles)
    ]
    return {"metadata": {"name": "kai-trainer"}, "webhooks": webhooks}


def test_every_name_is_named() -> None:
    """Those of the Service, those of this machine, those of the settings."""
    assert HOSTS == (
        "trainer-kai-webhook.ns",
        "trainer-kai-webhook.ns.svc",
        "trainer-kai-webhook.ns.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "10.0.0.7",
        "other.example.org",
    )


async def test_the_secret_is_where_we_are() -> None:
    """The settings need not name the namespace: our credentials do."""
    store, clock = Store(), VirtualClock()
    settings = Tls()

    pair = await keeper(store, clock, settings).obtain()

    where = "/api/v1/namespaces/ours/secrets"
    assert store.asked == [f"GET {where}/{settings.secret_name}", f"POST {where}"]
    assert fault_of(pair, host_names(settings, "ours"), clock.now(), timedelta()) is None


async def test_the_first_one_makes_it_and_the_others_take_it() -> None:
    """However many begin at the same moment."""
    store, clock = Store(), VirtualClock()

    pairs = await asyncio.gather(*(keeper(store, clock).obtain() for _ in range(5)))

    assert len(set(pairs)) == 1
    assert fault_of(pairs[0], HOSTS, clock.now(), timedelta()) is None
    assert store.secret is not None
    assert store.secret["type"] == "kubernetes.io/tls"
    assert set(store.secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert store.version == "1"


async def test_one_that_will_do_is_left_alone() -> None:
    """A restart writes nothing."""
    store, clock = Store(), VirtualClock()
    first = await keeper(store, clock).obtain()
    asked = len(store.asked)

    assert await keeper(store, clock).obtain() == first
    assert store.asked[asked:] == [f"GET {SECRET}/trainer-kai-webhook-tls"]


async def test_one_that_ends_is_made_anew_by_the_same_authority() -> None:
    """Of several replicas one writes it, and the labels of the Secret stay."""
    store, clock = Store(), VirtualClock()
    first = await keeper(store, clock).obtain()
    assert store.secret is not None
    store.secret["metadata"]["labels"] = {"a": "b"}
    store.secret["type"] = "Opaque"  # which cannot be changed
    await clock.advance(340 * 86_400)

    pairs = await asyncio.gather(*(keeper(store, clock).obtain() for _ in range(3)))

    assert len(set(pairs)) == 1
    assert pairs[0] != first
    assert pairs[0].authority == first.authority
    assert store.version == "2"
    assert store.secret["metadata"]["labels"] == {"a": "b"}
    assert store.secret["type"] == "Opaque"


@pytest.mark.parametrize(
    "data", [{}, {"tls.crt": "!"}, {"ca.crt": "", "ca.key": "", "tls.crt": "", "tls.key": ""}]
)
async def test_a_secret_that_cannot_be_read_is_made_anew(data: dict[str, str]) -> None:
    """Whatever is in it."""
    store, clock = Store(), VirtualClock()
    store.secret = {"metadata": {"resourceVersion": "7"}, "type": "kubernetes.io/tls", "data": data}

    with capture_logs() as logs:
        pair = await keeper(store, clock).obtain()

    assert fault_of(pair, HOSTS, clock.now(), timedelta()) is None
    assert store.version == "8"
    assert [it["event"] for it in logs] == ["certificate written"]


async def test_a_missing_role_is_waited_out_and_told_once() -> None:
    """The process is not ready, and says why."""
    store, clock = Store(), VirtualClock()
    store.refuse = 403
    waiting = keeper(store, clock)
    with capture_logs() as logs:
        task = asyncio.create_task(waiting.obtain())
        await clock.advance(5)
        why = waiting.not_loaded()
        store.refuse = None
        await clock.advance(5)
        await task

    assert "403 Forbidden" in why
    assert waiting.not_loaded() == ""
    assert [it["event"] for it in logs] == ["certificate not obtained", "certificate written"]


async def test_credentials_that_are_refused_end_the_process() -> None:
    """Waiting does not help there."""
    store, clock = Store(), VirtualClock()
    store.refuse = 401

    with pytest.raises(Unauthorized):
        await keeper(store, clock).obtain()
    with pytest.raises(Unauthorized):
        await keeper(store, clock).publish(make(HOSTS, clock.now()))


def test_only_what_differs_is_published() -> None:
    """Each webhook is named, for they might have been put into another order meanwhile."""
    wanted = base64.b64encode(b"ours").decode()
    found = decode(Configuration, json.dumps(configured(wanted, "eA==", "")).encode())

    assert publication(found, b"ours") == [
        {"op": "test", "path": "/webhooks/1/name", "value": "w1"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": wanted},
        {"op": "test", "path": "/webhooks/2/name", "value": "w2"},
        {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": wanted},
    ]
    assert publication(Configuration(metadata=found.metadata), b"ours") == []


async def test_the_authority_is_published_and_kept() -> None:
    """Not before the configuration is there, and again when somebody takes it away."""
    store, clock = Store(), VirtualClock()
    published = keeper(store, clock)
    pair = await published.obtain()
    wanted = base64.b64encode(pair.authority).decode()
    task = asyncio.create_task(published.publish(pair))
    await clock.advance(3)
    absent = published.not_published()
    store.configuration = configured("", "", "")
    await clock.advance(1)
    present = published.not_published()
    store.configuration = configured("", "eA==", "")
    await clock.advance(15)
    again = {it["clientConfig"].get("caBundle") for it in store.configuration["webhooks"]}
    store.refuse = 503
    await clock.advance(120)
    outage = published.not_published()
    store.refuse, store.configuration = None, None
    await clock.advance(60)
    gone = published.not_published()
    task.cancel()

    assert "are the manifests applied?" in absent
    assert present == ""
    assert again == {wanted}
    assert outage == ""
    assert "are the manifests applied?" in gone


async def test_the_validating_configuration_is_told_as_well() -> None:
    """Nobody waits for it: without it we are ready."""
    store, clock = Store(), VirtualClock()
    store.configuration = configured("")
    published = keeper(store, clock)
    pair = await published.obtain()
    task = asyncio.create_task(published.publish(pair))
    await clock.advance(3)
    without = published.not_published()
    store.validating = configured("", "eA==")
    await clock.advance(20)
    task.cancel()

    assert without == ""
    assert {it["clientConfig"]["caBundle"] for it in store.validating["webhooks"]} == {
        base64.b64encode(pair.authority).decode()
    }


async def test_of_two_authorities_only_that_of_the_secret_is_published() -> None:
    """Whoever shows another one stops, to be started anew; nobody takes turns."""
    store, clock = Store(), VirtualClock()
    store.configuration = configured("", "")
    first = await keeper(store, clock).obtain()
    store.secret = None
    second = await keeper(store, clock).obtain()
    old = asyncio.create_task(keeper(store, clock).publish(first))
    new = asyncio.create_task(keeper(store, clock).publish(second))
    await clock.advance(40)

    assert old.done()
    assert old.exception() is None
    assert not new.done()
    new.cancel()
    bundles = {it["clientConfig"].get("caBundle") for it in store.configuration["webhooks"]}
    assert bundles == {base64.b64encode(second.authority).decode()}


@pytest.mark.parametrize("damage", [None, {"data": {}}], ids=["deleted", "garbled"])
async def test_a_secret_that_is_lost_is_put_back(damage: dict[str, Any] | None) -> None:
    """The next replica that starts finds the certificate that the others show."""
    store, clock = Store(), VirtualClock()
    store.configuration = configured("")
    showing = keeper(store, clock)
    pair = await showing.obtain()
    task = asyncio.create_task(showing.publish(pair))
    for _ in range(2):
        await clock.advance(20)
        assert store.secret is not None
        store.secret = None if damage is None else {**store.secret, **damage}
    await clock.advance(20)

    assert not task.done()
    task.cancel()
    assert await keeper(store, clock).obtain() == pair


async def test_putting_it_back_is_tried_until_it_is_done() -> None:
    """A missing role ends nothing meanwhile: we answer, and are trusted."""
    store, clock = Store(), VirtualClock()
    store.configuration = configured("")
    showing = keeper(store, clock)
    pair = await showing.obtain()
    store.secret = None
    store.refuse_writes = 403
    with capture_logs() as logs:
        task = asyncio.create_task(showing.publish(pair))
        await clock.advance(20)
        assert not task.done()
        assert store.secret is None
        store.refuse_writes = None
        await clock.advance(20)
        task.cancel()

    assert "certificate not put back" in {it["event"] for it in logs}
    assert await keeper(store, clock).obtain() == pair


async def test_credentials_that_are_refused_then_end_the_process_too() -> None:
    """Waiting does not help there either."""
    store, clock = Store(), VirtualClock()
    showing = keeper(store, clock)
    pair = await showing.obtain()
    store.secret = None
    store.refuse_writes = 401

    with pytest.raises(Unauthorized):
        await showing.publish(pair)


async def test_a_certificate_that_is_renewed_ends_nobody() -> None:
    """It is of the same authority: whoever shows the old one stays trusted, and leaves it there."""
    store, clock = Store(), VirtualClock()
    store.configuration = configured("")
    showing = keeper(store, clock)
    first = await showing.obtain()
    await clock.advance(340 * 86_400)
    second = await keeper(store, clock).obtain()
    task = asyncio.create_task(showing.publish(first))
    await clock.advance(20)

    assert not task.done()
    task.cancel()
    assert second != first
    assert await keeper(store, clock).obtain() == second


def test_a_secret_is_written_as_it_is_read() -> None:
    """Four files."""
    pair = make(("x",), VirtualClock().now())
    files = {"ca.crt": 0, "ca.key": 1, "tls.crt": 2, "tls.key": 3}
    data = {name: base64.b64encode(pair[at]).decode() for name, at in files.items()}

    assert pair_in(data) == pair
    assert pair_in({**data, "tls.key": "%"}) is None
    assert pair_in({}) is None
