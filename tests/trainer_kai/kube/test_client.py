"""What the client sends, and how often: the rules of its docstring, one by one."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import pytest

from tests.support.case import Case, ids
from tests.support.fakes.recording_transport import ClientRun, GivenAnswer, json_answer
from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.resources import Resource
from trainer_kai.errors import ConfigError
from trainer_kai.kube.client import Client, RetryPolicy
from trainer_kai.kube.rest.request import DeleteOptions, ListTarget, Request, WriteOptions
from trainer_kai.kube.rest.response import (
    ApiResponse,
    Conflict,
    ErrorDetails,
    Forbidden,
    Garbled,
    Throttled,
    Unauthorized,
    Unavailable,
    WatchExpired,
)

PODS: Final = Resource("", "v1", "pods", "Pod", True, PartialObject)
GROUPS: Final = Resource("scheduling.run.ai", "v2", "podgroups", "PodGroup", True, PartialObject)
POD: Final = Key("a", "b")
SAFE: Final = Request("GET", "/x", repeatable=True)
UNSAFE: Final = Request("POST", "/x", body=b"{}")

OK: Final = ApiResponse(200, b"ok")
BUSY: Final = ApiResponse(429, b"busy")
LATER: Final = ApiResponse(429, b"busy", "7")
DOWN: Final = ApiResponse(503, b"down")
DOWN_FOR_9_S: Final = ApiResponse(503, b"down", "9")
UNKNOWN: Final = ApiResponse(401, b"who?")
LOST: Final = Unavailable(ErrorDetails("GET /x", 0, "", "lost"), was_sent=True)
NOT_SENT: Final = Unavailable(ErrorDetails("GET /x", 0, "", "nobody"), was_sent=False)


class SendOutcome(NamedTuple):
    """How a request ended, how often it was sent, and how long that took: least and most."""

    outcome: object
    sends: int
    waited_s: tuple[float, float] = (0.0, 0.0)


class SendCase(NamedTuple):
    """A request, the answers it gets, and how many new tokens there are."""

    request: Request
    answers: tuple[GivenAnswer, ...]
    renewals: int = 0


ONE: Final = (0.05, 0.1)  # what is waited once: half of a step, or up to the whole of it
TWO: Final = (0.15, 0.3)
RULES: list[Case[SendCase, SendOutcome]] = [
    Case("an answer is an answer", SendCase(UNSAFE, (OK,)), SendOutcome(b"ok", 1)),
    Case("1: busy is waited for", SendCase(SAFE, (BUSY, BUSY, OK)), SendOutcome(b"ok", 3, TWO)),
    Case(
        "1: by all, for nothing was done", SendCase(UNSAFE, (BUSY, OK)), SendOutcome(b"ok", 2, ONE)
    ),
    Case(
        "1: for as long as it says", SendCase(UNSAFE, (LATER, OK)), SendOutcome(b"ok", 2, (7, 7.1))
    ),
    Case(
        "2: what was not sent is sent", SendCase(UNSAFE, (NOT_SENT, OK)), SendOutcome(b"ok", 2, ONE)
    ),
    Case("3: a safe one is repeated", SendCase(SAFE, (DOWN, OK)), SendOutcome(b"ok", 2, ONE)),
    Case("3: also without an answer", SendCase(SAFE, (LOST, OK)), SendOutcome(b"ok", 2, ONE)),
    Case(
        "3: after as long as it says",
        SendCase(SAFE, (DOWN_FOR_9_S, OK)),
        SendOutcome(b"ok", 2, (9, 9.1)),
    ),
    Case("3: an unsafe one is not", SendCase(UNSAFE, (DOWN, OK)), SendOutcome(Unavailable, 1)),
    Case("3: nor without an answer", SendCase(UNSAFE, (LOST, OK)), SendOutcome(Unavailable, 1)),
    Case(
        "3: a conflict stays one",
        SendCase(SAFE, (ApiResponse(409, b""), OK)),
        SendOutcome(Conflict, 1),
    ),
    Case(
        "3: so do missing rights",
        SendCase(SAFE, (ApiResponse(403, b""), OK)),
        SendOutcome(Forbidden, 1),
    ),
    Case(
        "3: and a lost version",
        SendCase(SAFE, (ApiResponse(410, b""), OK)),
        SendOutcome(WatchExpired, 1),
    ),
    Case("4: a new token is tried", SendCase(UNSAFE, (UNKNOWN, OK), 1), SendOutcome(b"ok", 2)),
    Case(
        "4: new credentials are tried once",
        SendCase(SAFE, (UNKNOWN,), 9),
        SendOutcome(Unauthorized, 2),
    ),
    Case("4: only if it is new", SendCase(SAFE, (UNKNOWN, OK), 0), SendOutcome(Unauthorized, 1)),
    Case(
        "4: once, whatever comes between",
        SendCase(SAFE, (UNKNOWN, DOWN, UNKNOWN, OK), 9),
        SendOutcome(Unauthorized, 3, ONE),
    ),
    Case(
        "5: what would take longer is not waited for",
        SendCase(SAFE, (ApiResponse(429, b"", "31"), OK)),
        SendOutcome(Throttled, 1),
    ),
    Case(
        "5: all waits together are within it, and the last error is raised",
        SendCase(SAFE, (BUSY, ApiResponse(503, b"", "29"), ApiResponse(503, b"", "2"), OK)),
        SendOutcome(Unavailable, 3, (29.05, 29.3)),
    ),
    Case(
        "our own fault is raised",
        SendCase(SAFE, (ConfigError([]), OK)),
        SendOutcome(ConfigError, 1),
    ),
]


@pytest.mark.parametrize("case", RULES, ids=ids)
async def test_how_often_a_request_is_sent(case: Case[SendCase, SendOutcome]) -> None:
    """By the rules in the client's docstring, which have these numbers."""
    given, want = case.given, case.want
    run = ClientRun(*given.answers, renewals=given.renewals)

    outcome = await run.run_to_end(run.client.send(given.request))

    assert (outcome if isinstance(outcome, bytes) else type(outcome)) == want.outcome
    assert run.transport.requests == [given.request] * want.sends
    least_s, most_s = want.waited_s
    assert least_s <= run.clock.monotonic_s() <= most_s


