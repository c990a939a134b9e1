"""Reading, writing and releasing a Lease, within a time, and what a real API server is sent."""

import asyncio
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.lease_server import TIMING, Host, LeaseServer, Network
from tests.support.fakes.scripted_transport import ScriptedTransport, error_answer
from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.leader.lease import LeaseApi, LeaseClient, LeaseRecord
from trainer_kai.kube.rest.response import Forbidden, Unavailable

NOW = "2026-01-01T00:00:00.000000Z"


# what was found -> what is written by "me" on new year, with a lease of 15 s
ENTRIES: list[Case[LeaseRecord | None, LeaseRecord]] = [
    Case("there was none", None, LeaseRecord("me", 15, NOW, NOW, 0)),
    Case(
        "nobody had it",
        LeaseRecord("", 1, "x", "y", 4, "9"),
        LeaseRecord("me", 15, NOW, NOW, 5),
    ),
    Case(
        "somebody had it",
        LeaseRecord("you", 60, "x", "y", 4, "9"),
        LeaseRecord("me", 15, NOW, NOW, 5),
    ),
    Case(
        "it was ours",
        LeaseRecord("me", 60, "x", "y", 4, "9"),
        LeaseRecord("me", 15, "x", NOW, 4),
    ),
]


@pytest.mark.parametrize("case", ENTRIES, ids=ids)
def test_entry(case: Case[LeaseRecord | None, LeaseRecord]) -> None:
    """Taking it counts and has a time of its own; going on keeps both."""
    host = Host(LeaseServer(), VirtualClock())

    assert LeaseClient(host, "me", TIMING, host).next_record(case.given) == case.want


async def test_nobody_waits_longer_than_was_said() -> None:
    """The request is given up; that it was carried out is found out by reading."""
    clock, server = VirtualClock(), LeaseServer()
    host = Host(server, clock)
    lease_client = LeaseClient(host, "me", TIMING, host)
    host.network = Network(request_delay_s=1, answer_delay_s=9)
    writing = asyncio.create_task(lease_client.write(None, lease_client.next_record(None), 5))

    await clock.advance(4.9)
    early = writing.done()
    await clock.advance(0.1)

    with pytest.raises(Unavailable, match="no response within 5 s"):
        await writing
    assert not early
    assert server.record is not None


async def test_a_write_was_sent_before_it_was_answered() -> None:
    """It is the sending that counts."""
    clock, server = VirtualClock(), LeaseServer()
    host = Host(server, clock)
    lease_client = LeaseClient(host, "me", TIMING, host)
    host.network = Network(request_delay_s=1, answer_delay_s=2)
    await clock.advance(10)
    writing = asyncio.create_task(lease_client.write(None, lease_client.next_record(None), 5))
    await clock.advance(5)

    written = await writing

    assert written.sent_s == 10
    assert written.record == server.record


async def test_a_release_leaves_nobody() -> None:
    """The next one may take it at once, and sees that it was held."""
    clock, server = VirtualClock(), LeaseServer()
    host = Host(server, clock)
    lease_client = LeaseClient(host, "me", TIMING, host)
    written = await lease_client.write(None, lease_client.next_record(None), 5)

    await lease_client.release(written.record)

    assert server.record == LeaseRecord("", 1, NOW, "2026-01-01T00:00:00.000001Z", 0, "2")


PATH = "/apis/coordination.k8s.io/v1/namespaces/kai/leases"
RECORD = LeaseRecord("me", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.000000Z", 3)
SPEC = {
    "holderIdentity": "me",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-01-01T00:00:00.000000Z",
    "renewTime": "2026-01-01T00:00:02.000000Z",
    "leaseTransitions": 3,
}
LEASE: dict[str, Any] = {
    "metadata": {"namespace": "kai", "name": "scheduler", "resourceVersion": "7"},
    "spec": SPEC,
}


def api(wire: ScriptedTransport) -> LeaseApi:
    rest_config = RestConfig("https://fake", StaticToken(""))
    return LeaseApi(
        Client(rest_config, wire, VirtualClock(), NoRequestObserver()), Key("kai", "scheduler")
    )


async def test_it_is_read_with_its_version() -> None:
    """All that we go by is there; one that was never held has empty fields; none is None."""
    wire = ScriptedTransport(
        LEASE, {"metadata": {"resourceVersion": "1"}, "spec": {}}, error_answer(404)
    )
    store = api(wire)

    got = [await store.read() for _ in range(3)]

    never_held = LeaseRecord("", 0, "", "", 0, "1")
    assert got == [RECORD._replace(version="7"), never_held, None]
    assert wire.sent == [(f"GET {PATH}/scheduler", None)] * 3


async def test_it_is_made_whole() -> None:
    """With all our fields at once."""
    wire = ScriptedTransport(LEASE)

    assert await api(wire).create(RECORD) == RECORD._replace(version="7")
    named = {"namespace": "kai", "name": "scheduler"}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    assert wire.sent == [(f"POST {PATH}", {**kind, "metadata": named, "spec": SPEC})]


async def test_an_update_is_for_one_version() -> None:
    """What is not ours is not sent; what was never written stays unwritten."""
    wire = ScriptedTransport(LEASE)
    released = RECORD._replace(holder="", acquired="")

    await api(wire).update(released, "6")

    spec = SPEC | {"holderIdentity": "", "acquireTime": None}
    body = {"metadata": {"resourceVersion": "6"}, "spec": spec}
    assert wire.sent == [(f"PATCH {PATH}/scheduler", body)]


async def test_the_missing_permission_to_lead_is_named() -> None:
    """The API server names the missing permission; we add the rule that grants it."""
    wire = ScriptedTransport(error_answer(403, 'User "x" cannot get', "Forbidden"))

    with pytest.raises(Forbidden) as raised:
        await api(wire).read()

    assert raised.value.details.message == (
        'User "x" cannot get; leader election needs get, create and patch on '
        "leases.coordination.k8s.io in namespace kai, at least for scheduler"
    )
