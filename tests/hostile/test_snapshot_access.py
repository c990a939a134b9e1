"""A snapshot of the cluster is asked for by a caller behind a proxy in the pod: from loopback."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
import pytest

from tests.support.answers import ScriptedWire
from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.health import Health, HealthServer
from trainer_kai.kube.access import Access, Token
from trainer_kai.kube.bearer import Callers
from trainer_kai.kube.client import Client, Unobserved
from trainer_kai.metrics import Metrics
from trainer_kai.settings import Health as Place

_KNOWN: Final = {"status": {"authenticated": True, "user": {"username": "eve", "groups": ["g"]}}}
_UNKNOWN: Final = {"status": {"authenticated": False, "error": "token is expired"}}
_YES: Final = {"status": {"allowed": True}}
_NO: Final = {"status": {"allowed": False}}
_TOKEN: Final = {"Authorization": "Bearer abc"}
_PICTURE: Final = "the pods of all teams"
_FORWARDED: Final = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}

Asking = tuple[Mapping[str, str], tuple[Any, ...]]
# the headers of a request from loopback, what the API server answers -> status
ASKED: list[Case[Asking, int]] = [
    Case("without a token", ({}, ()), 401),
    Case("without a token, as if from loopback", (_FORWARDED, ()), 401),
    Case("with a password", ({"Authorization": "Basic abc"}, ()), 401),
    Case("with a token that is over", (_TOKEN, (_UNKNOWN,)), 401),
    Case("without the right", (_TOKEN, (_KNOWN, _NO)), 403),
    Case("without the right, as if from loopback", (_TOKEN | _FORWARDED, (_KNOWN, _NO)), 403),
    Case("with the right", (_TOKEN, (_KNOWN, _YES)), 200),
]


@pytest.mark.parametrize("path", ["/snapshot", "/metrics"])
@pytest.mark.parametrize("case", ASKED, ids=ids)
async def test_what_is_in_the_cluster_is_for_who_may_read_it(
    case: Case[Asking, int], path: str
) -> None:
    """The API server says whose token it is and what that user may get, and no address counts."""
    headers, answers = case.given
    wire = ScriptedWire(*answers)

    status, text = await _asked(path, headers, wire, is_on=True)

    assert status == case.want, text
    assert (text == _PICTURE) == (path == "/snapshot" and case.want == 200)
    assert len(wire.asked) == len(answers)


async def test_nothing_is_told_where_the_settings_do_not_ask_for_it() -> None:
    """The shipped scheduler has no snapshot, also not for an administrator; metrics are open."""
    wire = ScriptedWire()

    assert (await _asked("/snapshot", _TOKEN, wire, is_on=False))[0] == 404
    assert (await _asked("/metrics", {}, wire, is_on=False))[0] == 200
    assert wire.asked == []


async def _asked(
    path: str, headers: Mapping[str, str], wire: ScriptedWire, *, is_on: bool
) -> tuple[int, str]:
    closed = Place(address="127.0.0.1", port=0, snapshot="authorized", metrics="authorized")
    place = closed if is_on else Place(address="127.0.0.1", port=0)
    health = Health()
    health.picture = _pieces
    health.guard = Callers(_client(wire)).denial
    async with (
        HealthServer(health, Metrics(), VirtualClock(), place) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}{path}", headers=headers) as response,
    ):
        return response.status, await response.text()


def _client(wire: ScriptedWire) -> Client:
    return Client(Access("https://fake", Token("")), wire, VirtualClock(), Unobserved())


async def _pieces() -> AsyncIterator[bytes]:
    yield _PICTURE.encode()
