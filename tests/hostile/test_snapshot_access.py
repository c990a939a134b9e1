"""A snapshot of the cluster is asked for by a caller behind a proxy in the pod: from loopback."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.scripted_transport import ScriptedTransport
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.caller_auth import CallerAuthorizer
from trainer_kai.service.health import Health, HealthServer
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import HealthSettings

_KNOWN: Final = {"status": {"authenticated": True, "user": {"username": "eve", "groups": ["g"]}}}
_UNKNOWN: Final = {"status": {"authenticated": False, "error": "token is expired"}}
_YES: Final = {"status": {"allowed": True}}
_NO: Final = {"status": {"allowed": False}}
_TOKEN: Final = {"Authorization": "Bearer abc"}
_SNAPSHOT: Final = "the pods of all teams"
_FORWARDED: Final = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}

SnapshotRequest = tuple[Mapping[str, str], tuple[Any, ...]]
# the headers of a request from loopback, what the API server answers -> status
REQUESTS: list[Case[SnapshotRequest, int]] = [
    Case("without a token", ({}, ()), 401),
    Case("without a token, as if from loopback", (_FORWARDED, ()), 401),
    Case("with a password", ({"Authorization": "Basic abc"}, ()), 401),
    Case("with a token that is over", (_TOKEN, (_UNKNOWN,)), 401),
    Case("without the right", (_TOKEN, (_KNOWN, _NO)), 403),
    Case("without the right, as if from loopback", (_TOKEN | _FORWARDED, (_KNOWN, _NO)), 403),
    Case("with the right", (_TOKEN, (_KNOWN, _YES)), 200),
]


@pytest.mark.parametrize("path", ["/snapshot", "/metrics"])
@pytest.mark.parametrize("case", REQUESTS, ids=ids)
async def test_the_snapshot_is_for_users_that_may_read_the_cluster(
    case: Case[SnapshotRequest, int], path: str
) -> None:
    """The API server names the user of a token and what it may get, and no address counts."""
    headers, answers = case.given
    wire = ScriptedTransport(*answers)

    status, text = await _status_of(path, headers, wire, is_on=True)

    assert status == case.want, text
    assert (text == _SNAPSHOT) == (path == "/snapshot" and case.want == 200)
    assert len(wire.requests) == len(answers)


async def test_no_snapshot_unless_the_settings_enable_it() -> None:
    """The shipped scheduler has no snapshot, also not for an administrator; metrics are open."""
    wire = ScriptedTransport()

    assert (await _status_of("/snapshot", _TOKEN, wire, is_on=False))[0] == 404
    assert (await _status_of("/metrics", {}, wire, is_on=False))[0] == 200
    assert wire.requests == []


async def _status_of(
    path: str, headers: Mapping[str, str], wire: ScriptedTransport, *, is_on: bool
) -> tuple[int, str]:
    closed = HealthSettings(
        address="127.0.0.1", port=0, snapshot="authorized", metrics="authorized"
    )
    place = closed if is_on else HealthSettings(address="127.0.0.1", port=0)
    health = Health()
    health.snapshot_source = _pieces
    health.guard = CallerAuthorizer(_client(wire)).denial
    async with (
        HealthServer(health, Metrics(), VirtualClock(), place) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}{path}", headers=headers) as response,
    ):
        return response.status, await response.text()


def _client(wire: ScriptedTransport) -> Client:
    return Client(
        RestConfig("https://fake", StaticToken("")), wire, VirtualClock(), NoRequestObserver()
    )


async def _pieces() -> AsyncIterator[bytes]:
    yield _SNAPSHOT.encode()
