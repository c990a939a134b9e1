"""The Lease as it goes over the wire."""

from typing import Any

import pytest

from tests.support.answers import ScriptedTransport, error_answer
from tests.support.clock import VirtualClock
from trainer_kai.api.meta import Key
from trainer_kai.kube.access import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.errors import Forbidden
from trainer_kai.kube.lease import LeaseRecord
from trainer_kai.kube.lease_api import LeaseApi

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
    """Return the store under test."""
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


async def test_who_may_not_lead_is_told_what_is_missing() -> None:
    """RBAC says who may not do what; we say which rule helps."""
    wire = ScriptedTransport(error_answer(403, 'User "x" cannot get', "Forbidden"))

    with pytest.raises(Forbidden) as raised:
        await api(wire).read()

    assert raised.value.details.message == (
        'User "x" cannot get; leading needs get, create and patch on leases.coordination.k8s.io '
        "in namespace kai, at least for scheduler"
    )
