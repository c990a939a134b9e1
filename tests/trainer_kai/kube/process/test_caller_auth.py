"""Whose token it is, and what that user may read: what is asked, how often, and for how long."""

import asyncio
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.fakes.scripted_transport import ScriptedTransport, error_answer
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.caller_auth import CallerAuthorizer
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.service.health import Denial

USER = {"username": "eve", "uid": "7", "groups": ["a", "b"], "extra": {"x": ["1"]}}
KNOWN: dict[str, Any] = {"status": {"authenticated": True, "user": USER}}
YES: dict[str, Any] = {"status": {"allowed": True}}
NO: dict[str, Any] = {"status": {"allowed": False}}


class SlowWire(ScriptedTransport):
    def __init__(self, *answers: ApiResponse | dict[str, Any]) -> None:
        super().__init__(*answers)
        self.may_answer = asyncio.Event()

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        await self.may_answer.wait()
        return await super().send(request, timeout_s)


def authorizer(wire: ScriptedTransport, clock: VirtualClock | None = None) -> CallerAuthorizer:
    access = RestConfig("https://fake", StaticToken(""))
    return CallerAuthorizer(Client(access, wire, clock or VirtualClock(), NoRequestObserver()))


async def test_what_is_asked() -> None:
    """The token, then all that the API server says of its user, with the path."""
    wire = ScriptedTransport(KNOWN, YES)

    assert await authorizer(wire).denial("abc", "/snapshot") is None

    (first, token), (second, access) = wire.sent
    assert first == "POST /apis/authentication.k8s.io/v1/tokenreviews"
    assert token["spec"] == {"token": "abc"}
    assert second == "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert access["spec"] == {
        "user": "eve",
        "uid": "7",
        "groups": ["a", "b"],
        "extra": {"x": ["1"]},
        "nonResourceAttributes": {"path": "/snapshot", "verb": "get"},
    }


@pytest.mark.parametrize("answers", [(KNOWN, YES), (KNOWN, NO)], ids=["yes", "no"])
async def test_an_answer_is_good_for_ten_seconds(answers: tuple[dict[str, Any], ...]) -> None:
    """For this token and this path alone."""
    clock, wire = VirtualClock(), ScriptedTransport(*answers * 4)
    them = authorizer(wire, clock)

    first = await them.denial("abc", "/snapshot")
    await clock.advance(9.9)
    assert await them.denial("abc", "/snapshot") == first
    assert len(wire.requests) == 2
    await them.denial("abc", "/metrics")
    await them.denial("abcd", "/snapshot")
    assert len(wire.requests) == 6
    await clock.advance(0.2)
    await them.denial("abc", "/snapshot")
    assert len(wire.requests) == 8


async def test_few_answers_are_kept() -> None:
    """The oldest goes: no number of tokens fills the memory."""
    wire = ScriptedTransport(*({"status": {"authenticated": False}} for _ in range(66)))
    them = authorizer(wire)
    for number in range(65):
        await them.denial(f"{number}", "/snapshot")

    await them.denial("64", "/snapshot")
    assert len(wire.requests) == 65
    await them.denial("0", "/snapshot")
    assert len(wire.requests) == 66


async def test_few_tokens_are_asked_for_at_once() -> None:
    """More get 429, and nothing is asked for them."""
    both = {"status": {**KNOWN["status"], **YES["status"]}}
    wire = SlowWire(*[both] * 8)
    them = authorizer(wire)
    asking = [asyncio.create_task(them.denial(f"{it}", "/snapshot")) for it in range(4)]
    await asyncio.sleep(0)

    denied = await them.denial("5", "/snapshot")
    wire.may_answer.set()

    assert denied == Denial(429, "4 tokens are being checked. Try again in a second.")
    assert await asyncio.gather(*asking) == [None] * 4


async def test_an_api_server_that_refuses_lets_no_caller_through() -> None:
    """The denial says what was refused, and the API server is asked again the next time."""
    wire = ScriptedTransport(error_answer(403, "no tokenreviews"), KNOWN, YES)
    them = authorizer(wire)

    denied = await them.denial("abc", "/snapshot")

    assert denied is not None
    assert denied.status == 503
    assert "no tokenreviews" in denied.message
    assert await them.denial("abc", "/snapshot") is None


async def test_a_user_without_the_right_learns_which_it_is() -> None:
    """By name, with the path and the verb."""
    denied = await authorizer(ScriptedTransport(KNOWN, NO)).denial("abc", "/snapshot")

    right = "Bind a ClusterRole with the nonResourceURL /snapshot and the verb get to the user."
    assert denied == Denial(403, f"User eve may not get /snapshot. {right}")
