"""Writes behind a fence."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.scripted_transport import ScriptedTransport, error_answer
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import LEASES
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import AccessRequest, Client, NoRequestObserver, bind, review_access
from trainer_kai.kube.leader.lease import Fence, LeaderTerm, LeaseLost, LeaseRecord
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiError, ApiResponse, Unavailable
from trainer_kai.kube.rest.transport import Transport

KEY = Key("kai", "scheduler")


def leading(clock: VirtualClock, wire: Transport) -> tuple[Client, Fence]:
    """Return a client whose writes are let through for ten seconds."""
    term = LeaderTerm(LeaseRecord("me", 15, "", "", 0), 10)
    fence = Fence(term, 4, clock.monotonic_s)
    rest_config = RestConfig("https://fake", StaticToken(""))
    return Client(rest_config, wire, clock, NoRequestObserver()).with_fence(fence), fence


async def test_after_the_fence_fell_only_reads_go_through() -> None:
    """A write is not sent, and says why."""
    clock, wire = VirtualClock(), ScriptedTransport({"metadata": {}}, {"metadata": {}})
    client, _ = leading(clock, wire)
    await client.merge_patch(LEASES, KEY, {})
    await clock.advance(10)
    await client.get(LEASES, KEY)

    with pytest.raises(LeaseLost):
        await client.merge_patch(LEASES, KEY, {})
    assert [request.method for request in wire.requests] == ["PATCH", "GET"]


# a POST -> whether it is sent after the fence fell
POSTS: list[Case[Callable[[Client], Awaitable[object]], bool]] = [
    Case(
        "a question about access is sent",
        lambda it: review_access(it, AccessRequest("get", "", "pods", user="a")),
        want=True,
    ),
    Case("a new object is not sent", lambda it: it.create(LEASES, "kai", {}), want=False),
    Case("a binding is not sent", lambda it: bind(it, KEY, "node", uid="1"), want=False),
]


@pytest.mark.parametrize("case", POSTS, ids=ids)
async def test_questions_are_reads(case: Case[Callable[[Client], Awaitable[object]], bool]) -> None:
    """What is posted and changes nothing needs no lease."""
    clock, wire = VirtualClock(), ScriptedTransport({"status": {"token": "t"}})
    client, _ = leading(clock, wire)
    await clock.advance(10)
    with suppress(LeaseLost):
        await case.given(client)

    assert bool(wire.requests) is case.want


@pytest.mark.parametrize("status", [429, 503])
async def test_a_repetition_asks_again(status: int) -> None:
    """The client waits out a Retry-After; the fence falls meanwhile."""
    busy = error_answer(status)._replace(retry_after="12")
    clock, wire = VirtualClock(), ScriptedTransport(busy, {"metadata": {}})
    client, _ = leading(clock, wire)
    writing = asyncio.create_task(client.merge_patch(LEASES, KEY, {}))

    await clock.advance(20)

    with pytest.raises(LeaseLost):
        await writing
    assert len(wire.requests) == 1


class Silent:
    async def send(self, request: Request, timeout_s: float) -> ApiResponse:  # noqa: ARG002
        raise await asyncio.get_running_loop().create_future()

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def close(self) -> None: ...


async def test_no_write_is_under_way_for_longer_than_allowed() -> None:
    """It is given up in time, and may be carried out until then."""
    clock = VirtualClock()
    client, fence = leading(clock, Silent())
    writing = asyncio.create_task(client.create(LEASES, "kai", {}))
    await clock.advance(3.9)
    done, on_the_way = writing.done(), fence.writes_end_s
    await clock.advance(0.1)

    with pytest.raises(Unavailable, match="no response within 4 s"):
        await writing
    assert (done, on_the_way) == (False, 4)  # to give the Lease back is to wait for it
    assert fence.writes_end_s == 4


# an answer -> from when on that write, sent at 0 s, is certainly over
ANSWERS: list[Case[ApiResponse, float]] = [
    Case("a write that succeeded is over", ApiResponse(200, b"{}"), -math.inf),
    Case("a write that was refused is over", error_answer(409), -math.inf),
    Case("given up by the API server, which may still do it", error_answer(504), 4),
]


@pytest.mark.parametrize("case", ANSWERS, ids=ids)
async def test_an_answered_write_is_not_waited_for(case: Case[ApiResponse, float]) -> None:
    """It can do nothing any more, unless the answer is that the outcome is unknown."""
    client, fence = leading(VirtualClock(), ScriptedTransport(case.given))
    with suppress(ApiError):
        await client.create(LEASES, "kai", {})

    assert fence.writes_end_s == case.want