async def test_retries_end_with_the_retry_policy() -> None:
    """An API server that stays away is asked until the retry policy ends, ever less often."""
    run = ClientRun(DOWN)

    outcome = await run.run_to_end(run.client.send(SAFE, retry_policy=RetryPolicy(total_s=100)))

    assert isinstance(outcome, Unavailable)
    assert 94 <= run.clock.monotonic_s() <= 100
    assert 24 <= len(run.transport.requests) <= 50


async def test_answers_are_observed() -> None:
    """Each of them with its status and its time, failures included; and each repeat."""
    run = ClientRun(DOWN, UNKNOWN, NOT_SENT, OK, renewals=1)

    await run.run_to_end(run.client.send(SAFE))

    assert [status for status, _ in run.observer.answers] == [503, 401, 0, 200]
    assert run.observer.repeats == 2


async def test_a_cancelled_request_is_observed() -> None:
    """What came of it is unknown: it had no response."""
    run = ClientRun(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await run.client.send(SAFE)

    assert run.observer.answers == [(0, 0.0)]


async def test_the_unknown_credentials_are_named() -> None:
    """The token has an origin, and that is where to look."""
    run = ClientRun(json_answer({"message": "no"}, 401))
    with pytest.raises(Unauthorized, match=r"GET /x: 401: no to the test: the token or cert.*"):
        await run.client.send(SAFE)


async def test_each_request_has_its_time() -> None:
    """The caller may give it less than usual."""
    run = ClientRun(OK)
    await run.client.send(SAFE)
    await run.client.with_retry_policy(RetryPolicy(timeout_s=2.5)).send(SAFE)

    assert run.transport.timeouts_s == [30.0, 2.5]


async def test_who_sends_may_want_to_know_of_a_429() -> None:
    """A caller that adapts how much it sends at once gets the error at once."""
    run = ClientRun(json_answer({}, 429))
    with pytest.raises(Throttled):
        await run.client.with_retry_policy(RetryPolicy(waits_when_throttled=False)).send(SAFE)

    assert len(run.transport.requests) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"metadata": {"name": 7}, "items": 7}'])
async def test_an_answer_that_cannot_be_read_is_an_error_of_ours(body: bytes) -> None:
    """It is reported with the request, which is not sent again: what was to be done is done."""
    run = ClientRun(ApiResponse(200, body))
    with pytest.raises(Garbled, match=r"^PATCH .*/pods/p: 200: the response cannot be decoded"):
        await run.client.merge_patch(PODS, Key("a", "p"), {})
    with pytest.raises(Garbled):
        await run.client.list(ListTarget(PODS))

    assert len(run.transport.requests) == 2


# Streams


async def read(client: Client) -> bytes:
    async with client.stream(SAFE, 60) as pieces:
        return b"".join([piece async for piece in pieces])


STREAMS: list[Case[SendCase, SendOutcome]] = [
    Case("it is read", SendCase(SAFE, (OK,)), SendOutcome(b"ok", 1)),
    Case(
        "a failure is the caller's to repeat",
        SendCase(SAFE, (DOWN, OK)),
        SendOutcome(Unavailable, 1),
    ),
    Case("so is being busy", SendCase(SAFE, (LATER, OK)), SendOutcome(Throttled, 1)),
    Case("a new token is tried", SendCase(SAFE, (UNKNOWN, OK), 1), SendOutcome(b"ok", 2)),
    Case(
        "new credentials are tried once",
        SendCase(SAFE, (UNKNOWN,), 9),
        SendOutcome(Unauthorized, 2),
    ),
    Case("only if it is new", SendCase(SAFE, (UNKNOWN, OK), 0), SendOutcome(Unauthorized, 1)),
]


@pytest.mark.parametrize("case", STREAMS, ids=ids)
async def test_how_often_a_stream_is_opened(case: Case[SendCase, SendOutcome]) -> None:
    """Its reader knows where to go on, and when."""
    run = ClientRun(*case.given.answers, renewals=case.given.renewals)

    outcome = await run.run_to_end(read(run.client))

    assert (outcome if isinstance(outcome, bytes) else type(outcome)) == case.want.outcome
    assert len(run.transport.requests) == case.want.sends
    assert run.clock.monotonic_s() == 0
    if isinstance(outcome, Unauthorized):
        assert "to the test" in str(outcome)


async def test_errors_of_the_reader_are_its_own() -> None:
    """Also one that looks like an answer to us."""
    run = ClientRun(OK, renewals=1)
    own_error = Unauthorized(ErrorDetails("GET /y", 401, "", "mine"))

    async def fail() -> None:
        async with run.client.stream(SAFE, 60):
            raise own_error

    assert await run.run_to_end(fail()) is own_error
    assert (len(run.transport.requests), run.credentials.renewals_requested) == (1, 0)


# Calls


OBJECT: Final[dict[str, Any]] = {"metadata": {"name": "b", "namespace": "a"}, "spec": {}}
WITH_FIELD_MANAGER: Final = WriteOptions(field_manager="me")


class SentCall(NamedTuple):
    line: str
    body: Any = None


CALLS: list[Case[Callable[[Client], Coroutine[Any, Any, object]], SentCall]] = [
    Case(
        "get reads the object",
        lambda it: it.get(PODS, POD),
        SentCall("GET /api/v1/namespaces/a/pods/b"),
    ),
    Case(
        "create sends the object",
        lambda it: it.create(PODS, "a", OBJECT, WITH_FIELD_MANAGER),
        SentCall("POST /api/v1/namespaces/a/pods?fieldManager=me", OBJECT),
    ),
    Case(
        "replace sends the object",
        lambda it: it.replace(PODS, POD, OBJECT, WriteOptions(subresource="status")),
        SentCall("PUT /api/v1/namespaces/a/pods/b/status", OBJECT),
    ),
    Case(
        "merge sends the patch",
        lambda it: it.merge_patch(PODS, POD, {"a": None}),
        SentCall("PATCH /api/v1/namespaces/a/pods/b", {"a": None}),
    ),
    Case(
        "operations are sent as a list",
        lambda it: it.json_patch(PODS, POD, [{"op": "test"}], WriteOptions(dry_run=True)),
        SentCall("PATCH /api/v1/namespaces/a/pods/b?dryRun=All", [{"op": "test"}]),
    ),
    Case(
        "what is applied says what it is",
        lambda it: it.apply(
            GROUPS, POD, {"metadata": {"name": "x", "labels": {}}}, WITH_FIELD_MANAGER
        ),
        SentCall(
            "PATCH /apis/scheduling.run.ai/v2/namespaces/a/podgroups/b?fieldManager=me",
            {
                "apiVersion": "scheduling.run.ai/v2",
                "kind": "PodGroup",
                "metadata": {"labels": {}, "name": "b"},
            },
        ),
    ),
]


@pytest.mark.parametrize("case", CALLS, ids=ids)
async def test_a_call(
    case: Case[Callable[[Client], Coroutine[Any, Any, object]], SentCall],
) -> None:
    """It sends one request and returns the object of the answer."""
    run = ClientRun(json_answer(OBJECT))

    made = await case.given(run.client)

    assert (run.request_lines, run.transport.bodies) == ([case.want.line], [case.want.body])
    assert isinstance(made, PartialObject)
    assert made.metadata.key == POD


@pytest.mark.parametrize(
    ("deletion", "can_repeat"),
    [((), False), ((DeleteOptions(uid="u"),), True)],
    ids=["any", "this one"],
)
async def test_a_deletion(deletion: tuple[DeleteOptions, ...], *, can_repeat: bool) -> None:
    """Whatever the answer says; only with a uid it is one that can be repeated."""
    run = ClientRun(ApiResponse(200, b"whatever"))

    await run.client.delete(PODS, POD, *deletion)

    (asked,) = run.transport.requests
    assert (asked.method, asked.repeatable) == ("DELETE", can_repeat)


async def test_who_applies_must_have_a_name() -> None:
    """Fields belong to a manager."""
    run = ClientRun(OK)
    with pytest.raises(ValueError, match="server-side apply needs a field manager"):
        await run.client.apply(PODS, POD, {}, WriteOptions())

    assert run.transport.requests == []


def page(token: str, *names: str) -> ApiResponse:
    items = [{"metadata": {"name": name}} for name in names]
    return json_answer({"metadata": {"resourceVersion": "7", "continue": token}, "items": items})


async def test_a_list_is_read_page_by_page() -> None:
    """Each page says how the next one is asked for; an empty page need not be the last."""
    run = ClientRun(page("t1", "a", "b"), page("t2"), DOWN, page("", "c"))

    listed = await run.run_to_end(run.client.list(ListTarget(PODS, "a")))

    assert [item.metadata.name for item in listed] == ["a", "b", "c"]
    path = "GET /api/v1/namespaces/a/pods?limit=500"
    assert run.request_lines == [path, f"{path}&continue=t1", *[f"{path}&continue=t2"] * 2]


async def test_a_list_that_expires() -> None:
    """Beginning again is for a caller that knows what has been read already."""
    run = ClientRun(page("t1", "a"), ApiResponse(410, b""))

    assert isinstance(await run.run_to_end(run.client.list(ListTarget(PODS))), WatchExpired)
    assert len(run.transport.requests) == 2


async def test_pages_may_be_small() -> None:
    """And a caller that has seen enough asks for no more."""
    run = ClientRun(page("t1", "a"), page("", "b"))

    async for read_page in run.client.pages(ListTarget(PODS), limit=1):
        assert read_page.metadata.resource_version == "7"
        break

    assert run.request_lines == ["GET /api/v1/pods?limit=1"]


async def test_closing() -> None:
    run = ClientRun(OK)
    await run.client.close()

    assert run.transport.is_closed
